"""Compaction and erasure where few sessions lie on many dates: files and seconds.

    python -m benchmarks.sparse [--sessions N] [--dates N]

A pipeline reads sessions spread evenly over dates and is compacted, then once more after new ones on the dates that
follow; then one key, of twenty sessions, is forgotten. Writes a JSON file.
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
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.compact import DAY_US, RESULTS, make_config
from benchmarks.synthetic import BASE_US
from sessionlake.engine.spark import build_session
from sessionlake.jobs.compact import compact, layout
from sessionlake.jobs.forget import forget
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables

SESSIONS_PER_KEY = 20
NEW_SHARE = 50
"""One session in so many comes after the first compaction."""
console = Console(highlight=False)


def write_events(file: Path, sessions: range, of: int, dates: int) -> None:
    """Write sessions of two events as JSON lines, in order of time."""
    rng = np.random.default_rng(len(sessions))
    lines = []
    for number in sessions:
        start = BASE_US + (number * dates // of - dates) * DAY_US + number % 1000 * 60_000_000
        key = f"user-{rng.integers(of // SESSIONS_PER_KEY)}"
        lines += [json.dumps({"key": key, "time_us": start + us, "v": number}) for us in (0, 5_000_000)]
    file.write_text("\n".join(lines) + "\n")


def measured(spark: SparkSession, root: Path, sessions: int, dates: int) -> dict[str, Any]:
    (root / "events").mkdir(parents=True)
    config = make_config(root)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    found: dict[str, Any] = {"sessions": sessions, "dates": dates, "steps": []}

    def step(name: str, action: Callable[[], Any]) -> None:
        started = time.time()
        counts = getattr(action(), "counts", {})
        seconds, (files, size) = round(time.time() - started, 1), layout.size(tables[schemas.SESSIONS])
        of_interest = {name: counts[name] for name in ("tombstones", "files", "found") if name in counts}
        found["steps"].append({"step": name, "seconds": seconds, "snapshot_files": files, "snapshot_mb": size / 1e6})
        console.print(f"  {name:<10} {seconds:>6.1f} s  snapshot: {files} files, {size / 1e6:.2f} MB  {of_interest}")

    old = sessions - sessions // NEW_SHARE
    for number, part in enumerate((range(old), range(old, sessions))):
        write_events(root / "events" / f"{number}.json", part, sessions, dates)
        run(spark, config, once=True)
        step(f"compact {number + 1}", lambda: compact(spark, config))
    step("forget", lambda: forget(spark, config, ["user-1"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=13_344)
    parser.add_argument("--dates", type=int, default=3_500)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="sessionlake-bench-"))
    spark = build_session("bench-sparse", master="local[2]", shuffle_partitions=4, driver_memory="2g")
    results: dict[str, Any] = {"job": "sparse", "at": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        results |= {"cpus": os.cpu_count(), **measured(spark, work, arguments.sessions, arguments.dates)}
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"sparse-{results['at'].replace(':', '')[:17]}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {file}")


if __name__ == "__main__":
    main()
