"""An aggregate that was added to a pipeline which has results: its value is exact, or null as long as it is not known.

A result from before has events of which the aggregate was never computed. One number of the state says so. It is merged like
the rest of the state, so whatever such a result grows into has no value either (docs/rules.md, rule 241).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.scalars import LONG
from sessionlake.columnar.arrays import Bools, Groups

KNOWN, UNKNOWN = 0, 1
"""The last number of the state."""


class Added(Aggregate):
    """An aggregate whose state says whether its value is known; see `Aggregate` for the methods.

    `since` is the first batch whose events have all columns that it reads, as the tables of late and archived events have them.

    >>> from sessionlake.aggregates.numeric import Count
    >>> added = Added(Count("clicks", None))
    >>> states = [pa.array([3, 4]), pa.array([KNOWN, UNKNOWN])]
    >>> added.value(states).to_pylist()
    [3, None]
    >>> [column.to_pylist() for column in added.merge(states, Groups(np.array([0]), 2))]
    [[None], [1]]
    """

    def __init__(self, inner: Aggregate, since: int = 0) -> None:
        self.inner, self.since = inner, since
        self.name, self.value_type, self.inputs = inner.name, inner.value_type, inner.inputs
        self.state = (*inner.state, LONG)
        self.rare, self.full_state, self.plain, self.spans_keys = (
            inner.rare,
            inner.full_state,
            inner.plain,
            inner.spans_keys,
        )
        self.one = None if inner.one is None else self._one(inner.one)

    @staticmethod
    def _one(inner: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
        return lambda state: None if state[-1] else inner(state[:-1])

    def __getstate__(self) -> tuple[Aggregate, int]:
        """Return what makes it again: functions of `one` can't be pickled."""
        return self.inner, self.since

    def __setstate__(self, made_of: tuple[Aggregate, int]) -> None:
        """Make it again."""
        Added.__init__(self, *made_of)

    def lift(self, events: Events) -> States:
        """Return each event's state. An event that a batch before `since` stored lacks a column, and is unknown."""
        known = np.ones(len(events.time_us), bool) if events.batch is None else events.batch >= self.since
        some = events if known.all() else events.take(np.flatnonzero(known))
        return [*_spread(self.inner.lift(some), known), pa.array(np.where(known, KNOWN, UNKNOWN))]

    def merge(self, states: States, groups: Groups) -> States:
        """Merge groups of which all is known; the others have no state."""
        flags = states[-1].to_numpy()
        if not flags.any():
            return [*self.inner.merge(states[:-1], groups), pa.array(np.full(len(groups.starts), KNOWN))]
        unknown = np.logical_or.reduceat(flags != KNOWN, groups.starts)
        known = np.flatnonzero(~unknown)
        rows = pa.array(np.flatnonzero(~unknown[groups.ids]))
        sizes = groups.sizes[known]
        some = Groups(np.cumsum(sizes) - sizes, len(rows), lambda: groups.keys().take(pa.array(known)))
        merged = [column.take(rows) for column in states[:-1]]
        if len(known):
            merged = self.inner.merge(merged, some)
        return [*_spread(merged, ~unknown), pa.array(np.where(unknown, UNKNOWN, KNOWN))]

    def value(self, states: States) -> pa.Array:
        """Return the values that are known."""
        flags = states[-1].to_numpy()
        if not flags.any():
            return self.inner.value(states[:-1])
        known = flags == KNOWN
        rows = pa.array(np.flatnonzero(known))
        return _spread([self.inner.value([column.take(rows) for column in states[:-1]])], known)[0]

    def beyond(self, states: States) -> int:
        """Return how many values that are known are beyond their type."""
        known = pa.array(np.flatnonzero(states[-1].to_numpy() == KNOWN))
        return self.inner.beyond([column.take(known) for column in states[:-1]])

    def inverted(self, states: States) -> States | None:
        """Return the inverse of those that are known; what is unknown stays so."""
        known = states[-1].to_numpy() == KNOWN
        rows = pa.array(np.flatnonzero(known))
        inverse = self.inner.inverted([column.take(rows) for column in states[:-1]])
        return None if inverse is None else [*_spread(inverse, known), states[-1]]

    def overdrawn(self, states: States) -> Bools:
        """Say it of states that are known: from the others rows of before are taken back."""
        known = states[-1].to_numpy() == KNOWN
        rows = pa.array(np.flatnonzero(known))
        found = np.zeros(len(known), bool)
        found[known] = self.inner.overdrawn([column.take(rows) for column in states[:-1]])
        return found

    def unknown(self, rows: int) -> States:
        """Return as many states of which nothing is known."""
        return [*(pa.nulls(rows, type_) for type_ in self.inner.state), pa.array(np.full(rows, UNKNOWN))]


def _spread(columns: Sequence[pa.Array], at: Bools) -> list[pa.Array]:
    """Return columns with a row for each entry: their own rows, in order, at the true ones, and null at the others."""
    if at.all():
        return [*columns]
    place = np.where(at, np.cumsum(at) - 1, -1)
    index = pa.array(place, LONG, mask=~at)
    return [column.take(index) for column in columns]
