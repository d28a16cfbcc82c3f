"""The layouts that a pipeline's packed states have had, one after the other, and states of an earlier one in the newest.

Tables keep states as they were written; nothing in them is changed if an aggregate is added (docs/rules.md, rule 240).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.added import KNOWN, Added
from sessionlake.aggregates.base import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import LONG
from sessionlake.columnar.arrays import Ints, concatenated


@dataclass(frozen=True)
class Layout:
    """The aggregates in states from a batch on, in their order."""

    since: int
    """The first batch that wrote such states."""
    texts: Mapping[str, str]
    """The aggregates by name, as the config has them."""
    states: Mapping[str, Sequence[str]]
    """By name the types of their state columns, without rare columns: a state tells itself which of their values it has."""
    columns: Sequence[str] = ()
    """The columns of the source that late and archived events have since then."""

    @classmethod
    def of(
        cls, since: int, texts: Mapping[str, str], aggregates: Iterable[Aggregate], columns: Sequence[str] = ()
    ) -> "Layout":
        """Return that of aggregates, whose texts are given."""
        states = {a.name: tuple(str(t) for n, t in enumerate(a.state) if n not in a.rare) for a in aggregates}
        return cls(since, {name: texts[name] for name in states}, states, tuple(columns))

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> "Layout":
        """Return the one of JSON values that `fields` gave."""
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
        """Return by name the state columns of packed states, each with the rare column that may be behind it."""
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
        """Return states of one layout in the newest: its aggregates as they are, the others unknown."""
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
    """Return states that the aggregate had in an earlier layout: in the first one it could not say that it is unknown."""
    plain, states = iter(found), States()
    more = None
    for n in range(len(aggregate.state)):
        if n in aggregate.rare:
            states.append(more)
        else:
            column, more = next(plain, (None, None))
            states.append(pa.array(np.full(rows, KNOWN)) if column is None else column)
    return states
