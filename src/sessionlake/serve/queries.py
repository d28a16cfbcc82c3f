"""Reading the tables without Spark: SQL, and the rows of a key."""

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, LakeError
from sessionlake.serve.database import open_database, open_databases
from sessionlake.sources.equal_types import asked_key, asked_prefix
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.dialects import DUCKDB
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import sql_text

_AT_ONCE = 1000
_SHOW = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_ALL_TABLES = """
    select database_name as pipeline, view_name as name from duckdb_views()
    where not internal and not contains(database_name, ' ') order by all
"""
"""DuckDB's own answer knows the schema alone that is in use, which has no tables in a project, or all, our own parts among them."""
_CLOSED = (
    "file system operations are disabled by configuration",
    "extensions is disabled",
    "configuration has been locked",
)
"""Parts of DuckDB's errors if a query reaches beyond the limits of `open_database`."""
_FULL = "no temporary directory is specified"
"""Part of DuckDB's error if a query needs more memory than there is, and may not spill."""


@dataclass(frozen=True)
class Answer:
    """The rows that answer a question; they are fetched while the answer is open."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]
    batch_id: int | None
    """The last committed batch; None before the first one, and of several pipelines."""


@contextmanager
def answer_sql(config: Config, query: str, *, allow_files: bool = False) -> Iterator[Answer]:
    """Open the answer to a query in DuckDB's SQL, which reaches the pipeline's tables alone unless `allow_files`.

    LakeError if it can't be answered.
    """
    lake = Lake.of(config)
    with closing(open_database(config, lake, allow_files=allow_files, spills=allow_files)) as database:
        yield from _answered(database, query, lake)


@contextmanager
def answer_project_sql(configs: Iterable[Config], query: str, *, allow_files: bool = False) -> Iterator[Answer]:
    """Open the answer to a query over several pipelines, each in a schema of its name, as `answer_sql` does.

    All tables stay at the versions that they have when the answer is opened.
    """
    with closing(open_databases(configs, allow_files=allow_files, spills=allow_files)) as database:
        yield from _answered(database, _ALL_TABLES if shows_tables(query) else query, None)


def shows_tables(query: str) -> bool:
    """Say whether a query is `show tables`, of a project the question for those of all pipelines."""
    return _SHOW.fullmatch(query) is not None


def _answered(database: DuckDBPyConnection, query: str, lake: Lake | None) -> Iterator[Answer]:
    try:
        result = database.execute(query)
        if result is None:
            raise LakeError("sql: there is no statement; write one")
        yield _answer(lake, result)
    except duckdb.Error as error:
        raise LakeError(f"sql: {_said(error)}") from error


@contextmanager
def answer_key(
    config: Config, key: str | None, from_us: int | None, to_us: int | None, prefix: str = ""
) -> Iterator[Answer]:
    """Open a key's sessions or windows, oldest first, that have a time in [from_us, to_us), without their packed states.

    Without a key those of all keys that begin with `prefix`, by key.

    Only files are read whose bounds of the key hold it.
    """
    lake = Lake.of(config)
    last = find_last_batch(lake)
    key, prefix = None if key is None else asked_key(config, last, key), asked_prefix(config, last, prefix)
    of, reaches = lake.changelog, ">=" if config.section.facts.ends_inclusive else ">"
    if not of.has_times and (from_us, to_us) != (None, None):
        raise ConfigError(
            f"--from: {config.entry.rows.computed} lie at no times; leave --from and --to out, or select by {of.start}"
        )

    def about(name: str) -> str:
        return f"starts_with({name}, {sql_text(prefix)})" if key is None else f"{name} = {sql_text(key)}"

    asked = about(of.key)
    with closing(open_database(config, lake, condition=about)) as database:
        bounds = {"low": from_us, "high": to_us}
        given = {name: us for name, us in bounds.items() if us is not None}
        conditions = {"low": f" and epoch_us({of.end}) {reaches} $low", "high": f" and epoch_us({of.start}) < $high"}
        where = "".join(conditions.get(name, "") for name in given)
        first = (of.key,) if key is None else ()
        order = ", ".join(dict.fromkeys((*first, of.start, *of.identity)))
        shown = ", ".join(map(DUCKDB.named, of.without_states(database.table(of.live).columns)))
        yield _answer(
            lake,
            database.execute(f"select {shown} from {of.live} where {asked}{where} order by {order}", given),
        )


def query_tables(config: Config, query: str, limit: int) -> tuple[list[str], list[Any]]:
    """Return the columns and the first rows of a query, as `answer_sql` does."""
    with answer_sql(config, query) as answer:
        return answer.columns, list(islice(answer.rows, limit))


def find_rows(
    config: Config, key: str, from_us: int | None, to_us: int | None, limit: int
) -> tuple[list[str], list[Any]]:
    """Return the columns and the first rows of a key, as `answer_key` does."""
    with answer_key(config, key, from_us, to_us) as answer:
        return answer.columns, list(islice(answer.rows, limit))


def read_live(config: Config) -> DuckDBPyRelation:
    """Return all rows as of the last committed batch without packed states, as DuckDB's relation. It is lazy, and its sql() can filter and aggregate.

    DuckDB reads only the columns and rows that a query needs; .fetchall(), .to_arrow_table(), .df() and .pl() give the
    rows. The relation may write files, because the caller's Python may write them as well.
    """
    lake = Lake.of(config)
    rows = open_database(config, lake, allow_files=True).table(lake.changelog.live)
    return rows.select(*map(DUCKDB.named, lake.changelog.without_states(rows.columns)))


def _answer(lake: Lake | None, result: DuckDBPyConnection) -> Answer:
    columns = [column[0] for column in result.description or ()]
    fetched = iter(partial(result.fetchmany, _AT_ONCE), []) if columns else iter(())
    last = None if lake is None else find_last_batch(lake)
    return Answer(columns, chain.from_iterable(fetched), None if last is None else last.batch_id)


def _said(error: duckdb.Error) -> str:
    """Return DuckDB's message without the excerpt of the query below it, and a remedy."""
    lines = [line.strip() for line in str(error).split("\n\nLINE ")[0].splitlines() if line.strip()]
    said = " ".join(lines) or type(error).__name__
    if any(sign in said for sign in _CLOSED):
        return f"the query reaches beyond the pipeline's tables ({said}); for files, network and settings add --allow-files, to save rows --format csv"
    if _FULL in said:
        return f"the query needs more memory than there is ({lines[0]}); ask for fewer rows or columns, or add --allow-files: then DuckDB may write to a temporary directory"
    return f"{said}; correct the query, or run it with --engine spark --allow-files"
