"""Which windows a batch sends: early, full and late firings, and how far a pipeline has come. Times are microseconds.

A window with end e (exclusive) is current until the published frontier has passed e, then past, and closed once e lies at or
before the close, W - grace. Two numbers of each slice decide which windows a batch sends, its last change and how far
the frontier had come then (`reach`): every accepted event of a slice enters all open windows that have the slice, so that no
window needs its own flag (docs/rules.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.engine.operator import StateStat
from sessionlake.operators.shared.windowing.policies import BATCH, END, Policies
from sessionlake.operators.shared.windowing.retained_counts import Cells, RetainedCounts
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK, watermark_of
from sessionlake.warehouse.batch_commit import WATERMARK

EARLY, FULL, LATE, RESTATE = "early", "full", "late", "restate"
"""Triggers: why a window is sent."""
FOREVER, EVER = 1 << 61, -(1 << 61)
MAX_CLOCK, MAX_BATCH = StateStat("max_clock", greatest=True), StateStat("max_batch", greatest=True)
"""Numbers of a batch in which a shard ran: its clock and its id."""
KEPT = "kept_us"
"""The name of `Progress.kept_us` in a state."""
UNSENT_EARLY, UNSENT_LATE = "unsent_early", "unsent_late"
"""Numbers of a batch: slices that changed and whose windows are not sent yet."""
WAITING = {"early": "E", "late": "L"}
"""The stores' letters of the lists of what has early, and late changes that are not sent yet. Without early ticks the first is empty."""
CURRENT = "F"
"""The letter of the lists of all that is current, changed or not: it is sent when it is full."""
LISTS = (WAITING["early"], CURRENT, WAITING["late"])
"""All letters, ascending."""


@dataclass(frozen=True)
class Progress:
    """How far a pipeline has come after a batch; kept in the state of its commit. None of the times goes back."""

    watermark_us: int = NO_WATERMARK
    full_us: int = NO_WATERMARK
    """Windows with ends at or before it are full."""
    close_us: int = NO_WATERMARK
    """Windows with ends at or before it are closed: no event changes them."""
    expired_us: int = NO_WATERMARK
    """Events strictly before it are beyond retention."""
    clock_us: int | None = None
    """The clock of the last batch that a shard ran in."""
    early_batch: int = -1
    late_batch: int = -1
    """The last batches with an early and a late tick: later changes are not sent yet."""
    unsent_early: int = 0
    unsent_late: int = 0
    """How many slices changed since these ticks, at least one if any did."""
    emit: tuple[str | int, ...] = ()
    """The policies of the last batch."""
    cells: Cells = ()
    """How many accepted events lie in which stretches of time, if a retention by number is given."""
    kept_us: int = NO_WATERMARK
    """The time of the oldest events that are kept; from the next batch on, an older event is beyond retention."""
    lists_from: int | None = None
    """The first batch that kept the lists of CURRENT; None before it. What no batch has changed since is in none of them."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Progress":
        """Return the progress in a commit's state; before the first batch, that of an empty state."""
        found = {name: state[name] for name in cls.__dataclass_fields__ if name in state and name != WATERMARK}
        cells = tuple((int(start), int(count)) for start, count in found.get("cells", ()))
        return cls(watermark_us=watermark_of(state), **{**found, "emit": tuple(found.get("emit", ())), "cells": cells})

    def state(self) -> dict[str, Any]:
        """Return the JSON values for the state."""
        known = None if self.watermark_us == NO_WATERMARK else self.watermark_us
        return {**vars(self), WATERMARK: known, "emit": list(self.emit)}

    def lists_from_in(self, batch_id: int) -> int:
        """Return the first batch that kept the lists of CURRENT, in a batch that does."""
        return batch_id if self.lists_from is None else self.lists_from

    def horizon_us(self, span_us: int) -> int:
        """Return the time before whose strict past slices are absent: no window that events change has one."""
        return self.expired_us - span_us


@dataclass(frozen=True)
class Ticks:
    """Which policies fire in a batch."""

    early: bool
    late: bool


def ticks_of(emit: Policies, before: Progress, clock_us: int, *, flush: bool) -> Ticks:
    """Say which policies fire: a period's tick comes in the batch in which the clock has passed a multiple of the period.

    `flush` makes every period fire, as at the end of a finite run; so does a change of policies.
    """
    forced = flush or before.emit not in ((), _policies(emit))
    offset = emit.tick_offset

    def fires(policy: str | int) -> bool:
        if not isinstance(policy, int):
            return policy == BATCH
        return forced or (
            before.clock_us is not None and (clock_us - offset) // policy > (before.clock_us - offset) // policy
        )

    return Ticks(fires(emit.early), fires(emit.late))


def after_batch(
    emit: Policies, grace_us: int, retention_us: int, before: Progress, frontier_us: int, clock_us: int | None
) -> Progress:
    """Return how far the pipeline is after a batch whose events, and those before, reach up to a frontier."""
    reached = max(before.watermark_us, frontier_us)
    expired = max(before.expired_us, before.kept_us, reached - retention_us)
    close = max(before.close_us, reached - grace_us, expired)
    full = max(before.full_us, reached if emit.full == END else close)
    clock = before.clock_us if clock_us is None else clock_us
    return Progress(reached, full, close, expired, clock, before.early_batch, before.late_batch, emit=_policies(emit))


def next_progress(
    emit: Policies,
    grace_us: int,
    retention_us: int,
    before: Progress,
    stats: Mapping[str, int],
    keeping: RetainedCounts | None = None,
) -> Progress:
    """Return how far the pipeline is after a batch with these numbers, of map tasks and shards."""
    frontier = max(stats.get(MAX_TIME, NO_WATERMARK), stats.get(MAX_ADVANCE, NO_WATERMARK))
    clock = stats.get(MAX_CLOCK)
    after = after_batch(emit, grace_us, retention_us, before, frontier, clock)
    if keeping is not None:
        cells = keeping.cells_after(before.cells, stats, after.expired_us)
        kept_us = max(before.kept_us, keeping.kept_from(cells, after.watermark_us))
        after = replace(after, cells=cells, kept_us=kept_us)
    if clock is None:
        # No shard ran: changes that wait still do, and a change of policies has yet to take effect.
        return replace(
            after,
            unsent_early=before.unsent_early,
            unsent_late=before.unsent_late,
            emit=before.emit,
            lists_from=before.lists_from,
        )
    if emit.updates:
        return after
    ticks = ticks_of(emit, before, clock, flush=MAX_FLUSH in stats)
    early, late = (0 if ticks.early else before.unsent_early), (0 if ticks.late else before.unsent_late)
    return replace(
        after,
        early_batch=stats[MAX_BATCH] if ticks.early else before.early_batch,
        late_batch=stats[MAX_BATCH] if ticks.late else before.late_batch,
        lists_from=before.lists_from_in(stats[MAX_BATCH]),
        unsent_early=early + stats.get(UNSENT_EARLY, 0),
        unsent_late=late + stats.get(UNSENT_LATE, 0),
    )


def due_us(emit: Policies, state: Mapping[str, Any]) -> int | None:
    """Return when the next tick is due that has something to send; None if none is."""
    at = Progress.of(state)
    waiting = ((emit.early, at.unsent_early), (emit.late, at.unsent_late))
    periods = [period for period, unsent in waiting if isinstance(period, int) and unsent]
    if at.clock_us is None:
        return None
    since = at.clock_us - emit.tick_offset
    return min(((since // period + 1) * period + emit.tick_offset for period in periods), default=None)


@dataclass(frozen=True)
class Firing:
    """A class of windows that a batch may send: those with ends in (low, high] that changed since some batch."""

    trigger: str
    low_us: int
    high_us: int
    since: int
    """Changes in later batches are not sent yet; EVER if windows are sent without a change, too."""
    lists: Sequence[str] = ()
    """The letters of the lists in which those wait that earlier batches changed."""
    reached: bool = False
    """Whether only changes count that came after the frontier had passed the window's end."""

    def due(self, end: Ints, revision: Ints, reach: Ints) -> Bools:
        """Say which of some results are sent, by their end, the batch of their last change and the frontier before that.

        >>> import numpy as np
        >>> firing = Firing(EARLY, 10, 20, since=3)
        >>> firing.due(np.array([20, 20, 21]), np.array([4, 3, 4]), np.array([0, 0, 0])).tolist()
        [True, False, False]
        """
        found: Bools = (end > self.low_us) & (end <= self.high_us) & (revision > self.since)
        return found & (reach >= end) if self.reached else found


def firings(emit: Policies, before: Progress, after: Progress, ticks: Ticks, batch_id: int) -> list[Firing]:
    """Return the firings of a batch, in order of the windows' ends, latest first."""
    if emit.updates:
        since = batch_id - 1
        return [
            Firing(EARLY, before.watermark_us, FOREVER, since),
            Firing(LATE, before.close_us, before.watermark_us, since),
        ]
    # Changes may wait since a time before the policies were changed. Their count decides, not the policies.
    early = (WAITING["early"],) if before.unsent_early else ()
    late = (WAITING["late"],) if before.unsent_late else ()
    found = []
    if ticks.early:
        found.append(Firing(EARLY, after.full_us, FOREVER, before.early_batch, early))
    if after.full_us > before.full_us:
        # Also what an early tick has sent in its last form: a result says once that it is full. Of stores of an earlier
        # release the other list has what was not sent.
        found.append(Firing(FULL, before.full_us, after.full_us, EVER, (CURRENT, *early)))
    high = before.full_us if ticks.late else min(after.close_us, before.full_us)
    if high > before.close_us:
        found.append(Firing(LATE, before.close_us, high, before.late_batch, late, reached=True))
    return found


def corrected(before: Progress, batch_id: int) -> Firing:
    """Return the firing of a batch that sends the closed windows which its corrections change."""
    return Firing(RESTATE, -FOREVER, before.close_us, batch_id - 1)


def sent_since(before: Progress, end: Ints, revision: Ints, reach: Ints) -> Bools:
    """Say which stored results were sent in the batch of their last change or since; by `before`, how far the pipeline is.

    It holds for results that wait to be sent, in pipelines that send by policy.
    """
    current = (revision <= before.early_batch) | (end <= before.full_us)
    past = (revision <= before.late_batch) | (end <= before.close_us)
    return np.where(end > reach, current, past)


def _policies(emit: Policies) -> tuple[str | int, ...]:
    return emit.early, emit.full, emit.late, emit.tick_offset
