"""Pipelines of keyed tables on Spark."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.operators.keyed.table import TABLE
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.support import write_rows

Row = dict[str, Any]
MINUTE = 60_000_000
EVENTS: list[Row] = [
    {
        "key": "abcdefg"[n * 5 % 7],
        "time_us": (n * 7 % 60) * MINUTE,
        "id": f"{n:03d}",
        "v": n % 11 - 5 if n % 9 else None,
        "s": f"é{n % 3}" if n % 5 else None,
        "op": "d" if n % 4 == 0 else "c",
    }
    for n in range(60)
]
"""Events of all files together, which come in no order of time; every fourth deletes its key."""


def table_sections(*, shards: int = 2, source: Row | None = None, **table: Any) -> Row:
    """Return the sections of a config."""
    return {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": shards},
        "source": source or {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us", "id": "id"},
        "table": {"columns": ["v", "s"], "delete_when": "op = 'd'", **table},
    }


def table_config(root: Path, **settings: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    sections = table_sections(**settings)
    sections["table"] = {name: value for name, value in sections["table"].items() if value is not None}
    return parse_config(sections, root)


def write_events(root: Path, files: range, of: int = 6) -> None:
    """Write some of the files into which all events are cut; one line of each is no event."""
    step = len(EVENTS) // of
    for number in files:
        some = EVENTS[number * step : (number + 1) * step]
        write_rows(root, f"{number}.json", [*some[:3], '{"key": null}', *some[3:]])


def run_files(spark: SparkSession, root: Path, config: Config, files: range) -> None:
    """Run a batch a file."""
    write_events(root, files)
    run(spark, config, once=True)


def live(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    """Return all rows."""
    rows = merged_rows(Tables.of(spark, config)).selectExpr("table_key", "unix_micros(event_time)", "v", "s")
    return sorted(map(tuple, rows.collect()))


def changes(config: Config, table: str = TABLE.changes) -> pa.Table:
    """Return a table's rows, read without Spark."""
    return pa.table(DeltaTable(f"{config.pipeline.warehouse}/{table}").to_pyarrow_table())


def latest(events: list[Row]) -> list[tuple[Any, ...]]:
    """Return the table of some events, by SQL."""
    given = pa.Table.from_pylist(events)
    with duckdb.connect() as database:
        database.register("given", given)
        rows = database.execute("""
            select key, time_us, v, s from given
            qualify row_number() over (partition by key order by time_us desc, id desc) = 1 and op <> 'd'""").fetchall()
    return sorted(rows)
