"""Pipelines of windows for tests of jobs, what is in them by DuckDB, and of ones whose state is in slices."""

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config, parse_config
from sessionlake.operators.windows.table import SLICES, WINDOWS
from sessionlake.stream.run import run
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.support import write_rows

FOLDED = """
select {n}_key, epoch_us({n}_start), event_count, revision from changes
qualify row_number() over (partition by {n}_key, {n}_start order by batch_id desc) = 1 and op = 'upsert' order by all
"""
Row = tuple[Any, ...]


def window_config(root: Path, **sections: dict[str, Any]) -> Config:
    """Return a pipeline of windows of 10 us that close 20 us after their end, and keep events for 60 us."""
    (root / "events").mkdir(exist_ok=True)
    raw: dict[str, dict[str, Any]] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "emit": {"early": "batch", "late": "batch"},
        "window": {"kind": "tumbling", "size": "10 us", "offset": "3 us", "grace": "20 us", "retention": "60 us"},
        "aggregates": {"total": "sum(v)"},
        "expire": {"max_share": 1.0},
    }
    for name, section in sections.items():
        merged = section if name == "aggregates" else {**raw.get(name, {}), **section}
        raw[name] = {key: value for key, value in merged.items() if value is not None}
    return parse_config(raw, root)


def hopping_config(root: Path, **sections: dict[str, Any]) -> Config:
    """Return the same with windows that begin every 5 us and are sent when they are full, and again as they close: their state is slices."""
    hopping = {"window": {"kind": "hopping", "advance": "5 us"}, "emit": {"early": "off", "late": "close"}}
    return window_config(root, **{**hopping, **sections})


def run_files(spark: SparkSession, root: Path, config: Config, numbers: range) -> None:
    """Run a batch a file of 40 events of keys a to c, each file 12 us after the one before, some events far behind."""
    for number in numbers:
        rng = random.Random(number)
        times = [number * 12 + rng.choice([0, 3, 7, 12, -9, -25, -45, -80]) + 200 for _ in range(40)]
        rows = [{"key": rng.choice("abc"), "time_us": t, "v": rng.randint(-5, 5)} for t in times]
        write_rows(root, f"{number}.json", rows)
    run(spark, config, once=True)


def tables_of(spark: SparkSession, config: Config) -> Tables:
    return Tables.of(spark, config)


def folded(config: Config, of: Changelog = WINDOWS, changes: pa.Table | None = None) -> list[Row]:
    """Return (key, start, events, revision) of the rows that a changelog adds up to, by DuckDB over the Delta table."""
    if changes is None:
        changes = changes_of(config, of)
    with duckdb.connect() as db:
        db.register("changes", changes)
        return db.execute(FOLDED.format(n=of.name)).fetchall()


def changes_of(config: Config, of: Changelog = WINDOWS) -> pa.Table:
    """Return a changelog's rows, read without Spark."""
    return pa.table(DeltaTable(f"{config.pipeline.warehouse}/{of.changes}").to_pyarrow_table())


def rows_of(frame: DataFrame, of: Changelog = WINDOWS) -> list[Row]:
    """Return rows of a snapshot or a live view as `folded` does."""
    names = of.key, f"unix_micros({of.start})", "event_count", "revision"
    return sorted(map(tuple, frame.selectExpr(*names).collect()))


def live(tables: Tables) -> list[Row]:
    return rows_of(merged_rows(tables), tables.changelog)


def slices_of_a_batch_to_come(tables: Tables) -> None:
    """Append a row of slices as a batch does that has not committed its windows yet."""
    last = tables[WINDOWS.changes].last_commit()
    assert last is not None
    batch_id = last.metadata["batch_id"] + 1
    # Of the first batch's version, after the table's creation and the first start's commit: by now all rows may be trimmed.
    rows = (
        tables[SLICES.changes]
        .read(2)
        .limit(1)
        .withColumns({name: F.lit(batch_id).cast("bigint") for name in ("batch_id", "revision", "event_count")})
    )
    metadata = {**last.metadata, "batch_id": batch_id, "commit_id": "to come"}
    tables[SLICES.changes].append(rows, "to come", batch_id, metadata)
