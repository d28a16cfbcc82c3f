"""When closed sessions expire, as workers know it, and what the state says of that (docs/rules.md, rules 177 and 178)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake.engine.operator import STATE
from sessionlake.operators.cleanups.brake import LEFT as STILL_THERE
from sessionlake.operators.cleanups.brake import check_share, notes_of
from sessionlake.operators.cleanups.rule import Rule
from sessionlake.operators.cleanups.schedule import Schedule, budget, cleaned_us, is_cleaned, next_schedule
from sessionlake.stream.watermark import advanced, watermark_of
from sessionlake.warehouse.changelog import EXPIRED_EVENTS

REMOVED_EVENTS, LEFT = f"{STATE}expired_events", f"{STATE}closed_left"
"""Numbers of a batch: events of the sessions that its cleanup removed, and closed sessions that it left, about: none where it is 0."""
CLOSED_LEFT = "closed_left"
"""LEFT in the state, for as long as no batch may have made it more."""


@dataclass(frozen=True)
class SessionTtl:
    """The section [ttl] of a pipeline of sessions."""

    rule: Rule
    schedule: Schedule
    max_duration_us: int | None = None
    """How long a cleanup of a shard may take, about; None where it looks at all closed sessions."""
    most: int | None = None
    """How many sessions of a shard a cleanup takes away at most; None where it is bounded in time."""

    def budget(self, state: Mapping[str, Any]) -> int | None:
        """Return how many sessions of a shard a cleanup may look at; None for all."""
        return None if self.max_duration_us is None else budget(state, self.max_duration_us)

    def checked(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> list[str]:
        """Return what is to be said of a batch with these numbers; PipelineStateError where it takes too much away (rule 183)."""
        clock_us, brake = cleaned_us(stats), self.schedule.brake
        if brake is not None and clock_us is not None:
            check_share(brake, state, stats, clock_us, stats.get(STILL_THERE, 0), "sessions")
        return notes_of(state, stats)

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when a batch is needed though nothing comes in: by the wall clock, as long as closed sessions are in the stores."""
        return None if state.get(CLOSED_LEFT) == 0 else self.schedule.due_us(state)


def next_state(state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the state after a batch with these numbers: the watermark, and what there is to tell of cleanups."""
    after = {**advanced(state, stats), **next_schedule(state, stats)}
    if REMOVED_EVENTS in stats or EXPIRED_EVENTS in state:
        after[EXPIRED_EVENTS] = int(state.get(EXPIRED_EVENTS, 0)) + stats.get(REMOVED_EVENTS, 0)
    left = stats.get(LEFT) if is_cleaned(stats) else state.get(CLOSED_LEFT)
    if left is not None and watermark_of(after) == watermark_of(state) and not stats.get("upserts", 0):
        after[CLOSED_LEFT] = left
    return after
