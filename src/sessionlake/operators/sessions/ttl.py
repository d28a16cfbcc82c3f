"""The workers' part of [ttl] for closed sessions, and its part of the state (docs/rules.md, rules 177 and 178)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionlake.engine.operator import StateStat
from sessionlake.operators.shared.cleanups.brake import LEFT as STILL_THERE
from sessionlake.operators.shared.cleanups.brake import check_share, notes_of
from sessionlake.operators.shared.cleanups.names import EXPIRED_EVENTS
from sessionlake.operators.shared.cleanups.rule import Rule
from sessionlake.operators.shared.cleanups.schedule import Schedule, budget, cleaned_us, is_cleaned, next_schedule
from sessionlake.stream.watermark import watermark_of

REMOVED_EVENTS, LEFT = StateStat("state_expired_events"), StateStat("state_closed_left")
"""Numbers of a batch: events of the sessions that its cleanup removed, and closed sessions that it left, about: none if it is 0."""
CHANGED = StateStat("state_changed")
"""The number of sessions that a batch changed, if not all of them are sent with it."""
CLOSED_LEFT = "closed_left"
"""LEFT in the state, for as long as no batch may have made it more."""


@dataclass(frozen=True)
class SessionTtl:
    """The section [ttl] of a pipeline of sessions."""

    rule: Rule
    schedule: Schedule
    max_duration_us: int | None = None
    """How long a cleanup of a shard may take, about; None if it looks at all closed sessions."""
    most: int | None = None
    """How many sessions of a shard a cleanup takes away at most; None if it is bounded in time."""

    def budget(self, state: Mapping[str, Any]) -> int | None:
        """Return how many sessions of a shard a cleanup may look at; None for all."""
        return None if self.max_duration_us is None else budget(state, self.max_duration_us)

    def checked(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> list[str]:
        """Return the notes on a batch with these numbers; PipelineStateError if it removes too many sessions (rule 183)."""
        clock_us, brake = cleaned_us(stats), self.schedule.brake
        if brake is not None and clock_us is not None:
            check_share(brake, state, stats, clock_us, stats.get(STILL_THERE, 0), "sessions")
        return notes_of(state, stats)

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when a batch is needed though nothing comes in: by the wall clock, as long as closed sessions are in the stores."""
        return None if state.get(CLOSED_LEFT) == 0 else self.schedule.due_us(state)


def next_state(state: Mapping[str, Any], stats: Mapping[str, int], reached: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state after a batch with these numbers: how far the pipeline is, `reached`, and the progress of cleanups."""
    after = {**reached, **next_schedule(state, stats)}
    if REMOVED_EVENTS in stats or EXPIRED_EVENTS in state:
        after[EXPIRED_EVENTS] = int(state.get(EXPIRED_EVENTS, 0)) + stats.get(REMOVED_EVENTS, 0)
    left = stats.get(LEFT) if is_cleaned(stats) else state.get(CLOSED_LEFT)
    changed = stats.get("upserts", 0) or stats.get(CHANGED, 0)
    if left is not None and watermark_of(after) == watermark_of(state) and not changed:
        after[CLOSED_LEFT] = left
    return after
