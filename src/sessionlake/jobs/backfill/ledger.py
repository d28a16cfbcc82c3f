"""The corrections that batches took, the partials that others restated, and the keys that were erased."""

import json

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.records import UNTIL
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse import schemas
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
