"""Reprocess late events: restate the events still in retention through corrections, bury the others in dead_letters."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.jobs.again.restate import last_batch_pins, restatements, restating_of, stored_kind, without_partly
from sessionlake.jobs.again.runs import NUMBER
from sessionlake.jobs.late.ledger import CLAIMS, COVERED, expired_by_runs, mark_covered, restated_by_runs
from sessionlake.jobs.late.spans import REPROCESS_LATE, Span, check_range, requested_times
from sessionlake.jobs.run import JobReport, JobRun, OnStep, shaped, start_run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables


@dataclass(frozen=True)
class _Frames:
    """The rows that a run reads and writes."""

    marked: DataFrame
    """All late events, and whether runs before this one cover them."""
    kept: Column
    """Condition for the run's own events that are still in retention."""
    expired: Column
    partly: DataFrame | None
    """The run's partly late events in retention, if the operator has such events; `marked` lacks them."""
    asked: Span
    corrections: DataFrame
    dead_letters: DataFrame


def reprocess_late(
    spark: SparkSession,
    config: Config,
    *,
    from_us: int | None = None,
    to_us: int | None = None,
    run_id: str | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda _: None,
) -> JobReport:
    """Reprocess the late events that no run has covered yet; times from inclusive, to exclusive, all if not given.

    The results change with the stream's next batch. Raises OvertakenError if another run overtook this one.
    """
    check_range(from_us, to_us)
    arguments = {"from": from_us, "to": to_us}
    pin = partial(_pin, config, from_us, to_us)
    run = start_run(
        spark, config, REPROCESS_LATE, run_id=run_id, arguments=arguments, pin=pin, dry_run=dry_run, on_step=on_step
    )
    if run.finished is not None:
        return run.finished
    run.expect(4)
    with run.step("looking for late events that wait"):
        frames = _frames(spark, config, run)
    with run.step("restating", schemas.CORRECTIONS):
        CLAIMS.append(run, schemas.CORRECTIONS, frames.corrections)
    with run.step("burying expired ones", schemas.DEAD_LETTERS):
        CLAIMS.append(run, schemas.DEAD_LETTERS, frames.dead_letters)
    with run.step("counting"):
        return run.finish(*_counted(run, frames))


def _pin(config: Config, from_us: int | None, to_us: int | None, tables: Tables) -> dict[str, Any]:
    last = last_batch_pins(config, tables)
    return {**last, "from_us": from_us, "to_us": to_us, NUMBER: CLAIMS.next_number(tables)}


def _frames(spark: SparkSession, config: Config, run: JobRun) -> _Frames:
    tables, pinned = run.tables, run.pinned
    kind = stored_kind(spark, config, last_batch(tables))
    CLAIMS.claim(run)
    before = CLAIMS.before(run)
    # The newest version, and not the pinned one: late_events only grows, so the pinned batches have the same rows.
    # But rows that were erased since (the right to be forgotten) must not return.
    every = mark_covered(tables, tables[schemas.LATE_EVENTS].read(), before, pinned["batch_id"])
    marked = without_partly(every)
    asked = Span(pinned["batch_id"], *requested_times(pinned["from_us"], pinned["to_us"]))
    in_retention = restating_of(kind).start_us() >= pinned["expired_us"]
    ours = F.expr(asked.holds()) & ~F.col(COVERED)
    kept, expired = ours & in_retention, ours & ~in_retention
    unique = marked.where(kept)
    if config.with_ids:
        unique = _without_twins(unique, marked.where(COVERED))
    partly = every.where(kept & F.col(schemas.PARTLY)) if schemas.PARTLY in every.columns else None
    corrections = restatements(run, unique if partly is None else unique.unionByName(partly), kind)
    return _Frames(marked, kept, expired, partly, asked, corrections, _dead_letters(run, marked.where(expired)))


def _without_twins(rows: DataFrame, covered: DataFrame) -> DataFrame:
    """Keep an event for each id, unless the id was covered before; events without an id are kept."""
    names = rows.columns
    # Of a join a side's ids are its own.
    named = ["event_id", *([schemas.SIDE] if schemas.SIDE in names else [])]
    earliest = Window.partitionBy(*named).orderBy("event_time", "key", "batch_id", "source", "raw")
    ids = covered.where("event_id is not null").select(*named).distinct()
    with_id = rows.where("event_id is not null").join(ids, named, "left_anti")
    first = with_id.withColumn("_rank", F.row_number().over(earliest)).where("_rank = 1").select(*columns(names))
    return first.unionByName(rows.where("event_id is null"))


def _dead_letters(run: JobRun, expired: DataFrame) -> DataFrame:
    schema = schemas.DEAD_LETTERS_SCHEMA
    return shaped(
        expired,
        schema.append(schemas.SIDE_FIELD) if schemas.SIDE in expired.columns else schema,
        reason=F.lit("expired"),
        kind=F.lit("event"),
        batch_id=F.lit(None),
        commit_id=F.lit(run.run_id),
    )


def _counted(run: JobRun, frames: _Frames) -> tuple[dict[str, int], list[str]]:
    """Return the run's counts from the tables; for a dry run, the counts that the run would have."""
    waiting = (F.col("batch_id") <= frames.asked.batch_id) & ~F.col(COVERED) & ~F.expr(frames.asked.holds())
    counts = (
        F.count_if(frames.kept),
        F.count_if(frames.expired),
        F.count_if(waiting),
        F.count_if(F.col("batch_id").isNull()),
    )
    kept, expired, left, nameless = frames.marked.agg(*counts).collect()[0]
    written = frames.corrections
    if not run.dry_run:
        written = restated_by_runs(run.tables[schemas.CORRECTIONS].read(), run.run_id)
        expired = expired_by_runs(run.tables[schemas.DEAD_LETTERS].read(), run.run_id).count()
    corrections, restated = written.agg(F.count("*"), F.coalesce(F.sum("event_count"), F.lit(0))).collect()[0]
    notes = []
    if nameless:
        notes.append(f"{nameless:,} rows of late_events have no batch_id: no batch wrote them, they are left alone")
    return {
        "late_events": kept + expired,
        "restated": restated,
        "duplicates": kept - restated,
        "expired": expired,
        "corrections": corrections,
        "still_waiting": left,
        **({} if frames.partly is None else {"partly_late": frames.partly.count()}),
    }, notes
