"""When a batch looks for rows that have expired, and the state of that (docs/rules.md, rules 170, 172 and 179)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Counted, Everywhere, Inputs, Split, StateStat
from sessionlake.operators.shared.cleanups.brake import (
    CLEANED,
    JUMP,
    JUMPED,
    MAX_CLEANED,
    RULE,
    Brake,
    jumped_us,
    next_round,
)
from sessionlake.operators.shared.cleanups.names import EXPIRY_LAG, ROUND
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of

Clock = Literal["wall", "stream"]
CLEANUP = "cleanup"
"""Kind of the rows that every shard gets if a cleanup is due; they have its clock."""
CLEANUP_US = "cleanup_us"
"""The count of a batch that is how long its cleanup took, in all shards together; unlike all others it is measured."""
RATE = "scan_rows_per_ms"
"""Of a state: how fast rows are looked at."""
SCANNED, TOOK = StateStat("state_scanned"), StateStat("state_scan_us")
"""Numbers of a batch that the next rate is of."""
MAX_LAG, MAX_ROUND = StateStat("max_expiry_lag_us", greatest=True), StateStat("max_cleanup_round_us", greatest=True)
"""Numbers of a batch: the greatest of its shards'."""
LEFT_OVER = StateStat("state_left_over")
"""Of a batch, in how many shards a cleanup took away as many rows as it may."""
_UNFINISHED = "cleanup_unfinished"
"""Of a state: whether there were such shards, so that the next batch goes on."""
LEAST_ROWS = 1000
"""The least that a cleanup with a budget looks at, however slow it was before."""
FIRST_RATE = 200
"""Rows a millisecond, before any was measured."""
BEGAN = "began_us"
"""The field of the cursor of a round that is not over."""
_LEAST_IDLE_US = 10_000_000
"""The shortest time after which an idle pipeline makes a batch for a cleanup, also if cleanups are due more often."""
_CLOCKS: tuple[Clock, ...] = ("wall", "stream")


@dataclass(frozen=True)
class Schedule:
    """By which clock cleanups are due, and how often."""

    clock: Clock = "wall"
    every_us: int | None = None
    """How far cleanups lie apart, by the clock; None for a pattern that knows no cleanups."""
    brake: Brake | None = None
    """How much of the rows may go; None for all."""
    allowed: bool = False
    """Whether cleanups go on though the clock has jumped."""

    def due(self, context: BatchContext) -> int | None:
        """Return the clock of the cleanup that is due in a batch, None for none: in each interval of the clock one is.

        Intervals are aligned to the epoch: the result does not depend on the times of batches. A missed interval is not made up for. A clock that
        was set back is in another interval, too, and holds nothing up. If a cleanup left rows over, the next batch has one.
        """
        if self.every_us is None:
            return None
        clock_us = context.clock_us if self.clock == "wall" else watermark_of(context.state)
        if clock_us == NO_WATERMARK or self.holds(context):
            return None
        last = context.state.get(_cleaned(self.clock))
        if last is None or context.state.get(_UNFINISHED) or clock_us // self.every_us != int(last) // self.every_us:
            return clock_us
        return None

    def holds(self, context: BatchContext) -> bool:
        """Say whether nothing expires in a batch, since its clock has jumped, or one had so in this interval."""
        if self.allowed or self.clock != "wall":
            return False
        known, last = context.state.get(JUMPED), context.state.get(_cleaned(self.clock))
        wait_us = max(self.every_us or 0, 1)
        if known is not None and (last is None or last < known) and known + wait_us <= context.clock_us:
            return False  # an earlier jump has had its wait, and no cleanup since
        jumped = jumped_us(context)
        return jumped is not None and context.clock_us < jumped + wait_us

    def split(self, context: BatchContext) -> Split:
        """Yield, in a map task's first part, the rows that make every shard run if a cleanup is due."""
        if context.part != 0:
            return
        jumped = None if self.allowed or self.clock != "wall" else jumped_us(context)
        if jumped is not None or JUMPED in context.state:
            yield Counted({JUMP: jumped or 0})
        clock_us = self.due(context)
        if clock_us is not None:
            if self.brake is not None:
                yield Counted({RULE: self.brake.rule})
            yield Everywhere(CLEANUP, pa.table({"clock_us": pa.array([clock_us], pa.int64())}))
            yield Counted({MAX_CLEANED[self.clock]: clock_us})

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when a batch is needed without input; None if none is, for example before the first cleanup."""
        last = state.get(_cleaned(self.clock))
        if self.clock != "wall" or self.every_us is None or last is None:
            return None
        due_us = int(last) if state.get(_UNFINISHED) else (int(last) // self.every_us + 1) * self.every_us
        # In the interval of a jump a batch would remove nothing.
        held_us = int(state[JUMPED]) + self.every_us if JUMPED in state else due_us
        return max(due_us, held_us, int(last) + _LEAST_IDLE_US)


def clock_of(inputs: Inputs) -> int | None:
    """Return the clock of the cleanup in a shard's inputs; None if no cleanup is due."""
    return inputs[CLEANUP]["clock_us"][0].as_py() if CLEANUP in inputs else None


def cleaned_us(stats: Mapping[str, int]) -> int | None:
    """Return the clock of the cleanup of a batch with these numbers; None if it had none."""
    return next((us for clock in _CLOCKS if (us := stats.get(MAX_CLEANED[clock])) is not None), None)


def is_cleaned(stats: Mapping[str, int]) -> bool:
    """Say whether a batch with these numbers had a cleanup."""
    return cleaned_us(stats) is not None


def next_schedule(state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the cleanups' part of the state after a batch with these numbers; empty if there was never a cleanup."""
    told: dict[str, Any] = {}
    for clock in _CLOCKS:
        last = stats.get(MAX_CLEANED[clock], state.get(_cleaned(clock)))
        told |= {} if last is None else {_cleaned(clock): last}
    for name, greatest in ((EXPIRY_LAG, MAX_LAG), (ROUND, MAX_ROUND)):
        # The last cleanup's numbers only: if it had no cursor there is none, for example after a change of the rule.
        last = stats.get(greatest) if is_cleaned(stats) else state.get(name)
        told |= {} if last is None else {name: last}
    left_over = bool(stats.get(LEFT_OVER) if is_cleaned(stats) else state.get(_UNFINISHED))
    told |= {_UNFINISHED: True} if left_over else {}
    told |= next_round(state, stats, cleaned_us(stats), left_over=left_over)
    if SCANNED in stats or RATE in state:
        told[RATE] = next_rate(int(state.get(RATE) or FIRST_RATE), stats.get(SCANNED, 0), stats.get(TOOK, 0))
    return told


def budget(state: Mapping[str, Any], max_duration_us: int) -> int:
    """Return how many rows of a shard a cleanup may look at that is to take so long.

    The budget is of rows, not of time: how many a batch looks at must not depend on how fast the machine is when the batch is
    run again.
    """
    return max(LEAST_ROWS, int(state.get(RATE) or FIRST_RATE) * max_duration_us // 1000)


def next_rate(before: int, scanned: int, took_us: int) -> int:
    """Return the rows a millisecond for the next budget: mostly the old rate, at most doubled, at least 1.

    For example, after a cleanup that read 80,000 rows in 10 milliseconds the rate grows, but no more than doubles:

    >>> next_rate(100, scanned=80_000, took_us=10_000)
    200
    """
    if not scanned:
        return before
    measured = scanned * 1000 // max(took_us, 1)
    return max(1, min(2 * before, (7 * before + 3 * measured) // 10))


def began_of(cursor: Mapping[str, Any], clock_us: int) -> int:
    """Return the clock of the cleanup with which the round began that a shard's cursor is in; this one's if none is."""
    return int(cursor.get(BEGAN, clock_us))


class Stopwatch:
    """Measures the time since it was created, in whole microseconds."""

    def __init__(self) -> None:
        self._began = time.perf_counter_ns()

    @property
    def us(self) -> int:
        """Microseconds."""
        return (time.perf_counter_ns() - self._began) // 1000


def _cleaned(clock: Clock) -> str:
    """Return how the state calls the clock of the last cleanup by this clock."""
    return CLEANED[clock]
