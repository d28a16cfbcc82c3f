"""What corrections did that events can't tell: sessions removed on purpose, and partials restated by others."""

import json

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.records import UNTIL
from sessionlake.jobs.backfill.before_outcomes import taken_before
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import TTL
from sessionlake.warehouse.outcomes import NEVER, told_from
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables


def taken_corrections(tables: Tables, inputs: list[BatchInputs]) -> DataFrame:
    """Return what became of each correction that the batches took, a topic's too: correction_id, outcome, batch_id."""
    first = told_from(tables)
    before = [i for i in inputs if i.batch_id < first]
    earlier = taken_before(tables, before, topic_tombstones(tables, before[-1].batch_id)) if before else None
    if first == NEVER and earlier is not None:
        return earlier
    told = tables[schemas.CORRECTION_OUTCOMES].read().select("correction_id", "outcome", BATCH)
    taken = told.where(F.col(BATCH) <= inputs[-1].batch_id)
    return taken if earlier is None else taken.unionByName(earlier.join(told, "correction_id", "left_anti"))


def applied_corrections(tables: Tables, taken: DataFrame, up_to: int) -> DataFrame:
    """Return the corrections that took effect, a topic's up to a batch too, with the batch that took them.

    `taken` is that of `taken_corrections`.
    """
    corrections = tables[schemas.CORRECTIONS].read()
    topical = topic_tombstones(tables, up_to)
    if topical is not None:
        corrections = corrections.unionByName(topical.drop(BATCH), allowMissingColumns=True)
    # One row an id, also where somebody has used one twice: else each would come with the batches of all.
    applied = taken.where(F.col("outcome") == schemas.APPLIED).groupBy("correction_id").agg(F.min(BATCH).alias(BATCH))
    return corrections.join(applied, "correction_id")


def topic_tombstones(tables: Tables, up_to: int) -> DataFrame | None:
    """Return the tombstones that batches up to one read from the topic, as corrections; None where there is no archive."""
    rows = _tombstones(tables, up_to)
    return None if rows is None else rows.where(F.col("correction_id") != TTL).withColumn("kind", F.lit("tombstone"))


def expired_sessions(tables: Tables, up_to: int) -> DataFrame | None:
    """Return the sessions that [ttl] removed in batches up to one: session_key, session_start, revision, batch_id; None without [ttl]."""
    rows = _tombstones(tables, up_to)
    return None if rows is None else rows.where(F.col("correction_id") == TTL).drop("correction_id")


def _tombstones(tables: Tables, up_to: int) -> DataFrame | None:
    if not tables[schemas.TOPIC_TOMBSTONES].exists():
        return None
    return tables[schemas.TOPIC_TOMBSTONES].read().where(F.col(BATCH) <= up_to).drop("commit_id")


def backfills_in_flight(tables: Tables, taken: DataFrame) -> set[str]:
    """Return the run_ids of backfills with corrections that no batch has taken; `taken` is that of `taken_corrections`."""
    written = tables[schemas.CORRECTIONS].read().where("job = 'backfill'")
    waiting = written.join(taken, "correction_id", "left_anti")
    return {row[0] for row in waiting.select("run_id").distinct().collect()}


def restates(corrections: DataFrame) -> DataFrame:
    """Return restated partials: key, start_us, end_us, event_count, state, batch_id, and until_us where corrections have it.

    What only sends windows again is not among them.
    """
    until = [F.unix_micros(schemas.OPEN_UNTIL).alias(UNTIL)] if schemas.OPEN_UNTIL in corrections.columns else []
    return corrections.where("kind = 'restate' and event_count > 0").select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        # A part of a slice is named by any time in it.
        F.unix_micros(F.coalesce("session_end", "session_start")).alias("end_us"),
        "event_count",
        "state",
        BATCH,
        *until,
    )


def removals(corrections: DataFrame, changes: DataFrame, expired: DataFrame | None = None) -> DataFrame:
    """Return sessions that were removed on purpose: key, start_us, end_us (null where not known any more), batch_id.

    Tombstones, and replacements that put nothing, and what [ttl] removed, `expired`; a replacement by a backfill says what the events say. The end is
    that of the changelog's row at the revision that was removed, or else of the delete that the removal made.
    """
    size = F.coalesce(F.size("put"), F.lit(0))
    by_events = F.coalesce(F.col("job"), F.lit("")) == "backfill"
    emptied = corrections.where((F.col("kind") == "replace") & (size <= 0) & ~by_events)
    named = emptied.select("session_key", F.explode("remove").alias("_r"), BATCH)
    columns = ["session_key", "session_start", "revision", BATCH]
    removed = named.select("session_key", "_r.session_start", "_r.revision", BATCH).unionByName(
        corrections.where("kind = 'tombstone'").select(*columns)
    )
    removed = removed if expired is None else removed.unionByName(expired)
    at = schemas.IDENTITY
    # Only the few rows of removed sessions go into the joins that need a shuffle.
    around = changes.join(F.broadcast(removed.select(*at).distinct()), at, "left_semi")
    upserts = around.where("op = 'upsert'").select(
        *at, F.col(BATCH).alias("revision"), F.col("session_end").alias("_end")
    )
    deletes = around.where("op = 'delete'").select(*at, BATCH, F.col("session_end").alias("_deleted_end"))
    known = removed.join(upserts, [*at, "revision"], "left").join(deletes, [*at, BATCH], "left")
    return known.select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros(F.coalesce("_end", "_deleted_end")).alias("end_us"),
        BATCH,
    )


def forgotten_keys(tables: Tables, inputs: list[BatchInputs]) -> dict[str, int]:
    """Return SHA-256 of the keys that `forget` erased, and for each the last batch whose events must not come back.

    That is the last one that began before the run finished; of a run that has not finished, the last one there is.
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
