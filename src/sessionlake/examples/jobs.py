"""The demo's second half: all scheduled jobs, one after the other, on the sessions that the stream made."""

import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from sessionlake.cli.progress import Progress, progress
from sessionlake.config.load import Config
from sessionlake.config.times import parse_time
from sessionlake.extras import has_module
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.run import JobReport, OnStep
from sessionlake.warehouse import schemas

EXPIRED = "session_end < timestamp '2018-01-01'"


def run_jobs(spark: SparkSession, config: Config, console: Console) -> None:
    """Run backfill, reprocess-late, expire, compact and quality, and show the result of each."""
    year = _year_of_most_late_events(spark)
    first, last = parse_time(f"{year}-01-01"), parse_time(f"{year + 1}-01-01")
    table = Table("job", "what for", "what it did", "seconds", title="the scheduled jobs", title_justify="left")
    jobs: list[tuple[str, str, Callable[[OnStep], JobReport]]] = [
        (
            f"backfill of {year}",
            "late events of any age, from the archive",
            lambda step: backfill(spark, config, from_us=first, to_us=last, on_step=step),
        ),
        (
            "reprocess-late",
            "late events of the last 365 days join their sessions; older ones are dead letters now",
            lambda step: reprocess_late(spark, config, on_step=step),
        ),
        (
            "expire",
            f"Pattern 7: {EXPIRED}",
            lambda step: expire(spark, config, where=EXPIRED, max_share=1, on_step=step),
        ),
        ("compact", "the changelog becomes the snapshot", lambda step: compact(spark, config, on_step=step)),
    ]
    if has_module("great_expectations"):
        jobs.append(("quality", "Great Expectations over all tables", lambda step: _check(spark, config, step)))
    for name, purpose, job in jobs:
        with progress() as shown:
            started = time.monotonic()
            report = job(partial(_step, shown, name))
            if name.split()[0] in ("backfill", "reprocess-late", "expire"):
                apply_corrections(spark, config)
            table.add_row(name, purpose, _said(report), f"{time.monotonic() - started:.1f}")
    console.print(table)
    if not has_module("great_expectations"):
        console.print("without the job quality: pip install 'sessionlake[quality]', and the demo runs it too")


def _step(shown: Progress, name: str, what: str) -> None:
    shown.step(f"{name}: {what}")


def _check(spark: SparkSession, config: Config, on_step: OnStep) -> JobReport:
    # Great Expectations is one of the extras.
    from sessionlake.quality.run import run_quality  # noqa: PLC0415

    return run_quality(spark, config, on_step=on_step)


def _year_of_most_late_events(spark: SparkSession) -> int:
    late = spark.table(schemas.LATE_EVENTS)
    return int(
        late.selectExpr("year(event_time) y").groupBy("y").count().orderBy("count", ascending=False).collect()[0].y
    )


def _said(report: JobReport) -> str:
    # compact counts files and bytes of every table, before and after.
    told = {name: value for name, value in report.counts.items() if not name.endswith(("_before", "_after"))}
    return ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in told.items() if value)
