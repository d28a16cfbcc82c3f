"""What the quality job costs on sessions_live, against one scan of it: make the table with the sessionizer, then time both.

Run from the root: python -m benchmarks.quality [EVENTS] [DIRECTORY]; five events make a session.
"""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.synthetic import write_events
from sessionlake import schemas
from sessionlake.config import Config, parse_config
from sessionlake.engine.spark import build_session
from sessionlake.jobs.quality.context import open_context, validate
from sessionlake.jobs.quality.frames import FRAMES, Inputs, pin
from sessionlake.jobs.quality.parameters import parameters
from sessionlake.jobs.quality.run import run_quality
from sessionlake.jobs.quality.suites import load_suite
from sessionlake.jobs.sessionizer.run import run
from sessionlake.tables import Tables
from sessionlake.views import merged_sessions

BATCHES, TAIL = 5, 1
"""The last batch stays in the changelog; the others are folded into the snapshot."""
RESULTS = Path(__file__).parent / "results"
ROUNDS = 5


def config_of(root: Path) -> Config:
    raw: dict[str, Any] = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 4},
        "source": {"kind": "files", "path": "events", "format": "parquet", "max_files_per_batch": 4},
        "event": {"key": "key", "time": "ts", "max_future_skew": "365 days"},
        "session": {"gap": "30 minutes", "grace": "3 hours", "retention": "1 day"},
        "aggregates": {"total": "sum(amount)", "last_page": "last(page)"},
        "quality": {"aggregates": {"total": {"range": [1, 1e6], "mean": [1, 1e5], "quantiles": {"0.99": [1, 1e6]}}}},
    }
    return parse_config(raw, root)


def build(spark: SparkSession, root: Path, events: int) -> Config:
    """Sessionize the first batches, fold them into the snapshot and empty the changelog; then the last batch."""
    staged = root / "staged"
    write_events(staged, BATCHES, events // BATCHES, events // 12, 4)
    files = sorted(staged.iterdir())
    config = config_of(root)
    target = root / "events"
    target.mkdir()
    for file in files[: -4 * TAIL]:
        file.rename(target / file.name)
    run(spark, config, once=True)
    tables = Tables(spark, config.pipeline.warehouse)
    merged_sessions(tables).write.format("delta").mode("append").save(tables.path(schemas.SESSIONS))
    spark.sql(f"delete from delta.`{tables.path(schemas.CHANGELOG)}`")  # noqa: S608 (our own path)
    for file in files[-4 * TAIL :]:
        file.rename(target / file.name)
    run(spark, config, once=True)
    return config


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(events: int, root: Path) -> None:
    spark = build_session("bench", master="local[2]", shuffle_partitions=4, driver_memory="6g")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    config = build(spark, root, events)
    tables = Tables(spark, config.pipeline.warehouse)
    inputs = Inputs(tables, config, pin(tables), time.time_ns() // 1000)
    versions = inputs.pinned["versions"]
    context = open_context(root / "docs")

    def scan() -> None:
        live = merged_sessions(
            tables, snapshot_version=versions[schemas.SESSIONS], changelog_version=versions[schemas.CHANGELOG]
        )
        live.agg(F.count("*"), F.sum("event_count"), F.sum("total")).collect()

    def checks(table: str) -> None:
        checked = FRAMES[table](inputs)
        suite = load_suite(config, table, {**parameters(inputs), "columns": checked.columns})
        validate(context, suite, checked.frame, "bench", inputs.now_us)

    measures: dict[str, Callable[[], Any]] = {
        "scan of sessions_live": scan,
        "checks of sessions": lambda: checks(schemas.SESSIONS),
        "checks of session_changelog": lambda: checks(schemas.CHANGELOG),
        "whole job on sessions": lambda: run_quality(spark, config, only=[schemas.SESSIONS], data_docs=root / "docs"),
        "whole job on all tables": lambda: run_quality(spark, config, data_docs=root / "docs"),
    }
    times: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(ROUNDS + 1):
        for name, work in measures.items():
            times[name].append(seconds(work))
    medians = {name: round(statistics.median(found[1:]), 2) for name, found in times.items()}
    report = run_quality(spark, config, dry_run=True)
    rows = merged_sessions(tables).count()
    one = medians["scan of sessions_live"]
    print(
        f"{rows:,} sessions, {tables.read(schemas.CHANGELOG).count():,} changes in the changelog; median of {ROUNDS}, after one to warm up"
    )
    for name, value in medians.items():
        print(f"{name:<30}{value:>8.2f} s{value / one:>8.2f} scans")
    print(report.counts, *report.notes, sep="\n")
    result = {"sessions": rows, "seconds": medians, "scans": {n: round(v / one, 2) for n, v in medians.items()}}
    target = RESULTS / f"quality-{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000,
        Path(sys.argv[2] if len(sys.argv) > 2 else "bench-quality"),
    )
