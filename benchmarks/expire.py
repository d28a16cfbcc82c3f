"""Expiry of one session in a hundred by tombstones, against a plain DELETE from the snapshot, in one run.

Called by `make bench-jobs`; writes a table and a JSON file. The two don't do the same: tombstones still have to pass through
the stream (not timed: the snapshot is synthetic, no stream made it), while a DELETE leaves changelog and stores as they are,
so that the sessions come back.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.compact import RESULTS, build, copied, tuned
from benchmarks.memory import peak_memory
from sessionlake.config.load import Config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.expire import expire
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

ONE_IN_A_HUNDRED = "pmod(xxhash64(session_id), 100) = 0"
UNTHROTTLED = 1 << 40
console = Console(highlight=False)


def by_job(spark: SparkSession, config: Config) -> dict[str, Any]:
    started = time.time()
    report = expire(spark, config, where=ONE_IN_A_HUNDRED, max_per_second=UNTHROTTLED)
    return {"seconds": round(time.time() - started, 2), "rows_written": report.counts["expired"]}


def by_delete(spark: SparkSession, config: Config) -> dict[str, Any]:
    tables = Tables(tuned(spark), config.pipeline.warehouse, CHANGELOG)
    started = time.time()
    tables.spark.sql(f"delete from delta.`{tables[schemas.SESSIONS].uri}` where {ONE_IN_A_HUNDRED}").collect()
    took = time.time() - started
    info = tables[schemas.SESSIONS].commit_info(tables[schemas.SESSIONS].latest_version()) or {}
    return {"seconds": round(took, 2), "rows_written": int(info["operationMetrics"]["numCopiedRows"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000_000)
    sessions = parser.parse_args().sessions
    work = Path(tempfile.mkdtemp(prefix="sessionlake-bench-"))
    spark = build_session("bench-expire", master="local[2]", shuffle_partitions=4, driver_memory="4g")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    results: dict[str, Any] = {"job": "expire", "at": at, "sessions": sessions, "cpus": os.cpu_count()}
    results |= {"machine": platform.machine(), "methods": {}}
    try:
        config = build(spark, work / "built", sessions, sessions // 100, "all")
        for name, method in (("plain DELETE", by_delete), ("expire", by_job)):
            own = copied(config, work, name.replace(" ", "-"))
            with peak_memory() as memory:
                one = method(spark, own)
            results["methods"][name] = {**one, "peak_memory_mb": memory}
            console.print(
                f"  {name:<14} {one['seconds']:>8.1f} s  {one['rows_written']:>12,} rows written  {memory['total']:,.0f} MB"
            )
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"expire-{at.replace(':', '')[:17]}.json"
        file.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"written to {file}")
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
