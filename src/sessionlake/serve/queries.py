"""What users ask of the tables without Spark: SQL, and the sessions of a key."""

from contextlib import closing
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from sessionlake.config.load import Config
from sessionlake.errors import LakeError
from sessionlake.serve.database import open_database
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import sql_text
from sessionlake.warehouse.schemas import SESSIONS_LIVE, YEAR_1_US, YEAR_9999_US


def query_tables(config: Config, query: str, limit: int) -> tuple[list[str], list[Any]]:
    """Return the columns and the first rows of a query in DuckDB's SQL; LakeError where it can't be answered."""
    with closing(open_database(config, Lake(config.pipeline.warehouse))) as database:
        try:
            return _fetched(database.execute(query), limit)
        except duckdb.Error as error:
            raise LakeError(f"sql: {_said(error)}; correct the query, or run it with --engine spark") from error


def find_sessions(
    config: Config, key: str, from_us: int | None, to_us: int | None, limit: int
) -> tuple[list[str], list[Any]]:
    """Return the columns and the first of a key's sessions, oldest first, that have a time in [from_us, to_us).

    Only files are read whose bounds of session_key hold the key.
    """
    lake = Lake(config.pipeline.warehouse)
    with closing(open_database(config, lake, condition=f"session_key = {sql_text(key)}")) as database:
        found = database.execute(
            f"select * from {SESSIONS_LIVE} where session_key = $key and epoch_us(session_end) >= $low "
            "and epoch_us(session_start) < $high order by session_start",
            {
                "key": key,
                "low": YEAR_1_US if from_us is None else from_us,
                "high": YEAR_9999_US + 1 if to_us is None else to_us,
            },
        )
        return _fetched(found, limit)


def read_sessions(config: Config) -> DuckDBPyRelation:
    """Return all sessions as of the last committed batch, as DuckDB's relation: lazy, and its sql() can filter and aggregate.

    Of a query only the columns and rows it needs are read; .fetchall(), .to_arrow_table(), .df() and .pl() give the rows.
    """
    return open_database(config, Lake(config.pipeline.warehouse)).table(SESSIONS_LIVE)


def _fetched(result: DuckDBPyConnection, limit: int) -> tuple[list[str], list[Any]]:
    columns = [column[0] for column in result.description or ()]
    return columns, result.fetchmany(limit) if columns else []


def _said(error: duckdb.Error) -> str:
    """Return DuckDB's message without the excerpt of the query below it."""
    lines = [line.strip() for line in str(error).split("\n\nLINE ")[0].splitlines() if line.strip()]
    return " ".join(lines) or type(error).__name__
