"""collect, collect_set, string_agg, first and last that can take rows back.

A value that is taken back may have been the first or last one, so every value is kept. The states grow with the rows of a group.
"""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Events, States
from sessionlake.aggregates.by import alike, ordered
from sessionlake.aggregates.ordered import Collect, unpack_texts
from sessionlake.aggregates.scalars import BYTES, from_state
from sessionlake.aggregates.sets import CollectSet, StringAgg, changes
from sessionlake.columnar.arrays import Bools, Groups, Ints, below_zero, exploded, packed


class SignedCollect(Collect):
    """collect(x, limit), as `Collect` has it. Of doubles -0.0 is 0.0.

    The state is the lists of times, ids and values without a limit, each (time, id, value) once, in this order, and a list of
    how often each came.
    """

    state = (*Collect.state, BYTES)
    full_state = True
    by_time = True

    def lift(self, events: Events) -> States:
        """Return a list of one value for each event; empty if it is null."""
        lists = super().lift(events)
        times, sizes = exploded(lists[0], np.int64)
        return [*lists, packed(np.ones(len(times), np.int64), sizes)]

    def _values(self, events: Events) -> pa.Array:
        return alike(super()._values(events))

    def _merge_lists(self, states: States, groups: Groups) -> States:
        times, sizes = exploded(states[0], np.int64)
        if not len(times):
            return [column.take(pa.array(groups.starts)) for column in states]
        ids, values = self._texts(states)
        counts, _ = exploded(states[-1], np.int64)
        keys = (np.repeat(groups.ids, sizes), times, self.id_order.ranks(ids), ordered(values))
        order = np.lexsort(keys[::-1])
        starts = np.flatnonzero(changes(*(key[order] for key in keys)))
        totals = np.add.reduceat(counts[order], starts)
        rows = order[starts[totals != 0]]
        kept = np.bincount(keys[0][rows], minlength=len(groups.starts))
        return [*self._listed(rows, times, ids, values, kept), packed(totals[totals != 0], kept)]

    def inverted(self, states: States) -> States:
        """Negate how often each came."""
        counts, sizes = exploded(states[-1], np.int64)
        return [*states[:-1], packed(-counts, sizes)]

    def overdrawn(self, states: States) -> Bools:
        """Say which have a value less often than never."""
        return below_zero(*exploded(states[-1], np.int64))

    def value(self, states: States) -> pa.Array:
        """Return the value of the first ones."""
        times, sizes = exploded(states[0], np.int64)
        counts, _ = exploded(states[-1], np.int64)
        rows = np.repeat(np.arange(len(times)), np.maximum(counts, 0))
        kept = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[rows], minlength=len(sizes))
        every = self._listed(rows, times, *self._texts(states), kept)
        return super().value(super()._merge_lists(every, Groups(np.arange(len(sizes)), len(sizes))))

    def _texts(self, states: States) -> tuple[pa.Array, pa.Array]:
        """Return the ids and the values, flat."""
        return unpack_texts(states[1], states[2], BYTES), unpack_texts(states[3], states[4], self.item_state)

    def _listed(self, rows: Ints, times: Ints, ids: pa.Array, values: pa.Array, sizes: Ints) -> States:
        """Return some rows as lists of these sizes."""
        return self._packed(times[rows], ids.take(pa.array(rows)), values.take(pa.array(rows)), sizes)


class SignedSet(SignedCollect, CollectSet):
    """collect_set(x, limit), as `CollectSet` has it."""


class SignedTexts(SignedCollect, StringAgg):
    """string_agg(x, separator, limit), as `StringAgg` has it."""


class SignedEdge(SignedCollect):
    """first(x) or last(x), as `Edge` has it."""

    def __init__(self, name: str, column: str, type_: pa.DataType, *, latest: bool) -> None:
        super().__init__(name, column, type_, 1)
        self.latest, self.value_type = latest, type_

    def value(self, states: States) -> pa.Array:
        """Return the value of the first or the last one; null of none."""
        counts, sizes = exploded(states[-1], np.int64)
        there = np.flatnonzero(counts > 0)
        kept = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[there], minlength=len(sizes))
        ends = np.cumsum(kept)
        rows = pa.array(ends - 1 if self.latest else ends - kept, mask=kept == 0)
        return from_state(self._texts(states)[1].take(pa.array(there)).take(rows), self.value_type)
