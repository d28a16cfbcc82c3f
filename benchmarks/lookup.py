"""`make bench-lookup`: the sessions of one key of many in SQL, by a Spark session that is warm and without Spark.

    python -m benchmarks.lookup [--quick] [--sessions 10000000]

A real pipeline takes in one event for each session, of 30 dates; each key has sessions on five of them. All but the last two dates are folded
into the snapshot by `compact`, as it does that every day; the last two are in the changelog. A look-up is
`read_sessions(spark, config).where("session_key = ...")` with all its columns, from making the frame to its rows, of keys that nobody asked for
before. Bytes are those that Hadoop's file systems read in the JVM, Delta's logs included, against all of both tables' files. Writes a JSON
file to benchmarks/results/.
"""

import argparse
import json
import os
import platform
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
from rich.console import Console

from benchmarks.sizing import table_bytes
from benchmarks.synthetic import BASE_US
from sessionlake import read_sessions
from sessionlake.config.load import Config, parse_config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.compact import compact
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.serve.queries import find_rows
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

DATES, UNFOLDED, A_KEY = 30, 2, 5
DAY_US = 86_400_000_000
WARM, LOOKUPS = 5, 20
RESULTS = Path(__file__).parent / "results"
console = Console(highlight=False)


def make_config(root: Path) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "lookup", "warehouse": "warehouse", "shards": 2},
            "source": {"kind": "files", "path": "events", "format": "parquet", "max_files_per_batch": 1},
            "event": {"key": "key", "time": "ts"},
            "session": {"gap": "30 minutes", "grace": "2 hours", "retention": "1 day"},
            "aggregates": {"total": "sum(amount)"},
        },
        root,
    )


def write_date(root: Path, date: int, sessions: int) -> None:
    """Write a file of events, each of another key: of every sixth key of all, from one that the date gives."""
    (root / "events").mkdir(exist_ok=True)
    every = DATES // A_KEY
    users = np.arange(date % every, sessions // A_KEY, every)
    times = BASE_US + date * DAY_US + np.arange(len(users)) * (DAY_US // len(users))
    columns = {
        "key": pa.array(np.char.add("user-", users.astype(str))),
        "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array(users % 100),
    }
    pq.write_table(pa.table(columns), root / "events" / f"{date:05d}.parquet")


def bytes_read(spark: SparkSession) -> int:
    """Return how many bytes the JVM has read from all file systems so far."""
    statistics = spark._jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()  # type: ignore[union-attr]  # noqa: SLF001 (no other way)
    return sum(one.getBytesRead() for one in statistics)


def timed(look_up: Callable[[str], int], keys: list[str]) -> dict[str, float]:
    """Look keys up one after the other; return milliseconds."""
    took = []
    for key in keys:
        begun = time.perf_counter()
        if look_up(key) != A_KEY:
            raise SystemExit(f"{key}: has not {A_KEY} sessions")
        took.append((time.perf_counter() - begun) * 1e3)
    p50, most = np.percentile(took, [50, 100])
    return {"p50_ms": round(float(p50), 1), "most_ms": round(float(most), 1)}


def measure(spark: SparkSession, root: Path, sessions: int) -> dict[str, Any]:
    config = make_config(root)
    begun = time.time()
    for dates in (range(DATES - UNFOLDED), range(DATES - UNFOLDED, DATES)):
        for date in dates:
            write_date(root, date, sessions)
        run(spark, config, once=True)
        if dates[0] == 0:
            compact(spark, config)
    built_s = time.time() - begun
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    every = sum(table_bytes(spark, tables, name) for name in (schemas.SESSIONS, schemas.CHANGELOG))
    rng = np.random.default_rng(7)
    keys = [f"user-{n}" for n in rng.choice(sessions // A_KEY, 2 * (WARM + LOOKUPS), replace=False)]

    def by_spark(key: str) -> int:
        return len(read_sessions(spark, config).where(f"session_key = '{key}'").collect())

    def by_duckdb(key: str) -> int:
        return len(find_rows(config, key, None, None, 1000)[1])

    found: dict[str, Any] = {"sessions": sessions, "built_s": round(built_s, 1), "bytes": every}
    for name, look_up in (("warm Spark", by_spark), ("without Spark", by_duckdb)):
        asked, keys = keys[: WARM + LOOKUPS], keys[WARM + LOOKUPS :]
        timed(look_up, asked[:WARM])
        before = bytes_read(spark)
        found[name] = timed(look_up, asked[WARM:])
        if look_up is by_spark:
            read = (bytes_read(spark) - before) / LOOKUPS
            found[name] |= {"bytes_read": round(read), "share_read": round(read / every, 5)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sessions")
    parser.add_argument("--sessions", type=int, default=10_000_000)
    asked = parser.parse_args()
    spark = build_session("bench-lookup", master="local[2]", shuffle_partitions=2, driver_memory="3g")
    try:
        with tempfile.TemporaryDirectory(prefix="sessionlake-lookup-") as root:
            found = measure(spark, Path(root), asked.sessions // 10 if asked.quick else asked.sessions)
    finally:
        spark.stop()
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()}
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"lookup-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps({"at": datetime.now(UTC).isoformat(), "machine": machine, **found}, indent=1) + "\n")
    console.print(f"{json.dumps(found)} {target}")


if __name__ == "__main__":
    main()
