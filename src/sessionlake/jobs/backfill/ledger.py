"""The corrections that batches took, the late events that a backfill takes in, and the keys that were erased."""

import json
from collections.abc import Collection
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionlake.columnar.records import UNTIL
from sessionlake.jobs.again.restate import without_partly
from sessionlake.jobs.late.ledger import stale_puts, with_stale_marks
from sessionlake.jobs.late.spans import BACKFILL, LateRun, Span
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.recompute import INCLUDED
from sessionlake.warehouse import schemas
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables


def taken_corrections(tables: Tables, inputs: list[BatchInputs]) -> DataFrame:
    """Return the outcome of each correction that the batches took, from topics too: correction_id, outcome, batch_id."""
    outcomes = tables[schemas.CORRECTION_OUTCOMES].read().select("correction_id", "outcome", BATCH)
    return outcomes.where(F.col(BATCH) <= inputs[-1].batch_id)


def applied_corrections(tables: Tables, taken: DataFrame, up_to: int) -> DataFrame:
    """Return the corrections that took effect, a topic's up to a batch too, with the batch that took them.

    `taken` is that of `taken_corrections`.
    """
    corrections = tables[schemas.CORRECTIONS].read()
    topical = topic_tombstones(tables, up_to)
    if topical is not None:
        corrections = corrections.unionByName(topical.drop(BATCH), allowMissingColumns=True)
    # One row an id, even if an id was used twice: else each correction would come with the batches of all.
    applied = taken.where(F.col("outcome") == schemas.APPLIED).groupBy("correction_id").agg(F.min(BATCH).alias(BATCH))
    return corrections.join(applied, "correction_id")


def topic_tombstones(tables: Tables, up_to: int) -> DataFrame | None:
    """Return the tombstones that batches, up to `up_to`, read from the topic, as corrections; None if there is no archive."""
    if not tables[schemas.TOPIC_TOMBSTONES].exists():
        return None
    rows = tables[schemas.TOPIC_TOMBSTONES].read().where((F.col(BATCH) <= up_to) & (F.col("correction_id") != TTL))
    return rows.drop("commit_id").withColumn("kind", F.lit("tombstone"))


def backfills_in_flight(tables: Tables, taken: DataFrame) -> set[str]:
    """Return the run_ids of backfills with corrections that no batch has taken; `taken` is that of `taken_corrections`."""
    written = tables[schemas.CORRECTIONS].read().where("job = 'backfill'")
    waiting = written.join(taken, "correction_id", "left_anti")
    return {row[0] for row in waiting.select("run_id").distinct().collect()}


def restates(corrections: DataFrame) -> DataFrame:
    """Return restated partials: key, start_us, end_us, event_count, state, batch_id, and until_us and layout if corrections have them.

    Corrections that only send windows again are left out.
    """
    more: list[Column | str] = []
    if schemas.OPEN_UNTIL in corrections.columns:
        more.append(F.unix_micros(schemas.OPEN_UNTIL).alias(UNTIL))
    if schemas.LAYOUT in corrections.columns:
        more.append(schemas.LAYOUT)
    return corrections.where("kind = 'restate' and event_count > 0").select(
        F.col("key").alias("key"),
        F.unix_micros("start_time").alias("start_us"),
        # A part of a slice is named by any time in it.
        F.unix_micros(F.coalesce("end_time", "start_time")).alias("end_us"),
        "event_count",
        "state",
        BATCH,
        *more,
    )


def forgotten_keys(tables: Tables, inputs: list[BatchInputs]) -> dict[str, int]:
    """Return SHA-256 of each key that `forget` erased, with the last batch whose events must not come back.

    That is the last batch that began before the run finished; if the run has not finished, the newest batch.
    """
    if not tables[schemas.JOB_RUNS].exists():
        return {}
    runs = tables[schemas.JOB_RUNS].read().where("job = 'forget'")
    at = F.max(F.when(F.col("event") == "finished", F.unix_micros("at")))
    found: dict[str, int] = {}
    asked = F.max(F.when(F.col("event") == "started", F.col("arguments")))
    for row in runs.groupBy("run_id").agg(at.alias("at"), asked.alias("arguments")).collect():
        began = [i.batch_id for i in inputs if row.at is None or i.clock_us <= row.at]
        for key in json.loads(row.arguments).get("keys", ()):
            found[key] = max(found.get(key, -1), max(began, default=-1))
    return found


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
