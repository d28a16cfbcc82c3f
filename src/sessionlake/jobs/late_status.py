"""What became of the late events: late == reprocessed + expired + waiting."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.jobs.late_ledger import BACKFILL, COVERED, REPROCESS_LATE, mark_covered, read_runs
from sessionlake.tables import Tables


@dataclass(frozen=True)
class LateStatus:
    """The late events of the committed batches."""

    events: int
    reprocessed: int
    """Restated, twins of restated ones, or part of a backfill."""
    expired: int
    """In dead_letters: older than retention when a run found them, or when the sessionizer took their correction."""
    waiting: int
    reconciles: bool
    """The ledger, the corrections and the dead letters tell the same numbers."""


def read_late_status(tables: Tables, batch_id: int, *, with_ids: bool) -> LateStatus:
    """Return the late events' status as of a batch; `with_ids` says that twins are recognised."""
    runs = read_runs(tables)
    late = mark_covered(tables, tables.read(schemas.LATE_EVENTS).where(F.col("batch_id") <= batch_id), runs, batch_id)
    row = late.agg(F.count("*"), F.count_if(COVERED)).head()
    events, covered = (0, 0) if row is None else (row[0], row[1])
    buried = expired_by_runs(tables.read(schemas.DEAD_LETTERS)).count()
    written = restated_by_runs(tables.read(schemas.CORRECTIONS))
    refused = tables.read(schemas.DEAD_LETTERS).where("kind = 'restate'").select(F.col("source").alias("correction_id"))
    restated = _sum(written, "event_count")
    lost = _sum(written.join(refused, "correction_id", "left_semi"), "event_count")
    left = covered - buried - restated
    exact = not with_ids and not any(run.job == BACKFILL for run in runs)
    return LateStatus(
        events=events,
        reprocessed=covered - buried - lost,
        expired=buried + lost,
        waiting=events - covered,
        reconciles=left == 0 if exact else left >= 0,
    )


def expired_by_runs(dead_letters: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the late events that runs of reprocess_late, or one of them, found expired."""
    rows = dead_letters.where("batch_id is null and kind = 'event' and reason = 'expired'")
    return rows if run_id is None else rows.where(F.col("commit_id") == run_id)


def restated_by_runs(corrections: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the corrections of runs of reprocess_late, or of one of them."""
    ours: Column = F.col("job") == REPROCESS_LATE
    return corrections.where(ours if run_id is None else ours & (F.col("run_id") == run_id))


def _sum(rows: DataFrame, column: str) -> int:
    row = rows.agg(F.sum(column)).head()
    return 0 if row is None or row[0] is None else int(row[0])
