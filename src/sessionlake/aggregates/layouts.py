"""The layouts of a pipeline's packed states, one after the other, and states of an earlier layout in the newest.

Tables keep states as they were written: an added aggregate changes nothing in them (docs/rules.md, rule 240). A result from
before lacks the added aggregate for its events. One number of the state marks this, and is merged like the rest of the state: so
all results that it merges into have no value of this aggregate (rule 241). Other values are exact.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import LONG
from sessionlake.columnar.arrays import Bools, Groups, Ints, concatenated, starts_of

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
        unknown = groups.any(flags != KNOWN)
        known = np.flatnonzero(~unknown)
        rows = pa.array(np.flatnonzero(~unknown[groups.ids]))
        sizes = groups.sizes[known]
        some = Groups(starts_of(sizes), len(rows), lambda: groups.keys().take(pa.array(known)))
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
        """Return how many known values are beyond their type."""
        known = pa.array(np.flatnonzero(states[-1].to_numpy() == KNOWN))
        return self.inner.beyond([column.take(known) for column in states[:-1]])

    def inverted(self, states: States) -> States | None:
        """Return the inverse of known states; unknown ones stay unknown."""
        known = states[-1].to_numpy() == KNOWN
        rows = pa.array(np.flatnonzero(known))
        inverse = self.inner.inverted([column.take(rows) for column in states[:-1]])
        return None if inverse is None else [*_spread(inverse, known), states[-1]]

    def overdrawn(self, states: States) -> Bools:
        """Say which known states are overdrawn; unknown states may well take back earlier rows."""
        known = states[-1].to_numpy() == KNOWN
        rows = pa.array(np.flatnonzero(known))
        is_overdrawn = np.zeros(len(known), bool)
        is_overdrawn[known] = self.inner.overdrawn([column.take(rows) for column in states[:-1]])
        return is_overdrawn

    def unknown(self, rows: int) -> States:
        """Return as many states of which nothing is known."""
        return [*(pa.nulls(rows, type_) for type_ in self.inner.state), pa.array(np.full(rows, UNKNOWN))]


def _spread(columns: Sequence[pa.Array], at: Bools) -> list[pa.Array]:
    """Return columns with a row for each entry: at true entries the given rows, in order, at the others null."""
    if at.all():
        return [*columns]
    # The k-th true entry takes row k of the columns.
    place = np.where(at, np.cumsum(at) - 1, -1)
    index = pa.array(place, LONG, mask=~at)
    return [column.take(index) for column in columns]


@dataclass(frozen=True)
class Layout:
    """The aggregates in states from a batch on, in their order."""

    since: int
    """The first batch that wrote such states."""
    texts: Mapping[str, str]
    """The aggregates by name, as the config has them."""
    states: Mapping[str, Sequence[str]]
    """State column types by aggregate name, without rare columns: a state itself shows which rare values it has."""
    columns: Sequence[str] = ()
    """The source's columns in late and archived events since then."""

    @classmethod
    def of(
        cls, since: int, texts: Mapping[str, str], aggregates: Iterable[Aggregate], columns: Sequence[str] = ()
    ) -> "Layout":
        """Return the layout of aggregates, by their texts."""
        states = {a.name: tuple(str(t) for n, t in enumerate(a.state) if n not in a.rare) for a in aggregates}
        return cls(since, {name: texts[name] for name in states}, states, tuple(columns))

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Layout":
        """Invert `fields`, from JSON values."""
        states = {name: tuple(types) for name, types in fields["states"].items()}
        return cls(fields["since"], dict(fields["texts"]), states, tuple(fields["columns"]))

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "since": self.since,
            "texts": dict(self.texts),
            "states": {name: list(types) for name, types in self.states.items()},
            "columns": list(self.columns),
        }

    def columns_of(self, packed: pa.Array) -> dict[str, list[tuple[pa.Array, pa.Array | None]]]:
        """Return by name the state columns of packed states, each with the rare column that may follow it."""
        types = {"int64": LONG, "double": pa.float64(), "binary": pa.binary()}
        codec = StateCodec((), [types[text] for of in self.states.values() for text in of], all_rare=True)
        columns = iter(codec.decode(packed))
        return {
            name: [(next(columns), next(columns) if types[text] == LONG else None) for text in of]
            for name, of in self.states.items()
        }


@dataclass(frozen=True)
class Layouts:
    """The layouts of a pipeline, the oldest first, and the aggregates of the newest; pickled to the workers."""

    all: tuple[Layout, ...]
    aggregates: tuple[Aggregate, ...] = field(repr=False)

    @classmethod
    def of(cls, every: Sequence[Layout], aggregates: Sequence[Aggregate]) -> "Layouts | None":
        """Return them; None if there was one layout only, and so nothing to convert."""
        return cls(tuple(every), tuple(aggregates)) if every else None

    def number(self, revision: Ints) -> Ints:
        """Return by which layout the batches of these numbers wrote, as an index."""
        firsts = np.array([layout.since for layout in self.all[1:]], np.int64)
        # The number of layouts that began at or before the revision; layout 0 has no beginning.
        return np.searchsorted(firsts, revision, side="right")

    def newest(self, packed: pa.Array, number: Ints) -> pa.Array:
        """Return packed states, each of the layout of a number, in the newest layout; null stays null.

        Of a layout that is not known nothing can be read: such a state becomes null.
        """
        foreign = number >= len(self.all)
        if foreign.any():
            packed = pc.if_else(pa.array(foreign), pa.scalar(None, packed.type), packed)
        old = (number < len(self.all) - 1) & packed.is_valid().to_numpy(zero_copy_only=False)
        if not old.any():
            return packed
        # Each layout's rows by themselves, then all in their order again.
        parts, places = [], []
        for n in np.unique(number[old]).tolist():
            at = np.flatnonzero(old & (number == n))
            parts.append(self._newest_of(self.all[n], packed.take(pa.array(at))))
            places.append(at)
        rest = np.flatnonzero(~old)
        parts.append(packed.take(pa.array(rest)))
        places.append(rest)
        order = np.empty(len(packed), np.int64)
        order[np.concatenate(places)] = np.arange(len(packed))
        return concatenated(parts).take(pa.array(order))

    def _newest_of(self, layout: Layout, packed: pa.Array) -> pa.Array:
        """Return states of one layout in the newest: aggregates it has as they are, the others unknown."""
        found, rows = layout.columns_of(packed), len(packed)
        states: States = []
        for aggregate in self.aggregates:
            if aggregate.name in found:
                states += _as_of(aggregate, found[aggregate.name], rows)
            elif isinstance(aggregate, Added):
                states += aggregate.unknown(rows)
            else:
                raise TypeError(f"{aggregate.name}: is in none of the first states, and can't say that it is unknown")
        return StateCodec(self.aggregates).encode(states, rows)


def _as_of(aggregate: Aggregate, found: Sequence[tuple[pa.Array, pa.Array | None]], rows: int) -> States:
    """Return states of the aggregate in an earlier layout: its first layout could not mark it as unknown."""
    plain, states = iter(found), States()
    more = None
    for n in range(len(aggregate.state)):
        if n in aggregate.rare:
            states.append(more)
        else:
            column, more = next(plain, (None, None))
            states.append(pa.array(np.full(rows, KNOWN)) if column is None else column)
    return states
