"""What the quality job costs on 10M sessions, against one scan of them: python -m benchmarks.quality [--sessions N].

The scan reads every column of sessions_live, and does nothing with it. Called by `make bench-jobs`.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.compact import build
from benchmarks.memory import peak_memory
from sessionlake.config.load import Config
from sessionlake.engine.spark import build_session
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.quality.context import open_context, validate
from sessionlake.quality.frames import Inputs, frames_of, pin
from sessionlake.quality.run import run_quality
from sessionlake.quality.suites import load_suite, parameters
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

RESULTS = Path(__file__).parent / "results"
SCAN, ROUNDS = "scan of sessions_live", 3


def seconds(work: Callable[[], Any]) -> float:
    """Return how long the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measures(spark: SparkSession, config: Config, docs: Path) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name; all of it at the same versions but for the whole jobs, which pin the same ones."""
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    inputs = Inputs(tables, config, pin(tables), time.time_ns() // 1000)
    versions = inputs.pinned["versions"]
    context = open_context(docs)

    def scan() -> None:
        live = merged_rows(
            tables, snapshot_version=versions[schemas.SESSIONS], changelog_version=versions[schemas.CHANGELOG]
        )
        live.write.format("noop").mode("overwrite").save()

    def checks(table: str) -> None:
        checked = frames_of(inputs.of)[table](inputs)
        suite = load_suite(config, table, {**parameters(inputs), "columns": checked.columns})
        validate(context, suite, checked.frame, "bench", inputs.now_us)

    return {
        SCAN: scan,
        "checks of sessions": lambda: checks(schemas.SESSIONS),
        "checks of session_changelog": lambda: checks(schemas.CHANGELOG),
        "whole job on sessions": lambda: run_quality(spark, config, only=[schemas.SESSIONS], data_docs=docs),
        "whole job on all tables": lambda: run_quality(spark, config, data_docs=docs),
    }


def bench(spark: SparkSession, root: Path, sessions: int, changed: int) -> dict[str, Any]:
    """Build the tables, then take each measure ROUNDS times in turn, after one round to warm up."""
    config = build(spark, root, sessions, changed, "recent")
    times: dict[str, list[float]] = {}
    with peak_memory(0.5) as peak:
        for _ in range(ROUNDS + 1):
            for name, work in measures(spark, config, root / "docs").items():
                times.setdefault(name, []).append(seconds(work))
    medians = {name: round(statistics.median(found[1:]), 2) for name, found in times.items()}
    return {
        "sessions": sessions,
        "changed": changed,
        "seconds": medians,
        "scans": {name: round(value / medians[SCAN], 2) for name, value in medians.items()},
        "peak_mb": dict(peak),
    }


def main() -> None:
    """Run; print and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000_000)
    parser.add_argument("--changed", type=int, default=400_000)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-quality-", dir="."))
    spark = build_session("bench", master="local[2]", shuffle_partitions=4, driver_memory="4g")
    try:
        figures = bench(spark, root.resolve(), arguments.sessions, arguments.changed)
    finally:
        spark.stop()
        shutil.rmtree(root)
    text = json.dumps(figures, indent=2)
    (RESULTS / f"quality-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
