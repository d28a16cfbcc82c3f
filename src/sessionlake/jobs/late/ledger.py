"""The ledger of late events: which events the runs of reprocess_late and backfill cover.

A run leaves out exactly the events that earlier runs cover, in the order of CLAIMS.
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.again.claims import Claims
from sessionlake.jobs.late import spans
from sessionlake.jobs.late.spans import BACKFILL, REPROCESS_LATE, WRITES, LateRun, covered
from sessionlake.warehouse import schemas
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables

COVERED = "covered"


CLAIMS = Claims(WRITES, LateRun)
"""The order of the runs that cover late events."""


def mark_covered(tables: Tables, late: DataFrame, runs: Iterable[LateRun], as_of: int) -> DataFrame:
    """Add to late events the column `covered`: by one of the runs, given in their order, as known at a batch.

    An event in a put of a replace correction that went stale is not covered by the backfill that wrote it.
    """
    runs = list(runs)
    stale = stale_puts(tables, runs, as_of)
    marked, marks = with_stale_marks(late, stale) if stale else (late, {})
    return marked.withColumn(COVERED, F.expr(covered(runs, marks))).select(*columns(late.columns), COVERED)


def with_stale_marks(
    late: DataFrame, stale: Mapping[tuple[str, str], DataFrame]
) -> tuple[DataFrame, dict[tuple[str, str], str]]:
    """Join late events with `stale_puts`; return with them, by run, the column that has the batch which refused its put there."""
    time = F.unix_micros("event_time")
    for i, puts in enumerate(stale.values()):
        # The columns get separate names: the frames share one origin, and Spark could not distinguish their columns.
        names = [f"{name}_{i}" for name in ("_key", "_from", "_to", "_stale_at")]
        # A backfill's puts of a key never overlap, so no row is joined twice.
        near = (F.col("key") == F.col(names[0])) & time.between(F.col(names[1]), F.col(names[2]))
        late = late.join(puts.toDF(*names), near, "left")
    return late, {run: f"_stale_at_{i}" for i, run in enumerate(stale)}


def stale_puts(tables: Tables, runs: list[LateRun], as_of: int) -> dict[tuple[str, str], DataFrame]:
    """Return, for each backfill with stale replacements, their puts: put_key, from_us, to_us, stale_at."""
    backfills = [run for run in runs if run.job == BACKFILL and run.covers()]
    if not backfills:
        return {}
    written, outcomes = (tables[name].sql_name() for name in (schemas.CORRECTIONS, schemas.CORRECTION_OUTCOMES))
    puts = tables.spark.sql(spans.stale_puts(SPARK, written, f"({spans.refused(outcomes)})", as_of))
    ids = {row.run_id for row in puts.select("run_id").distinct().collect()}
    return {
        (run.job, run.run_id): puts.where(F.col("run_id") == run.run_id).drop("run_id")
        for run in backfills
        if run.run_id in ids
    }


def expired_by_runs(dead_letters: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the late events that runs of reprocess_late found expired; by default all runs."""
    rows = dead_letters.where(spans.EXPIRED_BY_RUNS)
    return rows if run_id is None else rows.where(F.col("commit_id") == run_id)


def restated_by_runs(corrections: DataFrame, run_id: str | None = None) -> DataFrame:
    """Return the corrections of reprocess_late; by default of all runs."""
    ours: Column = F.col("job") == REPROCESS_LATE
    return corrections.where(ours if run_id is None else ours & (F.col("run_id") == run_id))
