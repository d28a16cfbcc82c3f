"""What corrections did that events can't tell: sessions removed on purpose, and partials restated by others."""

import json

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.jobs.backfill.delta_log import BATCH, StreamedFile, streamed_files, with_batches
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse.tables import Tables

_NEVER = (1 << 62) - 1
"""Batch of a file that no batch has consumed."""


def applied_corrections(tables: Tables, inputs: list[BatchInputs], files: list[StreamedFile]) -> DataFrame:
    """Return the corrections that the batches consumed and did not refuse, with the batch that did; a topic's too.

    `files` are those of `placed_corrections`.
    A file of the table that the log does not place (its rows were copied when others were erased) is placed by the
    time at which its corrections were written.
    """
    placed = with_batches(tables.read(schemas.CORRECTIONS), files)
    clocks = tables.spark.createDataFrame([(i.batch_id, i.clock_us) for i in inputs], "_batch long, _clock long")
    created = F.unix_micros("created_at")
    lost = placed.where(F.col(BATCH).isNull()).drop(BATCH)
    first = (
        lost.join(F.broadcast(clocks), clocks["_clock"] >= created)
        .groupBy("correction_id")
        .agg(F.min("_batch").alias(BATCH))
    )
    consumed = placed.where(F.col(BATCH) < _NEVER).unionByName(lost.join(first, "correction_id"))
    topical = topic_tombstones(tables, inputs[-1].batch_id)
    if topical is not None:
        consumed = consumed.unionByName(topical, allowMissingColumns=True)
    refused = (
        tables.read(schemas.DEAD_LETTERS)
        .where("kind != 'event'")
        .where(F.col(BATCH) <= inputs[-1].batch_id)
        .select(F.col("source").alias("correction_id"))
    )
    return consumed.join(refused, "correction_id", "left_anti")


def topic_tombstones(tables: Tables, up_to: int) -> DataFrame | None:
    """Return the tombstones that batches up to one read from the topic, as corrections; None where there is no archive."""
    if not tables.exists(schemas.TOPIC_TOMBSTONES):
        return None
    rows = tables.read(schemas.TOPIC_TOMBSTONES).where(F.col(BATCH) <= up_to)
    return rows.drop("commit_id").withColumn("kind", F.lit("tombstone"))


def backfills_in_flight(tables: Tables, files: list[StreamedFile]) -> set[str]:
    """Return the run_ids of backfills with corrections that no batch has consumed; `files` as `placed_corrections` has them."""
    placed = with_batches(tables.read(schemas.CORRECTIONS).where("job = 'backfill'"), files)
    return {row[0] for row in placed.where(F.col(BATCH) == _NEVER).select("run_id").distinct().collect()}


def placed_corrections(tables: Tables, inputs: list[BatchInputs]) -> list[StreamedFile]:
    """Return the files of corrections that streams read, with the batch that did; those that none did yet with _NEVER.

    Reads every commit of the table; those that the log no longer has are left out.
    """
    beyond = {"reservoirVersion": tables.latest_version(schemas.CORRECTIONS) + 1, "index": -1}
    offsets = [*((i.batch_id, i.corrections) for i in inputs), (_NEVER, beyond)]
    path = tables.path(schemas.CORRECTIONS)
    return streamed_files(tables, path, offsets, {batch for batch, _ in offsets}, skip_gone=True)


def restates(corrections: DataFrame) -> DataFrame:
    """Return restated partials: key, start_us, end_us, event_count, state, batch_id."""
    return corrections.where("kind = 'restate'").select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros("session_end").alias("end_us"),
        "event_count",
        "state",
        BATCH,
    )


def removals(corrections: DataFrame, changes: DataFrame) -> DataFrame:
    """Return sessions that were removed on purpose: key, start_us, end_us (null where not known any more), batch_id.

    Tombstones, and replacements that put nothing; a replacement by a backfill says what the events say. The end is
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
    if not tables.exists(schemas.JOB_RUNS):
        return {}
    runs = tables.read(schemas.JOB_RUNS).where("job = 'forget'")
    at = F.max(F.when(F.col("event") == "finished", F.unix_micros("at")))
    found: dict[str, int] = {}
    asked = F.max(F.when(F.col("event") == "started", F.col("arguments")))
    for row in runs.groupBy("run_id").agg(at.alias("at"), asked.alias("arguments")).collect():
        began = [i.batch_id for i in inputs if row.at is None or i.clock_us <= row.at]
        for key in json.loads(row.arguments).get("keys", ()):
            found[key] = max(found.get(key, -1), max(began, default=-1))
    return found
