"""A one-day backfill of a store of many days, against computing everything anew: time, rows rewritten, peak memory.

python -m benchmarks.backfill --sessions 10_000_000 --days 20
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.memory import peak_memory
from benchmarks.synthetic import BASE_US
from sessionlake.config.load import Config, parse_config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.backfill import backfill
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import merged_rows

DAY_US = 86_400_000_000
EVENTS_PER_SESSION, FILES_PER_DAY, DAMAGED = 3, 8, 0.01
RESULTS = Path(__file__).parent / "results"


def write_days(directory: Path, sessions: int, days: int) -> None:
    """Write FILES_PER_DAY Parquet files a day, in order of time; each session has a key of its own within its day."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(7)
    per_file = sessions // (days * FILES_PER_DAY)
    span = DAY_US // FILES_PER_DAY
    for number in range(days * FILES_PER_DAY):
        start = BASE_US + number * span + rng.integers(0, span - 1_300_000_000, per_file)
        offsets = np.sort(rng.integers(0, 600_000_000, (per_file, EVENTS_PER_SESSION)), axis=1)
        at = (start[:, None] + offsets).ravel()
        key = np.repeat(rng.permutation(per_file) + (number % FILES_PER_DAY) * per_file, EVENTS_PER_SESSION)
        order = np.argsort(at)
        table = pa.table(
            {
                "key": pa.array(np.char.add("user-", key[order].astype(str))),
                "ts": pa.array(at[order]).cast(pa.timestamp("us", "UTC")),
                "amount": rng.integers(1, 100, len(at)),
            }
        )
        path = directory / f"part-{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def config_of(root: Path, warehouse: str) -> Config:
    """Return the pipeline's config: a day a batch."""
    raw: dict[str, dict[str, Any]] = {
        "pipeline": {"name": "bench", "warehouse": warehouse, "shards": 4, "store": f"{warehouse}-store"},
        "source": {"kind": "files", "path": "events", "format": "parquet", "max_files_per_batch": FILES_PER_DAY},
        "event": {"key": "key", "time": "ts"},
        "session": {"gap": "10 minutes", "grace": "30 minutes", "retention": "2 hours"},
        "aggregates": {"amount": "sum(amount)", "largest": "max(amount)"},
    }
    return parse_config(raw, root)


def damage(tables: Tables, day: int) -> int:
    """Have a user replace one in a hundred of the day's sessions by ones that count an event too many."""
    low, high = BASE_US + day * DAY_US, BASE_US + (day + 1) * DAY_US
    start = F.unix_micros("session_start")
    chosen = merged_rows(tables).where(start.between(low, high)).sample(DAMAGED, seed=1)
    put = F.array(
        F.struct(
            F.col("session_start").alias("start_time"),
            F.col("session_end").alias("end_time"),
            (F.col("event_count") + 1).alias("event_count"),
            "state",
        )
    )
    values = {
        "correction_id": F.concat(F.lit("damage/"), F.col("session_id").cast("string")),
        "kind": F.lit("replace"),
        "key": F.col("session_key"),
        "remove": F.array(F.struct(F.col("session_start").alias("start_time"), "revision")),
        "put": put,
    }
    fields = spark_schema(schemas.CORRECTIONS_SCHEMA).fields
    rows = chosen.select(*(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))
    rows.write.format("delta").mode("append").save(tables[schemas.CORRECTIONS].uri)
    return tables[schemas.CORRECTIONS].read().count()


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what the work says, with its seconds and peak memory."""
    with peak_memory(0.5) as peak:
        began = time.perf_counter()
        said = work()
        took = time.perf_counter() - began
    return {**said, "seconds": round(took, 1), "peak_mb": dict(peak)}


def bench(spark: SparkSession, root: Path, days: int) -> dict[str, Any]:
    """Build, damage, repair a day by backfill, and compute everything anew beside it."""
    config = config_of(root, "warehouse")
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    built = measured(lambda: run(spark, config, once=True).counts)
    day = days // 2
    damaged = damage(tables, day)
    run(spark, config, once=True)
    low = BASE_US + day * DAY_US
    bounds = {"from_us": low, "to_us": low + DAY_US}
    repaired = measured(lambda: backfill(spark, config, run_id="bench", **bounds).counts)
    applied = measured(lambda: run(spark, config, once=True).counts)
    again = measured(lambda: backfill(spark, config, run_id="again", **bounds).counts)
    everything = measured(lambda: run(spark, config_of(root, "anew"), bootstrap=True).counts)
    return {
        "build": built,
        "damaged": damaged,
        "backfill": repaired,
        "apply": applied,
        "backfill over right data": again,
        "full recompute": everything,
    }


def main() -> None:
    """Run and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=20)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="sessionlake-bench-"))
    spark = build_session("bench-backfill", shuffle_partitions=4, driver_memory="4g")
    try:
        write_days(root / "events", arguments.sessions, arguments.days)
        figures = {"sessions": arguments.sessions, "days": arguments.days, **bench(spark, root, arguments.days)}
    finally:
        spark.stop()
        shutil.rmtree(root)
    text = json.dumps(figures, indent=2)
    (RESULTS / f"backfill-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
