"""The demo's second half: all scheduled jobs, one after the other, on the sessions that the stream made."""

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from sessionlake.config.load import Config
from sessionlake.config.times import parse_time
from sessionlake.extras import has_module
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.run import JobReport
from sessionlake.warehouse import schemas

EXPIRED = "session_end < timestamp '2018-01-01'"


def run_jobs(spark: SparkSession, config: Config, root: Path, console: Console) -> None:
    """Run backfill, reprocess-late, expire, compact and quality, and show what each did."""
    year = _year_of_most_late_events(spark)
    first, last = parse_time(f"{year}-01-01"), parse_time(f"{year + 1}-01-01")
    table = Table("job", "what for", "what it did", "seconds", title="the scheduled jobs", title_justify="left")
    jobs: list[tuple[str, str, Callable[[], JobReport]]] = [
        (
            f"backfill of {year}",
            "late events of any age, from the files again",
            lambda: backfill(spark, config, from_us=first, to_us=last),
        ),
        (
            "reprocess-late",
            "late events of the last 365 days join their sessions; older ones are dead letters now",
            lambda: reprocess_late(spark, config),
        ),
        ("expire", f"Pattern 7: {EXPIRED}", lambda: expire(spark, config, where=EXPIRED, max_share=1)),
        ("compact", "the changelog becomes the snapshot", lambda: compact(spark, config)),
    ]
    if has_module("great_expectations"):
        jobs.append(("quality", "Great Expectations over all tables", lambda: _check(spark, config, root)))
    for name, purpose, job in jobs:
        with console.status(name):
            started = time.monotonic()
            report = job()
            if name.split()[0] in ("backfill", "reprocess-late", "expire"):
                apply_corrections(spark, config)
            table.add_row(name, purpose, _said(report), f"{time.monotonic() - started:.1f}")
    console.print(table)
    if not has_module("great_expectations"):
        console.print("without the job quality: pip install 'sessionlake[quality]', and the demo runs it too")


def _check(spark: SparkSession, config: Config, root: Path) -> JobReport:
    # Great Expectations is one of the extras.
    from sessionlake.quality.run import run_quality  # noqa: PLC0415

    return run_quality(spark, config, data_docs=root / "quality")


def _year_of_most_late_events(spark: SparkSession) -> int:
    late = spark.table(schemas.LATE_EVENTS)
    return int(
        late.selectExpr("year(event_time) y").groupBy("y").count().orderBy("count", ascending=False).collect()[0].y
    )


def _said(report: JobReport) -> str:
    # compact counts files and bytes of every table, before and after.
    told = {name: value for name, value in report.counts.items() if not name.endswith(("_before", "_after"))}
    return ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in told.items() if value)
