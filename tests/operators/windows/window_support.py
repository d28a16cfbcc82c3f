"""Pipelines of windows on Spark."""

import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config, parse_config
from sessionlake.operators.windows.kind import Windows
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

Row = dict[str, Any]
SIZE, OFFSET, GRACE, RETENTION = 10, 3, 40, 60


def window_config(
    root: Path, *, shards: int = 2, emit: Row | None = None, archive: bool = True, **window: Any
) -> Config:
    (root / "events").mkdir(exist_ok=True)
    section = {"kind": "tumbling", "size": f"{SIZE} us", "offset": f"{OFFSET} us", "grace": f"{GRACE} us"}
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": shards, "archive": archive},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "window": {
            name: value
            for name, value in {**section, "retention": f"{RETENTION} us", **window}.items()
            if value is not None
        },
        "emit": {} if emit is None else emit,
        "aggregates": {"total": "sum(v)", "n": "count()"},
    }
    return parse_config(raw, root)


def events(seed: int, files: int, rows: int) -> list[list[Row]]:
    """Return files of events that go on in time, some far behind."""
    rng, found = random.Random(seed), []
    for number in range(files):
        times = [number * 12 + rng.choice([0, 3, 7, 12, -9, -25, -45, -55, -80]) + 200 for _ in range(rows)]
        found.append([{"key": rng.choice("abc"), "time_us": t, "v": rng.randint(-5, 5)} for t in times])
    return found


def tables_of(spark: SparkSession, config: Config) -> Tables:
    return Tables(spark, config.pipeline.warehouse, Windows.changelog)


def windows(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    """Return the last row sent of each window."""
    times = (F.unix_micros("window_start"), F.unix_micros("window_end"))
    rows = merged_rows(tables_of(spark, config)).select("window_key", *times, "event_count", "total")
    return sorted(tuple(row) for row in rows.collect())


KINDS: dict[str, Row] = {
    "tumbling": {"kind": "tumbling"},
    "hopping": {"kind": "hopping", "advance": "4 us"},
    "sliding": {"kind": "sliding", "offset": None},
}
UPDATES = {"early": "batch", "late": "batch"}
