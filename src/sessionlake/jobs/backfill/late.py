"""The late events that a backfill takes in: events of earlier backfills, and waiting events in the range."""

from collections.abc import Collection
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionlake.jobs.again.restate import without_partly
from sessionlake.jobs.late.ledger import stale_puts, with_stale_marks
from sessionlake.jobs.late.spans import BACKFILL, LateRun, Span
from sessionlake.stream.recompute import INCLUDED
from sessionlake.warehouse import schemas
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables

_NOBODY = 1 << 30


def late_events(
    tables: Tables, runs: list[LateRun], asked: Span, *, in_flight: Collection[str], with_ids: bool
) -> DataFrame:
    """Return the late events up to the pinned batch, with a column `included`, without events that are in no window.

    `runs` are the runs before this one, in order. `in_flight` has the ids of backfills whose corrections no batch has
    read yet. These may become stale, so their events stay theirs, as the ledger says. Events that reprocess_late took
    are not included: its restated partials contain them. Among events with one id the one that was taken first stays,
    as in reprocess_late.
    """
    late = without_partly(tables[schemas.LATE_EVENTS].read()).where(F.col("batch_id") <= asked.batch_id)
    late = late.withColumn("_owner", F.lit(_NOBODY)) if not runs else _owned(tables, late, runs, asked.batch_id)
    backfills = [i for i, run in enumerate(runs) if run.job == BACKFILL and run.run_id not in in_flight]
    waiting = F.col("_owner") == _NOBODY
    included = (waiting & F.expr(asked.holds())) | F.col("_owner").isin(backfills)
    if not with_ids:
        return late.withColumn(INCLUDED, included).drop("_owner")
    taken = ~waiting | F.expr(asked.holds())
    order = Window.partitionBy("event_id").orderBy(
        F.desc("_taken"), "_owner", "event_time", "key", "batch_id", "source", "raw"
    )
    ranked = late.withColumn("_taken", taken).withColumn("_rank", F.row_number().over(order))
    first = F.col("event_id").isNull() | (F.col("_rank") == 1)
    return ranked.withColumn(INCLUDED, included & first).drop("_owner", "_taken", "_rank")


def _owned(tables: Tables, late: DataFrame, runs: list[LateRun], as_of: int) -> DataFrame:
    """Add the number of the first run that took an event. A run took only events of which it knew."""
    marked, marks = with_stale_marks(late, stale_puts(tables, runs, as_of))
    names = {(run.job, run.run_id): i for i, run in enumerate(runs)}
    stale = {names[run]: F.col(mark) for run, mark in marks.items()}
    owner: Column = F.lit(_NOBODY)
    for i, run in reversed(list(enumerate(runs))):
        takes = reduce(or_, (F.expr(span.holds()) for span in run.covers()), F.lit(False))
        for j, mark in stale.items():
            # A run that started before the replacement was refused left the event to it.
            takes &= mark.isNull() if j == i else (mark.isNull() | F.lit(j > i) | (mark <= run.asked.batch_id))
        owner = F.when(takes, F.lit(i)).otherwise(owner)
    return marked.withColumn("_owner", owner).select(*columns(late.columns), "_owner")
