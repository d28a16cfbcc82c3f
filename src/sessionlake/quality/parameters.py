"""Numbers that suites refer to: from the config, from the pinned batch, and from the counts of all batches."""

from typing import Any

from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.jobs.reconcile import OUTCOMES, Accepted
from sessionlake.operators.shared.cleanups.names import EXPIRED_EVENTS
from sessionlake.quality.frames import SECOND_US, Inputs, batches_of
from sessionlake.warehouse import schemas


def parameters(inputs: Inputs) -> dict[str, Any]:
    """Return the parameters of a run, by name; docs/jobs/quality.md explains them."""
    quality, pinned = inputs.config.quality, inputs.pinned
    return {
        **inputs.kind.suite_values(),
        "batch_id": pinned["batch_id"],
        "with_id": inputs.config.with_ids,
        "with_key": all(spec.columns.key is not None for spec in inputs.kind.inputs.values()),
        "forgotten": pinned["forgotten"],
        "max_age_seconds": parse_duration(quality.max_age) / SECOND_US,
        "max_null_key_rate": quality.max_null_key_rate,
        "max_late_rate": quality.max_late_rate,
        "max_dead_rate": quality.max_dead_rate,
        "max_duplicate_rate": quality.max_duplicate_rate,
        **_expected_rows(inputs),
    }


def _expected_rows(inputs: Inputs) -> dict[str, int | None]:
    """Return the bounds of the number of events in sessions or windows, and of the rows of late_events.

    Sessions hold exactly the accepted and restated events, less those of sessions that [ttl] removed. If a correction
    has removed sessions, or some outcomes are not known, that is only an upper bound, to which all events that
    corrections restate or put are added.

    An event may be in several windows, or in none that was sent yet. Such windows may hold any number of events.
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
        *(accepted, applied, corrections, advances, *_inputs_totals(inputs), inputs.pinned["forgotten"]),
        expired=inputs.pinned.get(EXPIRED_EVENTS, 0),
    )
    exact = inputs.config.sums_events
    most = accepted + events if known.events is None else known.events
    return {
        "events_at_least": (known.events or 0) if exact else 0,
        "events_at_most": most if exact else None,
        "late_at_least": 0 if inputs.pinned["forgotten"] else late,
        "late_at_most": late,
    }


def _inputs_totals(inputs: Inputs) -> tuple[int, int, int]:
    """Return the sums of OUTCOMES."""
    applied = inputs.committed(schemas.CORRECTION_OUTCOMES).where(F.col("outcome") == schemas.APPLIED)
    adding, removing, restated = applied.agg(*map(F.expr, OUTCOMES)).collect()[0]
    return adding, removing, restated
