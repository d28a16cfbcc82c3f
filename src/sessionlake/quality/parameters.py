"""Numbers that suites refer to: of the config, of the pinned batch, and what the counts of all batches say."""

from typing import Any

from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.jobs.reconcile import OUTCOMES, Accepted
from sessionlake.quality.frames import SECOND_US, Inputs, batches_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import EXPIRED_EVENTS


def parameters(inputs: Inputs) -> dict[str, Any]:
    """Return the parameters of a run, by name; docs/jobs/quality.md explains them."""
    quality, pinned = inputs.config.quality, inputs.pinned
    return {
        **inputs.kind.suite_values(),
        "batch_id": pinned["batch_id"],
        "with_id": inputs.config.with_ids,
        "with_key": all(spec.decoder.columns.key is not None for spec in inputs.kind.inputs.values()),
        "forgotten": pinned["forgotten"],
        "max_age_seconds": parse_duration(quality.max_age) / SECOND_US,
        "max_null_key_rate": quality.max_null_key_rate,
        "max_late_rate": quality.max_late_rate,
        "max_dead_rate": quality.max_dead_rate,
        **_expected_rows(inputs),
    }


def _expected_rows(inputs: Inputs) -> dict[str, int | None]:
    """Return how many events sessions or windows may hold and how many rows late_events.

    Sessions hold the accepted events and those restated, less those of sessions that [ttl] removed, all of them, unless a correction has
    removed sessions, or what became of some is not known. Then they hold no more than those and all that corrections restate or put. Windows of
    which an event may be in several, or in none that was sent yet, hold any number.
    """
    names = ("accepted", "late", "applied")
    sums = batches_of(inputs).agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in names))
    accepted, late, applied = sums.collect()[0]
    put = F.aggregate(F.col("put.event_count"), F.lit(0).cast("bigint"), lambda total, n: total + n)
    added = F.coalesce(F.when(F.col("kind") == "restate", F.col("event_count")), put, F.lit(0))
    advance = F.count_if(F.col("kind").isin("advance", "tick", "flush"))
    counted = inputs.table(schemas.CORRECTIONS).agg(F.count("*"), advance, F.coalesce(F.sum(added), F.lit(0)))
    corrections, advances, events = counted.collect()[0]
    known = Accepted(
        *(accepted, applied, corrections, advances, *_told(inputs), inputs.pinned["forgotten"]),
        expired=inputs.pinned.get(EXPIRED_EVENTS, 0),
    )
    exact = inputs.config.section.sums_events
    most = accepted + events if known.events is None else known.events
    return {
        "events_at_least": (known.events or 0) if exact else 0,
        "events_at_most": most if exact else None,
        "late_at_least": 0 if inputs.pinned["forgotten"] else late,
        "late_at_most": late,
    }


def _told(inputs: Inputs) -> tuple[int, int, int]:
    """Return what OUTCOMES counts; zeros where no batch has told what became of its corrections."""
    if not inputs.has(schemas.CORRECTION_OUTCOMES):
        return 0, 0, 0
    applied = inputs.committed(schemas.CORRECTION_OUTCOMES).where(F.col("outcome") == schemas.APPLIED)
    adding, removing, restated = applied.agg(*map(F.expr, OUTCOMES)).collect()[0]
    return adding, removing, restated
