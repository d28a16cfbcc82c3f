"""When rows of a keyed table expire, and when a batch looks for them (docs/rules.md, rules 170 to 172)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from sessionlake.engine.operator import STATE, BatchContext, Counted, Everywhere, Split
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, IdFormat
from sessionlake.operators.keyed.expiry.pattern import Pattern
from sessionlake.operators.keyed.expiry.rule import Since
from sessionlake.operators.keyed.expiry.segments import Segments
from sessionlake.operators.keyed.expiry.time_boxed import FIRST_RATE, LEAST_ROWS, TimeBoxed, next_rate
from sessionlake.operators.keyed.expiry.time_ordered_keys import TimeOrderedKeys
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of
from sessionlake.warehouse.changelog import EVICTED_ROWS, HIDDEN_WRITTEN, LIVE_ROWS

Clock = Literal["wall", "stream"]
CLEANUP = "cleanup"
"""Kind of the rows that every shard gets where a cleanup is due; they have its clock."""
RATE = "scan_rows_per_ms"
"""Of a table's state: how fast rows are looked at."""
LIVE_CHANGE, SCANNED, TOOK = f"{STATE}live", f"{STATE}scanned", f"{STATE}scan_us"
"""Numbers of a batch that the next state is of."""
WRITTEN_UP_TO, MAX_WRITTEN = "clock_us", "max_written_us"
"""The greatest clock that rows were written at, in the state and of a batch; there where time to live goes by it."""
MAX_HIDDEN, LAST_PUT, MAX_PUT = "max_hidden_us", "last_put_us", "max_put_us"
"""Of a batch, what HIDDEN_WRITTEN is after it; when a row was written last, in the state and of a batch, where rows hide."""
EVICTED = f"{STATE}evicted"
"""Of a batch, how many rows went, because there were too many, before they would have been hidden."""
_LEAST_IDLE_US = 10_000_000
"""How long an idle pipeline waits for a batch of its own, at least."""
_CLOCKS: tuple[Clock, ...] = ("wall", "stream")


@dataclass(frozen=True)
class Ttl:
    """The section [ttl] of a pipeline, as workers know it."""

    pattern: Pattern
    clock: Clock = "wall"
    every_us: int | None = None
    """How far cleanups lie apart, by the clock; None for a pattern that knows no cleanups."""
    since: Since = "event"
    """Which time of a row its time to live goes by."""

    def due(self, context: BatchContext) -> int | None:
        """Return the clock of the cleanup that is due in a batch, None for none: in each interval of the clock one is.

        Intervals are aligned, so that it does not depend on where batches lie. Missed ones are not made up for. A clock that
        was set back is in another interval, too, and holds nothing up.
        """
        if self.every_us is None:
            return None
        clock_us = context.clock_us if self.clock == "wall" else watermark_of(context.state)
        if clock_us == NO_WATERMARK:
            return None
        last = context.state.get(_cleaned(self.clock))
        return clock_us if last is None or clock_us // self.every_us != int(last) // self.every_us else None

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
        return NO_WATERMARK if self.pattern.hides_us is None else written_us(context) - self.pattern.hides_us

    def split(self, context: BatchContext) -> Split:
        """Yield, in a map task's first part, what makes every shard run where a cleanup is due."""
        if context.part == 0 and self.since != "event":
            yield Counted({MAX_WRITTEN: written_us(context)})
        if context.part == 0 and self.pattern.hides_us is not None:
            yield Counted({MAX_HIDDEN: self.hidden_us(context)})
        clock_us = self.due(context) if context.part == 0 else None
        if clock_us is not None:
            yield Everywhere(CLEANUP, pa.table({"clock_us": pa.array([clock_us], pa.int64())}))
            yield Counted({f"max_{_cleaned(self.clock)}": clock_us})

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when a batch is needed though nothing comes in: by the wall clock, as long as there are rows."""
        last = state.get(_cleaned(self.clock))
        if self.clock != "wall" or self.every_us is None or last is None or state.get(LIVE_ROWS) == 0:
            return None
        if isinstance(self.pattern, Segments) and hidden_us(state) >= int(state.get(LAST_PUT) or NO_WATERMARK):
            return None
        return max((int(last) // self.every_us + 1) * self.every_us, int(last) + _LEAST_IDLE_US)

    def budget(self, state: Mapping[str, Any]) -> int:
        """Return how many rows of a shard a cleanup may look at."""
        if not isinstance(self.pattern, TimeBoxed):
            return 0
        return max(LEAST_ROWS, int(state.get(RATE) or FIRST_RATE) * self.pattern.max_duration_us // 1000)


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
    for clock in _CLOCKS:
        last = stats.get(f"max_{_cleaned(clock)}", state.get(_cleaned(clock)))
        told |= {} if last is None else {_cleaned(clock): last}
    if MAX_WRITTEN in stats or WRITTEN_UP_TO in state:
        told[WRITTEN_UP_TO] = stats.get(MAX_WRITTEN, state.get(WRITTEN_UP_TO))
    for name, greatest in ((HIDDEN_WRITTEN, MAX_HIDDEN), (LAST_PUT, MAX_PUT)):
        if greatest in stats or name in state:
            told[name] = stats.get(greatest, state.get(name))
    if EVICTED in stats or EVICTED_ROWS in state:
        told[EVICTED_ROWS] = int(state.get(EVICTED_ROWS) or 0) + stats.get(EVICTED, 0)
    if SCANNED in stats or RATE in state:
        told[RATE] = next_rate(int(state.get(RATE) or FIRST_RATE), stats.get(SCANNED, 0), stats.get(TOOK, 0))
    return told


def _cleaned(clock: Clock) -> str:
    """Return how the state calls the clock of the last cleanup by this clock."""
    return f"cleaned_{clock}_us"
