"""Redeem dead letters: read their text again, and restate the events that now keep the contract."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionlake.column_names import roots_of
from sessionlake.config.load import Config
from sessionlake.errors import JobError
from sessionlake.jobs.again.restate import last_batch_pins, restatements, restating_of, stored_kind
from sessionlake.jobs.again.runs import NUMBER
from sessionlake.jobs.late.spans import check_range
from sessionlake.jobs.redeem.ledger import CLAIMS, LETTER, REDEEM, not_redeemed
from sessionlake.jobs.redeem.rows import (
    EXPIRED,
    FILTERED,
    REFUSED,
    TAKEN,
    TWIN,
    UNREADABLE,
    judge_letters,
    judged_schema,
)
from sessionlake.jobs.run import JobReport, JobRun, OnStep, require_known, start_run
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.again import layout_again
from sessionlake.sources.lookups.versions import Pins
from sessionlake.sources.record_columns import meta_of
from sessionlake.sources.registry import sources_of
from sessionlake.stream.capabilities import Redeeming
from sessionlake.stream.kind import Kind
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import read_batches

UNIQUE = "unique"
"""The name under which a run pins `unique_for` and the longest id, if each event counts once."""


def redeem(
    spark: SparkSession,
    config: Config,
    *,
    reasons: Sequence[str],
    from_us: int | None = None,
    to_us: int | None = None,
    run_id: str | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Redeem the dead letters of these reasons (the text before a colon, or the whole text), each once.

    `from_us` (inclusive) and `to_us` (exclusive) bound the time at which the batch that refused them was committed.
    Sessions or windows change with the next batch. Raises OvertakenError if another run overtook this one, and JobError
    if the text of a dead letter is not the whole record of its event.
    """
    if not reasons:
        raise JobError("--reason: is missing; write a reason as dead_letters has it, such as 'too far in the future'")
    check_range(from_us, to_us)
    require_known(config, REDEEM)
    kind = stored_kind(spark, config, last_batch(Tables.of(spark, config)))
    reading = kind.redeeming
    if reading is None:
        raise NotImplementedError(f"{kind.changelog.name}: refused events can't be read again")
    _check_readable(config, reading.columns)
    named = sorted(set(reasons))
    arguments = {"reasons": named, "from": from_us, "to": to_us}
    pin = partial(_pin, config)
    run = start_run(
        spark, config, REDEEM, run_id=run_id, arguments=arguments, pin=pin, dry_run=dry_run, on_step=on_step
    )
    if run.finished is not None:
        return run.finished
    run.expect(1 if run.dry_run else 3)
    CLAIMS.claim(run)
    with run.step("reading dead letters again"):
        letters = _letters(run, named, from_us, to_us)
        judged = _judged(run, kind, reading, letters, _newest(spark, config, reading)).persist()
    try:
        counts = _counts(judged)
        _write(run, kind, judged)
    finally:
        judged.unpersist()
    return run.finish(counts, _notes(counts))


def _check_readable(config: Config, columns: EventColumns) -> None:
    """Raise JobError if dead letters lack a part of the record."""
    source = config.source
    if layout_again(source.layout) is None:
        raise JobError(
            "source.format: a dead letter of 'csv' lacks the header; put its rows into a new file of the source"
        )
    if source.entry.has_topic and (source.is_binary or set(meta_of(source)) & {*roots_of([*columns.types])}):
        what = f"is {(source.format or '').capitalize()}" if source.is_binary else "lacks the record's own columns"
        raise JobError(
            f"{source.place_at}: a dead letter of {source.place!r} {what}; send its record to the topic again"
        )


def _pin(config: Config, tables: Tables) -> dict[str, Any]:
    last = last_batch_pins(config, tables)
    pins = {**last, "max_future_skew_us": config.max_future_skew_us, NUMBER: CLAIMS.next_number(tables)}
    if config.event.unique_us is None:
        return pins
    _check_taken(tables)
    return {**pins, UNIQUE: [config.event.unique_us, config.event.max_key_bytes]}


def _check_taken(tables: Tables) -> None:
    """Raise JobError if the stream does not compare corrections with what was taken: they would count twice, or be forgotten."""
    if "unique_for_us" not in last_batch(tables).settings.live:
        raise JobError(
            "event.unique_for: is new, and the stream has not taken it; `sessionlake run CONFIG --once` takes it with its next batch"
        )
    if schemas.ID_FIELDS[0].name not in tables[schemas.CORRECTIONS].read().columns:
        raise JobError(
            f"table {schemas.CORRECTIONS!r}: lacks {schemas.ID_FIELDS[0].name!r}, which a stream of this release adds when it starts; "
            "start `sessionlake run CONFIG` anew, then this job"
        )


def _letters(run: JobRun, reasons: list[str], from_us: int | None, to_us: int | None) -> DataFrame:
    """Return the dead letters that the run asks for and no other run has redeemed.

    They are read at the newest version: the table only grows, except that erased rows leave it, and these must not
    return.
    """
    asked = F.split_part("reason", F.lit(":"), F.lit(1)).isin(reasons) | F.col("reason").isin(reasons)
    of_batches = (F.col("kind") == "event") & (F.col("batch_id") <= run.pinned["batch_id"])
    letters = not_redeemed(run, run.tables[schemas.DEAD_LETTERS].read().where(of_batches & asked))
    batches, at = read_batches(run.tables), F.unix_micros("committed_at")
    if from_us is not None:
        batches = batches.where(at >= from_us)
    if to_us is not None:
        batches = batches.where(at < to_us)
    return letters.join(F.broadcast(batches.select("batch_id")), "batch_id", "left_semi")


def _newest(spark: SparkSession, config: Config, reading: Redeeming) -> dict[str, str]:
    """Return the newest versions of the tables that the events are looked up in."""
    sources = sources_of(spark, config)
    return Pins(spark, sources, dict.fromkeys(sources, reading.events.lookups.each)).of_batch(None)


def _judged(run: JobRun, kind: Kind, reading: Redeeming, letters: DataFrame, pins: Mapping[str, str]) -> DataFrame:
    """Return each dead letter with the outcome, and with the event if it is redeemed."""
    pinned, now_us = run.pinned, run.started_us
    latest = now_us + pinned["max_future_skew_us"]

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from judge_letters(reading, batch, pinned["expired_us"], latest, pins).to_batches()

    judged = map_in_arrow(letters.select(LETTER, "batch_id", "raw"), judge, spark_schema(judged_schema(reading)))
    # A restate may begin before its event, and is refused by its start.
    expired = (F.col("outcome") == TAKEN) & (restating_of(kind).start_us() < pinned["expired_us"])
    judged = judged.withColumn("outcome", F.when(expired, EXPIRED).otherwise(F.col("outcome")))
    if reading.columns.id is None:
        return judged
    identity = ["event_id"]
    if UNIQUE in pinned:
        unique_us, longest = pinned[UNIQUE]
        identity += ["key", "event_time"]
        named = F.octet_length(F.coalesce("event_id", F.lit(""))).between(1, longest)
        old = F.unix_micros("event_time") < pinned["watermark_us"] - unique_us
        unknown = (F.col("outcome") == TAKEN) & (~named | old)
        judged = judged.withColumn("outcome", F.when(unknown, REFUSED).otherwise(F.col("outcome")))
    first = Window.partitionBy("outcome", *identity).orderBy("event_time", LETTER)
    twin = (F.col("outcome") == TAKEN) & F.col("event_id").isNotNull() & (F.row_number().over(first) > 1)
    return (
        judged.withColumn("_twin", twin)
        .withColumn("outcome", F.when(F.col("_twin"), TWIN).otherwise(F.col("outcome")))
        .drop("_twin")
    )


def _counts(judged: DataFrame) -> dict[str, int]:
    found = {row[0]: row[1] for row in judged.groupBy("outcome").count().collect()}
    outcomes = {name: int(found.get(name, 0)) for name in (TAKEN, TWIN, EXPIRED, REFUSED, UNREADABLE, FILTERED)}
    return {"dead_letters": sum(outcomes.values()), **outcomes}


def _write(run: JobRun, kind: Kind, judged: DataFrame) -> None:
    """Write the marks of redeemed dead letters, then append their corrections. The append makes the marks count."""
    if run.dry_run:
        return
    with run.step("marking the redeemed events"):
        run.tables[schemas.REDEEMED].create(schemas.REDEEMED_SCHEMA, "Dead letters that runs of redeem took")
        taken = judged.where(F.col("outcome").isin(TAKEN, TWIN))
        run.append(schemas.REDEEMED, taken.select(LETTER, "batch_id", "outcome", F.lit(run.run_id).alias("run_id")))
    with run.step("restating", schemas.CORRECTIONS):
        # Their texts are read, so it does not matter which columns the batch that refused them read.
        events = judged.where(F.col("outcome") == TAKEN).drop("batch_id")
        if schemas.PARTLY in [field.name for field in kind.late_columns]:
            # A dead letter is in none of its windows.
            events = events.withColumn(schemas.PARTLY, F.lit(False))
        CLAIMS.append(run, schemas.CORRECTIONS, restatements(run, events, kind, with_ids=UNIQUE in run.pinned))


def _notes(counts: dict[str, int]) -> list[str]:
    left = [f"{counts[name]:,} {text}" for name, text in _STAY.items() if counts[name]]
    return [f"still dead: {', '.join(left)}"] if left else []


_STAY = {
    EXPIRED: "beyond retention",
    REFUSED: "that the contract or a class of the aggregates still refuses",
    UNREADABLE: "whose text was cut or is none",
    FILTERED: "for which `where` is not true",
}
