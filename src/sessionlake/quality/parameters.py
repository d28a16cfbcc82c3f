"""Numbers that suites refer to: of the config, of the pinned batch, and what the counts of all batches say."""

from typing import Any

from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config.durations import parse_duration
from sessionlake.jobs.reconcile import Accepted
from sessionlake.quality.frames import SECOND_US, Inputs, batches_of


def parameters(inputs: Inputs) -> dict[str, Any]:
    """Return the parameters of a run, by name; docs/jobs/quality.md explains them."""
    quality, pinned = inputs.config.quality, inputs.pinned
    return {
        "gap_us": inputs.config.gap_us,
        "batch_id": pinned["batch_id"],
        "with_id": inputs.config.event.id is not None,
        "forgotten": pinned["forgotten"],
        "max_age_seconds": parse_duration(quality.max_age) / SECOND_US,
        "max_null_key_rate": quality.max_null_key_rate,
        "max_late_rate": quality.max_late_rate,
        "max_dead_rate": quality.max_dead_rate,
        **_expected_rows(inputs),
    }


def _expected_rows(inputs: Inputs) -> dict[str, int]:
    """Return how many events sessions may hold and how many rows late_events.

    Without corrections sessions hold the accepted events, all of them. A correction may remove sessions, and adds the
    events that it restates or puts at most.
    """
    names = ("accepted", "late", "applied")
    sums = batches_of(inputs).agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in names))
    accepted, late, applied = sums.collect()[0]
    put = F.aggregate(F.col("put.event_count"), F.lit(0).cast("bigint"), lambda total, n: total + n)
    added = F.coalesce(F.when(F.col("kind") == "restate", F.col("event_count")), put, F.lit(0))
    advance = F.count_if(F.col("kind") == "advance")
    counted = inputs.table(schemas.CORRECTIONS).agg(F.count("*"), advance, F.coalesce(F.sum(added), F.lit(0)))
    corrections, advances, events = counted.collect()[0]
    known = Accepted(accepted, applied, corrections, advances, inputs.pinned["forgotten"])
    return {
        "events_at_least": 0 if known.corrected else accepted,
        "events_at_most": accepted + events,
        "late_at_least": 0 if inputs.pinned["forgotten"] else late,
        "late_at_most": late,
    }
