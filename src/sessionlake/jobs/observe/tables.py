"""Metrics that the tables tell, also while no stream runs."""

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake import metrics, schemas
from sessionlake.config import Config
from sessionlake.jobs.compact.layout import size
from sessionlake.jobs.observe.counts import count_values
from sessionlake.jobs.status import Status, read_status, store_bytes
from sessionlake.readings import Readings
from sessionlake.tables import Tables
from sessionlake.views import fold_point, read_batches

_REASONS = 30


@dataclass(frozen=True)
class TablesState:
    """What the tables of a pipeline say at one moment."""

    status: Status
    batches: int
    unfolded_batches: int
    unfolded_changes: int
    unfolded_since_us: int | None
    """Commit of the first batch that compaction has not folded yet; None where all are."""
    dead_letters: dict[str, int]
    sizes: dict[str, tuple[int, int]]
    """Files and bytes by table."""
    started_us: dict[str, int]
    finished_us: dict[str, int]
    """Of each job, when its last run started, and when one last came to its end."""
    failed_checks: dict[tuple[str, str], int]
    """By table and severity, of the last run of quality; also those of which none failed."""


def read_state(spark: SparkSession, config: Config) -> TablesState:
    """Return what the tables say now; PipelineStateError where there are no batches yet."""
    status = read_status(spark, config)
    tables = Tables(spark, config.pipeline.warehouse)
    fold = fold_point(tables)
    rest = F.col("batch_id") > (-1 if fold is None else fold)
    found = (
        read_batches(tables)
        .agg(
            F.count(F.lit(1)),
            F.count_if(rest),
            F.sum(F.when(rest, F.col("upserts") + F.col("deletes"))),
            F.min(F.when(rest, F.unix_micros("committed_at"))),
        )
        .collect()[0]
    )
    runs = _last_runs(tables)
    return TablesState(
        status=status,
        batches=found[0],
        unfolded_batches=found[1],
        unfolded_changes=found[2] or 0,
        unfolded_since_us=found[3],
        dead_letters=_by_reason(tables.read(schemas.DEAD_LETTERS)),
        sizes={name: size(tables, name) for name in schemas.TABLES if tables.exists(name)},
        started_us=runs.get("started", {}),
        finished_us=runs.get("finished", {}),
        failed_checks=_failed_checks(tables),
    )


def _by_reason(dead_letters: DataFrame) -> dict[str, int]:
    """Count rows by what stands before the value that a reason quotes: a label must not take a value from the data."""
    kinds = dead_letters.groupBy(F.split_part("reason", F.lit(":"), F.lit(1)).alias("kind")).agg(
        F.count(F.lit(1)).alias("n")
    )
    rows = kinds.orderBy(F.desc("n"), "kind").limit(_REASONS).collect()
    return {row["kind"] or "none": row["n"] for row in rows}


def _last_runs(tables: Tables) -> dict[str, dict[str, int]]:
    """Return, by event and job, the time of the last one."""
    found: dict[str, dict[str, int]] = {}
    if tables.exists(schemas.JOB_RUNS):
        last = tables.read(schemas.JOB_RUNS).groupBy("event", "job").agg(F.max(F.unix_micros("at")).alias("at"))
        for row in last.collect():
            found.setdefault(row["event"], {})[row["job"]] = row["at"]
    return found


def _failed_checks(tables: Tables) -> dict[tuple[str, str], int]:
    if not tables.exists(schemas.QUALITY_RESULTS):
        return {}
    results = tables.read(schemas.QUALITY_RESULTS)
    last = results.agg(F.max_by("run_id", "at")).collect()[0][0]
    failed = (
        results.where(F.col("run_id") == last)
        .groupBy("table", "severity")
        .agg(F.count_if(~F.col("success")).alias("n"))
    )
    return {(row["table"], row["severity"]): row["n"] for row in failed.collect()}


def readings_of(config: Config, state: TablesState) -> Readings:
    """Return the metrics of a state, as of now."""
    status, readings = state.status, Readings(config.pipeline.name)
    readings.set(metrics.BATCHES, state.batches)
    for metric, value, labels in count_values(status.counts):
        readings.set(metric, value, *labels)
    if status.watermark_us is not None:
        readings.set(metrics.WATERMARK, status.watermark_us / 1e6)
    readings.set(metrics.LAST_COMMIT, status.committed_us / 1e6)
    readings.set(metrics.STORE_BYTES, store_bytes(config))
    readings.set(metrics.RECONCILES, int(status.reconciles))
    for name in ("reprocessed", "expired", "waiting"):
        readings.set(metrics.LATE_EVENTS, getattr(status.late, name), name)
    for reason, rows in state.dead_letters.items():
        readings.set(metrics.DEAD_LETTERS, rows, reason)
    since = state.unfolded_since_us
    readings.set(metrics.SNAPSHOT, time.time() if since is None else since / 1e6)
    readings.set(metrics.UNFOLDED_BATCHES, state.unfolded_batches)
    readings.set(metrics.UNFOLDED_CHANGES, state.unfolded_changes)
    for table, (files, bytes_) in state.sizes.items():
        readings.set(metrics.TABLE_FILES, files, table)
        readings.set(metrics.TABLE_BYTES, bytes_, table)
    for metric, times in ((metrics.JOB_START, state.started_us), (metrics.JOB_SUCCESS, state.finished_us)):
        for job, at_us in times.items():
            readings.set(metric, at_us / 1e6, job)
    for (table, severity), failed in state.failed_checks.items():
        readings.set(metrics.FAILED_CHECKS, failed, table, severity)
    return readings
