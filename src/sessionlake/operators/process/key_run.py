"""The rules of one key: its rows in their order, the timers between and after them, and the state after a failure (rules 341 to 352)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sessionlake.operators.process.api import TIMER_BYTES, Context, Processor, Row, Timer, Timers, order_of
from sessionlake.operators.process.output import OutputColumns
from sessionlake.operators.process.state import KeyState
from sessionlake.operators.process.user_class import failure, opened
from sessionlake.user_code import NOT_THEIRS

MOST_TIMERS = 100_000
"""Timers of a key that may fire in one turn."""


@dataclass(frozen=True)
class Sent:
    """A row that a processor sends, with its identity."""

    key: str
    time_us: int
    position: int
    ordinal: int
    values: Row


@dataclass(frozen=True)
class FailedRow:
    """A row that is a dead letter: its number among the shard's rows."""

    row: int
    reason: str


@dataclass(frozen=True)
class FailedTimer:
    """A timer that is a dead letter."""

    key: str
    timer: Timer
    reason: str


@dataclass(frozen=True)
class Limits:
    """The times that timers are held against in a batch, and the limits of a pipeline."""

    event_us: int
    """Event-time timers strictly before it are due at the end of the batch."""
    clock_us: int
    """Clock timers up to it are due, inclusive."""
    retention_us: int
    max_state_bytes: int


@dataclass
class ShardRun:
    """A processor over keys of one shard, one after another; collects the rows that it sends and the failures."""

    processor: Processor
    context: Context
    columns: OutputColumns
    limits: Limits
    path: str
    """The class, as the config names it."""
    sent: list[Sent] = field(default_factory=list)
    failed_rows: list[FailedRow] = field(default_factory=list)
    failed_timers: list[FailedTimer] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    """The rows that `process_table` sends."""
    fired: int = 0
    """Timers that fired."""

    def __post_init__(self) -> None:
        self.timers = Timers()
        self.timers.clock_us = self.limits.clock_us
        opened(self.path, self.processor, self.context)

    def run(self, key: str, state: KeyState, rows: Iterable[tuple[int, int, int, Row]]) -> KeyState:
        """Return the state of a key after rows (number, position, time, values) in their order and after the batch's timers."""
        one = KeyRun(self, key, state)
        for number, position, time_us, row in rows:
            one.process(number, position, time_us, row)
        one.end()
        return one.state

    def before(self, key: str, state: KeyState, time_us: int) -> KeyState:
        """Return the state of a key after the timers that are due before a row at a time."""
        one = KeyRun(self, key, state)
        one.fire_before(time_us)
        return one.state


class KeyRun:
    """One key's turn in a batch."""

    def __init__(self, shard: ShardRun, key: str, state: KeyState) -> None:
        self._shard, self.key, self.state = shard, key, state
        self._size = 0
        self._bind()

    def process(self, number: int, position: int, time_us: int, row: Row) -> None:
        """Process a row, after the timers before it."""
        self.fire_before(time_us)
        state, shard = self.state, self._shard
        # What the row sends is named by it; if the row fails, its number is in use nowhere.
        before = state.position, state.ordinal, state.touched_us
        state.touched_us = time_us if state.is_empty else max(state.touched_us, time_us)
        state.position, state.ordinal = position, 0
        reason = self._called(shard.processor.process, self.key, row, time_us)
        if reason is not None:
            state.position, state.ordinal, state.touched_us = before
            shard.failed_rows.append(FailedRow(number, reason))

    def end(self) -> None:
        """Fire the timers that are due at the end of the batch."""
        limits = self._shard.limits
        self.fire_before(limits.event_us)
        budget = MOST_TIMERS
        while (timer := self._first(clock=True)) is not None and timer.at_us <= limits.clock_us:
            self._fire(timer, budget)
            budget -= 1
            self.fire_before(limits.event_us)

    def fire_before(self, time_us: int) -> None:
        """Fire event-time timers that are strictly before a time; state without timers whose time is over goes."""
        budget = MOST_TIMERS
        while (timer := self._first(clock=False)) is not None and timer.at_us < time_us:
            self._fire(timer, budget)
            budget -= 1
        state = self.state
        if not state.timers and not state.is_empty and state.touched_us + self._shard.limits.retention_us < time_us:
            self.state = KeyState()
            self._bind()

    def _fire(self, timer: Timer, budget: int) -> None:
        state, shard, timers = self.state, self._shard, self._shard.timers
        timers.cancel(timer.name)
        state.timers = timers.keep()
        if not timer.clock:
            state.touched_us = max(state.touched_us, timer.at_us)
        timers.fired = timer
        try:
            if budget <= 0:
                reason: str | None = f"class {shard.path}: more than {MOST_TIMERS} timers of the key fired in one turn"
            else:
                reason = self._called(shard.processor.on_timer, self.key, timer.at_us, timer.at_us)
        finally:
            timers.fired = None
        shard.fired += 1
        if reason is not None:
            shard.failed_timers.append(FailedTimer(self.key, timer, reason))

    def _called(self, method: Callable[..., Iterable[Row] | None], key: str, given: Any, time_us: int) -> str | None:
        """Call a method of the user's and keep its changes; undo them and return the reason if it fails."""
        shard, state = self._shard, self.state
        rows: Iterable[Row] | None = None
        try:
            rows = method(key, given, shard.timers, shard.context.stores[""])
            sent = [shard.columns.checked(row) for row in rows or ()]
            self._keep()
        except NOT_THEIRS:
            raise
        except BaseException as error:  # noqa: BLE001 (a user's code raises what it likes)
            self._undo()
            return failure(shard.path, shard.processor, error, rows)
        for values in sent:
            state.ordinal += 1
            shard.sent.append(Sent(key, time_us, state.position, state.ordinal, values))
        return None

    def _keep(self) -> None:
        """Make the changes part of the state; ValueError, before anything is changed, if it is too large then."""
        shard, stores = self._shard, self._shard.context.stores
        size = self._size + sum(store.growth for store in stores.values())
        if size + TIMER_BYTES * len(shard.timers) > shard.limits.max_state_bytes:
            raise ValueError(f"the key's state is larger than max_state_bytes, {shard.limits.max_state_bytes}")
        for store in stores.values():
            store.keep()
        self.state.timers, self._size = shard.timers.keep(), size

    def _undo(self) -> None:
        for store in self._shard.context.stores.values():
            store.undo()
        self._shard.timers.undo()

    def _bind(self) -> None:
        """Give the stores and timers this state's."""
        self._size = self.state.entry_bytes
        for name, store in self._shard.context.stores.items():
            store.begin(self.state.entries.setdefault(name, {}))
        self._shard.timers.begin(self.state.timers)

    def _first(self, *, clock: bool) -> Timer | None:
        pending = (timer for timer in self.state.timers.values() if timer.clock == clock)
        return min(pending, key=order_of, default=None)
