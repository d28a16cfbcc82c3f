"""A DuckDB database whose views are the tables of a pipeline."""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from tempfile import TemporaryDirectory

import duckdb
from deltalake import DeltaTable
from duckdb import DuckDBPyConnection

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after, find_last_batch
from sessionlake.warehouse.changelog import FOLD, HIDDEN_WRITTEN, shown_sql
from sessionlake.warehouse.dialects import DUCKDB
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import TableScan, sql_text

AboutKey = Callable[[str], str]
"""SQL about the key that says which rows are asked for, given the key's column."""
_PARTS = "parts of {}"
"""An attached database for the two halves of a pipeline's `batches`, because `show tables` does not list its tables. No pipeline has a name with a space."""
_BUILT_IN = ("memory", "temp", "system", "main", "information_schema", "pg_catalog", "default", "global_temp")
"""Names that DuckDB or Spark keeps for itself: the schema of a pipeline of such a name has a `_` at its end."""
_LOCKED = "set enable_external_access = false; set lock_configuration = true"


def open_database(
    config: Config, lake: Lake, condition: AboutKey | None = None, *, allow_files: bool = False, spills: bool = True
) -> DuckDBPyConnection:
    """Return a database with a view of each table that is there, and those of the latest rows (`Changelog.live`, `every`); times are UTC.

    The views stay at the versions at which they were made, and read nothing before they are queried. `condition`
    says which rows are asked for. Queries reach no other files, no network and no extensions, unless
    `allow_files`; SQL of others must not spill, because it could write where DuckDB does. NoBatchesError if there are none yet.
    """
    database = _connected()
    _add_pipeline(database, config, lake, condition)
    return _closed(database, allow_files=allow_files, spills=spills)


def open_databases(configs: Iterable[Config], *, allow_files: bool = False, spills: bool = True) -> DuckDBPyConnection:
    """Return what `open_database` does of several pipelines, each in a schema of its name. One without batches has no views.

    NoBatchesError if none has any.
    """
    database, without = _connected(), list[str]()
    asked = list(configs)
    for config in asked:
        try:
            _add_pipeline(database, config, Lake.of(config), None)
        except NoBatchesError:
            without.append(config.pipeline.name)
    if len(without) == len(asked):
        raise NoBatchesError(f"sql: no batches are committed yet by {', '.join(without)}; run `sessionlake run` first")
    database.execute("use memory")
    return _closed(database, allow_files=allow_files, spills=spills)


def open_rows(config: Config, lake: Lake, last: BatchCommit, condition: AboutKey | None = None) -> DuckDBPyConnection:
    """Return a database with views of the latest rows only, like `open_database`; rows are shown as of the batch `last`."""
    database = _connected()
    _view_tables(database, config, lake, (*lake.changelog.tables, *_of_state(config, lake)), condition)
    _view_latest(database, config, lake, last)
    return _closed(database, allow_files=False, spills=True)


def open_table(table: DeltaTable, name: str, condition: str | None = None) -> DuckDBPyConnection:
    """Return a database with a view of one table, which leaves out files by `condition`, SQL that DataFusion and DuckDB share."""
    database = _connected()
    database.from_arrow(TableScan(table, condition)).create_view(name)
    return _closed(database, allow_files=False, spills=True)


def _of_state(config: Config, lake: Lake) -> tuple[str, ...]:
    """Return the tables of the state if they say which rows are final."""
    if not config.section.facts.rows_lag:
        return ()
    return tuple(name for one in lake.changelog.state_changelogs for name in one.tables)


def _connected() -> DuckDBPyConnection:
    database = duckdb.connect(config={"autoinstall_known_extensions": False, "python_enable_replacements": False})
    database.execute("set timezone = 'UTC'")
    database.execute("create temp macro unix_micros(moment) as epoch_us(moment)")
    return database


def _closed(database: DuckDBPyConnection, *, allow_files: bool, spills: bool) -> DuckDBPyConnection:
    # By default this is `.tmp` of the current directory, for all accounts to read. DuckDB lets every query write to it, locked or not.
    database.execute(f"set temp_directory = {sql_text(_private_directory() if spills else '')}")
    if not allow_files:
        database.execute(_LOCKED)
    return database


def _private_directory() -> str:
    """Return a directory of this process that other accounts can't read; the empty text if there is none, so that nothing spills."""
    try:
        return _temporary_directory().name
    except OSError:
        return ""


@cache
def _temporary_directory() -> "TemporaryDirectory[str]":
    """Make a directory that is there to the end of the process: a relation of `read_sessions` has no end that we see."""
    return TemporaryDirectory(prefix="sessionlake-")


def _add_pipeline(database: DuckDBPyConnection, config: Config, lake: Lake, condition: AboutKey | None) -> None:
    """Make the views of a pipeline, in a schema of its name, which is the current one then."""
    names = (*lake.changelog.tables, *_of_state(config, lake), *schemas.SHARED)
    _view_tables(database, config, lake, names, condition)
    _view_latest(database, config, lake, find_last_batch(lake))
    _view_batches(database, config, lake)


def _view_tables(
    database: DuckDBPyConnection, config: Config, lake: Lake, names: Iterable[str], condition: AboutKey | None
) -> None:
    """Make views of the tables with these names, in a schema of the pipeline's name."""
    of = lake.changelog
    if not lake[of.changes].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {lake.warehouse!r} has no {of.snapshot} yet; run `sessionlake run` first"
        )
    schema = schema_of(config)
    database.execute(f"attach ':memory:' as \"{schema}\"")
    # The changelog first: trim stops at the fold point of a snapshot that exists already, so every batch is in one of
    # the two.
    for name in names:
        if lake[name].exists():
            # The tables of the state have their own name of the key.
            key = next((one.key for one in (of, *of.state_changelogs) if name in one.tables), None)
            scan = TableScan(lake[name].open(), None if key is None or condition is None else condition(key))
            if name == schemas.BATCHES:
                _store_batches(database, config, scan)
            else:
                database.execute(f'use "{schema}"')
                # `register` knows no other database than its own.
                database.from_arrow(scan).create_view(name)
    database.execute(f'use "{schema}"')


def schema_of(config: Config) -> str:
    """Return the name of a pipeline's schema: its own, unless engines keep that one for themselves."""
    name = config.pipeline.name
    # Also a name that is such a one but for the `_`: no two pipelines then share a schema.
    return f"{name}_" if name.lower().rstrip("_") in _BUILT_IN else name


def _store_batches(database: DuckDBPyConnection, config: Config, scan: TableScan) -> None:
    parts = _PARTS.format(schema_of(config))
    database.execute(f'attach \':memory:\' as "{parts}"; use "{parts}"')
    stored = database.from_arrow(scan)
    stored.create_view("written_batches")
    database.execute(f"create view stored_batches as {batches_sql('written_batches', stored.columns)}")


def batches_sql(table: str, columns: Collection[str]) -> str:
    """Return the query of the rows of `batches` from a table with these columns: counts that are absent are 0."""
    there = ", ".join(f"coalesce({name}, 0) as {name}" for name in sorted(schemas.ADDED_COUNTS & {*columns}))
    missing = "".join(f", 0::bigint as {name}" for name in sorted(schemas.ADDED_COUNTS - {*columns}))
    return f"select *{f' replace ({there})' if there else ''}{missing} from {table}"


def _view_latest(database: DuckDBPyConnection, config: Config, lake: Lake, last: BatchCommit | None) -> None:
    of = lake.changelog
    config = config if last is None else config.as_taken(last.settings.rebuild, last.settings.live)
    columns = lake[of.snapshot].open().schema().to_arrow().names
    fold = lake[of.snapshot].app_version(FOLD)
    hidden_us = None if last is None else last.state.get(HIDDEN_WRITTEN)
    live = of.live_sql(DUCKDB, columns, after=-1 if fold is None else fold, hidden_us=hidden_us)
    database.execute(f"create view {of.every} as {live}")
    rule = config.quarantined_sql(DUCKDB.micros)
    conditions = [] if rule is None else [f"{rule} is null"]
    for name, query in config.section.further_views("duckdb", DUCKDB.micros, of.every).items():
        database.execute(f"create view {name} as {query}")
    final = config.section.final_sql(of.end, {} if last is None else last.state)
    if config.section.facts.shown == "final":
        conditions.append(f"({final})")
    mark, held = final if config.section.facts.shown == "marked" else None, None
    if config.section.facts.rows_lag:
        folded = lake[of.state_changelogs[0].snapshot].app_version(FOLD)
        held = of.held_sql(DUCKDB, str, after=-1 if folded is None else folded)
    shown = shown_sql(f"select * from {of.every}", " and ".join(conditions) or None, mark, held)
    database.execute(f"create view {of.live} as {shown}")


def _view_batches(database: DuckDBPyConnection, config: Config, lake: Lake) -> None:
    """Make a view of the saved batches, and of newer ones that are only in the changelog's commits."""
    stored, new = (f'"{_PARTS.format(schema_of(config))}".{name}' for name in ("stored_batches", "new_batches"))
    seen = database.execute(f"select coalesce(max(changelog_version), -1) from {stored}").fetchall()[0][0]
    rows = [batch.row(lake.changelog.counts) for batch in batches_after(lake, seen)]
    database.execute(f"create table {new} as select * from {stored} limit 0")
    # By parameters: an Arrow table of rows of Python would cost the import of pandas.
    schema = schemas.batches(lake.changelog.counts)
    times = {field.name for field in schema if field.type == schemas.TIME}
    names = schema.names
    values = (f"make_timestamp(${name}) at time zone 'UTC'" if name in times else f"${name}" for name in names)
    insert = f"insert into {new} ({', '.join(names)}) values ({', '.join(values)})"
    for row in rows:
        database.execute(insert, row)
    database.execute(f"create view {schemas.BATCHES} as select * from {stored} union all select * from {new}")
