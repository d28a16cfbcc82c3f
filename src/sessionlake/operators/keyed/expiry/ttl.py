"""When rows of a keyed table expire, and when a batch looks for them (docs/rules.md, rules 170 to 172)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionlake.engine.operator import BatchContext, Counted, Split, StateStat
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, IdFormat
from sessionlake.operators.keyed.expiry.pattern import Pattern
from sessionlake.operators.shared.cleanups.brake import LEFT, check_first_hidden, check_hidden, check_share, notes_of
from sessionlake.operators.shared.cleanups.names import EVICTED_ROWS, LIVE_ROWS
from sessionlake.operators.shared.cleanups.rule import Since
from sessionlake.operators.shared.cleanups.schedule import Schedule, budget, cleaned_us, next_schedule
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN

LIVE_CHANGE = StateStat("state_live")
"""The number of a batch by which rows have become more."""
WRITTEN_UP_TO, MAX_WRITTEN = "clock_us", StateStat("max_written_us", greatest=True)
"""The greatest clock at which rows were written, in the state and of a batch; only if time to live counts from it."""
MAX_HIDDEN, LAST_PUT, MAX_PUT = (
    StateStat("max_hidden_us", greatest=True),
    "last_put_us",
    StateStat("max_put_us", greatest=True),
)
"""HIDDEN_WRITTEN after a batch; and when a row was written last, in the state and of a batch, if rows hide."""
EVICTED = StateStat("state_evicted")
"""Of a batch, how many rows went, because there were too many, before they would have been hidden."""


@dataclass(frozen=True)
class Ttl:
    """The section [ttl] of a pipeline, as workers know it."""

    pattern: Pattern
    schedule: Schedule = field(default_factory=Schedule)
    since: Since = "event"
    """The time of a row from which its time to live counts."""
    max_share: float = 1.0
    """The largest share of the time span of the rows that one batch may hide after a pause."""

    @property
    def key_format(self) -> IdFormat | None:
        """The format that keys must have; None for any."""
        return None if self.pattern.key_format is None else FORMATS[self.pattern.key_format]

    def hidden_us(self, context: BatchContext) -> int:
        """Return the time at which or before it rows were written that are absent without a delete (rule 176); NO_WATERMARK for none.

        It never goes back, also if [ttl] changes: hidden rows may be dropped already.
        """
        return max(hidden_us(context.state), self._hides_us(context))

    def _hides_us(self, context: BatchContext) -> int:
        if self.pattern.hides_us is None:
            return NO_WATERMARK
        # If all rows are hidden already a jump hides no more, and must not put the move off to a batch that has rows to show.
        shown = LAST_PUT not in context.state or hidden_us(context.state) < int(context.state[LAST_PUT])
        if shown and self.schedule.holds(context):
            return NO_WATERMARK
        return written_us(context) - self.pattern.hides_us

    def checked(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> list[str]:
        """Return the notes on a batch with these numbers; PipelineStateError if it removes too many rows (rule 183)."""
        before, last_put = hidden_us(state), state.get(LAST_PUT)
        if MAX_HIDDEN in stats and self.max_share < 1 and not self.schedule.allowed:
            if before == NO_WATERMARK and stats[MAX_HIDDEN] != NO_WATERMARK:
                check_first_hidden(int(state.get(LIVE_ROWS) or 0), stats[MAX_HIDDEN])
            elif last_put is not None:
                check_hidden(self.max_share, before, stats[MAX_HIDDEN], int(last_put))
        clock_us, brake = cleaned_us(stats), self.schedule.brake
        if brake is not None and clock_us is not None:
            live = next_cleaning(state, stats)[LIVE_ROWS]
            check_share(brake, state, stats, clock_us, stats.get(LEFT, 0) if live is None else live, "rows")
        return notes_of(state, stats)

    def split(self, context: BatchContext) -> Split:
        """Yield, in a map task's first part, the rows that make every shard run if a cleanup is due."""
        if context.part == 0 and self.since != "event":
            yield Counted({MAX_WRITTEN: written_us(context)})
        if context.part == 0 and self.pattern.hides_us is not None:
            yield Counted({MAX_HIDDEN: self.hidden_us(context)})
        yield from self.schedule.split(context)

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when a batch is needed though nothing comes in: by the wall clock, as long as there are rows."""
        if state.get(LIVE_ROWS) == 0:
            return None
        if self.pattern.interval_us is not None and hidden_us(state) >= int(state.get(LAST_PUT) or NO_WATERMARK):
            return None
        return self.schedule.due_us(state)

    def budget(self, state: Mapping[str, Any]) -> int:
        """Return how many rows of a shard a cleanup may look at."""
        return 0 if self.pattern.max_duration_us is None else budget(state, self.pattern.max_duration_us)


def hidden_us(state: Mapping[str, Any]) -> int:
    """Return the time at which or before it rows were written that a state says are absent; NO_WATERMARK for none."""
    found = state.get(HIDDEN_WRITTEN)
    return NO_WATERMARK if found is None else int(found)


def written_us(context: BatchContext) -> int:
    """Return the clock that a batch's rows are written at: the batch's, but never before that of an earlier batch."""
    return max(context.clock_us, int(context.state.get(WRITTEN_UP_TO) or 0))


def next_cleaning(state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the cleanups' part of the state after a batch with these numbers."""
    # Rows that are hidden are not counted.
    live = None if MAX_HIDDEN in stats else state.get(LIVE_ROWS, None if state else 0)
    told: dict[str, Any] = {LIVE_ROWS: None if live is None else int(live) + stats.get(LIVE_CHANGE, 0)}
    told |= next_schedule(state, stats)
    if MAX_WRITTEN in stats or WRITTEN_UP_TO in state:
        told[WRITTEN_UP_TO] = stats.get(MAX_WRITTEN, state.get(WRITTEN_UP_TO))
    for name, greatest in ((HIDDEN_WRITTEN, MAX_HIDDEN), (LAST_PUT, MAX_PUT)):
        if greatest in stats or name in state:
            told[name] = stats.get(greatest, state.get(name))
    if EVICTED in stats or EVICTED_ROWS in state:
        told[EVICTED_ROWS] = int(state.get(EVICTED_ROWS) or 0) + stats.get(EVICTED, 0)
    return told
