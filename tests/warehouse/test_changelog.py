"""sessions_live by one SQL text: the same rows by Spark, by DuckDB and by a loop over the changes."""

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.warehouse.dialects import DUCKDB, SPARK, TRINO, Dialect
from sessionlake.warehouse.tables import spark_schema

Row = dict[str, Any]
(TABLE,) = Sessionizer.TABLES
CHANGELOG = TABLE.changelog
AGGREGATES = [pa.field("order", pa.int64())]
CHANGES, SESSIONS = TABLE.changes_schema(AGGREGATES, marks=True), TABLE.snapshot_schema(AGGREGATES)
DAY_US = 86_400_000_000
STARTS = (-DAY_US - 1, -DAY_US, -1, 0, 1, DAY_US - 1, DAY_US, 20_000 * DAY_US + 7)
KEYS = ("a", "ab", "é", "'", "")
BATCHES = 12


def random_changes(seed: int) -> list[Row]:
    """Return changes of batches in order, at most one a session and batch, with emitted events among them."""
    rng = random.Random(seed)
    found = []
    for batch_id in range(BATCHES):
        for key in KEYS:
            for start in rng.sample(STARTS, 3):
                op = rng.choice(("upsert", "upsert", "delete", "emit"))
                found.append(change(op, key, start, batch_id, rng.randrange(100)))
    return found


def change(op: str, key: str, start_us: int, batch_id: int, value: int) -> Row:
    return {
        "op": op,
        "session_key": key,
        "session_start": start_us,
        "session_end": start_us + value,
        "session_id": STARTS.index(start_us),
        "event_count": value,
        "revision": batch_id,
        "order": value,
        "state": bytes([value]),
        "batch_id": batch_id,
        "commit_id": f"c{batch_id}",
    }


def sessions_of(changes: list[Row]) -> dict[tuple[str, int], Row]:
    """Return the sessions that changes add up to."""
    found: dict[tuple[str, int], Row] = {}
    for row in changes:
        name = row["session_key"], row["session_start"]
        if row["op"] == "upsert":
            found[name] = {**row, "session_date": row["session_start"] // DAY_US}
        elif row["op"] == "delete":
            found.pop(name, None)
    return found


def table_of(rows: Any, schema: pa.Schema) -> pa.Table:
    days = (
        {**row, **({"session_date": row["session_date"] * 86_400_000} if "session_date" in row else {})} for row in rows
    )
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row in days:
        for name in schema.names:
            columns[name].append(row.get(name))
    arrays = [
        pa.array(values, pa.int64()).cast(pa.date64()).cast(pa.date32())
        if name == "session_date"
        else pa.array(values, schema.field(name).type)
        for name, values in columns.items()
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def in_duckdb(dialect: Dialect, snapshot: pa.Table, changelog: pa.Table, after: int | None) -> list[Any]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'Asia/Tokyo'")
        database.register("sessions", snapshot)
        database.register("session_changelog", changelog)
        return rows_of(database.sql(CHANGELOG.live_sql(dialect, SESSIONS.names, after=after)).to_arrow_table())


def in_spark(spark: SparkSession, snapshot: pa.Table, changelog: pa.Table, after: int | None) -> list[Any]:
    frames = {
        name: spark.createDataFrame(table, spark_schema(table.schema))
        for name, table in (("snapshot", snapshot), ("changelog", changelog))
    }
    text = CHANGELOG.live_sql(SPARK, SESSIONS.names, snapshot="{snapshot}", changelog="{changelog}", after=after)
    return rows_of(spark.sql(text, **frames).toArrow())


def rows_of(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.cast(SESSIONS).to_pylist()))


@pytest.mark.parametrize(("fold", "trimmed"), [(-1, -1), (4, -1), (7, 3), (11, 11), (5, 5)])
def test_the_same_in_all_engines(spark: SparkSession, fold: int, trimmed: int) -> None:
    changes = random_changes(fold)
    snapshot = table_of(sessions_of([row for row in changes if row["batch_id"] <= fold]).values(), SESSIONS)
    changelog = table_of([row for row in changes if row["batch_id"] > trimmed], CHANGES)
    expected = rows_of(table_of(sessions_of(changes).values(), SESSIONS))
    # Without the fold point, which other engines don't see, the rows are the same.
    for after in (fold, None):
        assert in_spark(spark, snapshot, changelog, after) == expected
        for dialect in (DUCKDB, TRINO):
            assert in_duckdb(dialect, snapshot, changelog, after) == expected
