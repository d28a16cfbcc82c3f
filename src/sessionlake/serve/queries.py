"""What users ask of the tables without Spark: SQL, and the sessions or windows of a key."""

from contextlib import closing
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, LakeError
from sessionlake.serve.database import open_database
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import sql_text


def query_tables(config: Config, query: str, limit: int) -> tuple[list[str], list[Any]]:
    """Return the columns and the first rows of a query in DuckDB's SQL; LakeError where it can't be answered."""
    with closing(open_database(config, Lake.of(config))) as database:
        try:
            return _fetched(database.execute(query), limit)
        except duckdb.Error as error:
            raise LakeError(f"sql: {_said(error)}; correct the query, or run it with --engine spark") from error


def find_rows(
    config: Config, key: str, from_us: int | None, to_us: int | None, limit: int
) -> tuple[list[str], list[Any]]:
    """Return the columns and the first of a key's sessions or windows, oldest first, that have a time in [from_us, to_us).

    Only files are read whose bounds of the key hold it.
    """
    lake = Lake.of(config)
    of, reaches = lake.changelog, ">=" if config.section.ends_inclusive else ">"
    if of.numbered and (from_us, to_us) != (None, None):
        raise ConfigError(
            "--from: windows by count lie at no times; leave --from and --to out, or select by window_start"
        )
    with closing(open_database(config, lake, condition=f"{of.key} = {sql_text(key)}")) as database:
        bounds = {"low": from_us, "high": to_us}
        given = {"key": key, **{name: us for name, us in bounds.items() if us is not None}}
        conditions = {"low": f" and epoch_us({of.end}) {reaches} $low", "high": f" and epoch_us({of.start}) < $high"}
        where = "".join(conditions.get(name, "") for name in given)
        found = database.execute(
            f"select * from {of.live} where {of.key} = $key{where} order by {', '.join(dict.fromkeys((of.start, *of.identity)))}",
            given,
        )
        return _fetched(found, limit)


def read_live(config: Config) -> DuckDBPyRelation:
    """Return all sessions or windows as of the last committed batch, as DuckDB's relation: lazy, and its sql() can filter and aggregate.

    Of a query only the columns and rows it needs are read; .fetchall(), .to_arrow_table(), .df() and .pl() give the rows.
    """
    lake = Lake.of(config)
    return open_database(config, lake).table(lake.changelog.live)


def _fetched(result: DuckDBPyConnection, limit: int) -> tuple[list[str], list[Any]]:
    columns = [column[0] for column in result.description or ()]
    return columns, result.fetchmany(limit) if columns else []


def _said(error: duckdb.Error) -> str:
    """Return DuckDB's message without the excerpt of the query below it."""
    lines = [line.strip() for line in str(error).split("\n\nLINE ")[0].splitlines() if line.strip()]
    return " ".join(lines) or type(error).__name__
