"""When rows of a keyed table expire, and when a batch looks for them (docs/rules.md, rules 170 to 172)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessionlake.engine.operator import STATE, BatchContext, Counted, Split
from sessionlake.operators.cleanups.brake import LEFT, check_first_hidden, check_hidden, check_share, notes_of
from sessionlake.operators.cleanups.rule import Since
from sessionlake.operators.cleanups.schedule import Schedule, budget, cleaned_us, next_schedule
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, IdFormat
from sessionlake.operators.keyed.expiry.pattern import Pattern
from sessionlake.operators.keyed.expiry.segments import Segments
from sessionlake.operators.keyed.expiry.time_boxed import TimeBoxed
from sessionlake.operators.keyed.expiry.time_ordered_keys import TimeOrderedKeys
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.changelog import EVICTED_ROWS, HIDDEN_WRITTEN, LIVE_ROWS

LIVE_CHANGE = f"{STATE}live"
"""The number of a batch by which rows have become more."""
WRITTEN_UP_TO, MAX_WRITTEN = "clock_us", "max_written_us"
"""The greatest clock that rows were written at, in the state and of a batch; there where time to live goes by it."""
MAX_HIDDEN, LAST_PUT, MAX_PUT = "max_hidden_us", "last_put_us", "max_put_us"
"""Of a batch, what HIDDEN_WRITTEN is after it; when a row was written last, in the state and of a batch, where rows hide."""
EVICTED = f"{STATE}evicted"
"""Of a batch, how many rows went, because there were too many, before they would have been hidden."""


@dataclass(frozen=True)
class Ttl:
    """The section [ttl] of a pipeline, as workers know it."""

    pattern: Pattern
    schedule: Schedule = field(default_factory=Schedule)
    since: Since = "event"
    """Which time of a row its time to live goes by."""
    max_share: float = 1.0
    """Of rows that are hidden, how much of the time in which they were written may go by in a batch after a pause."""

    @property
    def key_format(self) -> IdFormat | None:
        """What keys must be; None for any."""
        return FORMATS[self.pattern.key_format] if isinstance(self.pattern, TimeOrderedKeys) else None

    def hidden_us(self, context: BatchContext) -> int:
        """Return the time at which or before it rows were written that are absent without a delete (rule 176); NO_WATERMARK for none.

        It never goes back, also where [ttl] changes: what was hidden may be dropped already.
        """
        return max(hidden_us(context.state), self._hides_us(context))

    def _hides_us(self, context: BatchContext) -> int:
        if self.pattern.hides_us is None:
            return NO_WATERMARK
        # Where all rows are hidden already a jump hides no more, and must not put the move off to a batch that has rows to show.
        shown = LAST_PUT not in context.state or hidden_us(context.state) < int(context.state[LAST_PUT])
        if shown and self.schedule.holds(context):
            return NO_WATERMARK
        return written_us(context) - self.pattern.hides_us

    def checked(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> list[str]:
        """Return what is to be said of a batch with these numbers; PipelineStateError where it takes too much away (rule 183)."""
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
        """Yield, in a map task's first part, what makes every shard run where a cleanup is due."""
        if context.part == 0 and self.since != "event":
            yield Counted({MAX_WRITTEN: written_us(context)})
        if context.part == 0 and self.pattern.hides_us is not None:
            yield Counted({MAX_HIDDEN: self.hidden_us(context)})
        yield from self.schedule.split(context)

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when a batch is needed though nothing comes in: by the wall clock, as long as there are rows."""
        if state.get(LIVE_ROWS) == 0:
            return None
        if isinstance(self.pattern, Segments) and hidden_us(state) >= int(state.get(LAST_PUT) or NO_WATERMARK):
            return None
        return self.schedule.due_us(state)

    def budget(self, state: Mapping[str, Any]) -> int:
        """Return how many rows of a shard a cleanup may look at."""
        return budget(state, self.pattern.max_duration_us) if isinstance(self.pattern, TimeBoxed) else 0


def hidden_us(state: Mapping[str, Any]) -> int:
    """Return the time at which or before it rows were written that a state says are absent; NO_WATERMARK for none."""
    found = state.get(HIDDEN_WRITTEN)
    return NO_WATERMARK if found is None else int(found)


def written_us(context: BatchContext) -> int:
    """Return the clock that a batch's rows are written at: the batch's, but never before that of an earlier batch."""
    return max(context.clock_us, int(context.state.get(WRITTEN_UP_TO) or 0))


def next_cleaning(state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return what of a state is about cleanups, after a batch with these numbers."""
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
