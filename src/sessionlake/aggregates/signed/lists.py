"""Aggregates that keep every value, or buckets of values, so that they can take rows back.

A value taken back may have been the first, the last or the extreme one. States of collect, collect_set, string_agg, first and
last grow with the rows of a group. A multiset holds those of min, max, mode, quantile, median and count_distinct, which grow with
distinct values. percentile and histogram have DDSketch's buckets, whose counts may be negative for a time.
"""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Events, States
from sessionlake.aggregates.full import between
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.ordered import Collect, alike, ordered, unpack_texts
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, from_state, state_type, to_state
from sessionlake.aggregates.sets import CollectSet, Mode, StringAgg, changes
from sessionlake.aggregates.sketches import BUCKETS, Histogram, Percentile
from sessionlake.columnar.arrays import Bools, Groups, Ints, below_zero, exploded, hash64, nullable, packed, validity


class SignedPercentile(Percentile):
    """percentile(x, p), as `Percentile` has it. A bucket whose count is 0 leaves the state."""

    def _merge_buckets(self, states: States, groups: Groups) -> States:
        (merged,) = super()._merge_buckets(states, groups)
        return [_some(merged, exploded(merged, BUCKETS)[0]["count"] != 0)]

    def inverted(self, states: States) -> States:
        """Negate the counts."""
        buckets, sizes = exploded(states[0], BUCKETS)
        inverse = buckets.copy()
        inverse["count"] = -buckets["count"]
        return [packed(inverse, sizes)]

    def overdrawn(self, states: States) -> Bools:
        """Say which have a bucket with less than no values."""
        buckets, sizes = exploded(states[0], BUCKETS)
        return below_zero(buckets["count"], sizes)

    def value(self, states: States) -> pa.Array:
        """Return the value of the bucket at the rank."""
        return super().value([_some(states[0], exploded(states[0], BUCKETS)[0]["count"] > 0)])


class SignedHistogram(SignedPercentile, Histogram):
    """histogram(x), as `Histogram` has it."""

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        Histogram.__init__(self, name, column, type_)


def _some(column: pa.Array, kept: Bools) -> pa.Array:
    """Return the buckets that are kept."""
    if kept.all():
        return column
    buckets, sizes = exploded(column, BUCKETS)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return packed(buckets[kept], np.bincount(owners[kept], minlength=len(sizes)))


class SignedCollect(Collect):
    """collect(x, limit), as `Collect` has it. Of doubles -0.0 is 0.0.

    The state is the lists of times, ids and values without a limit, each (time, id, value) once, in this order, and a list of
    how often each came.
    """

    state = (*Collect.state, BYTES)
    full_state = True
    by_time = True

    def lift(self, events: Events) -> States:
        """Return a single-value list for each event; empty for null."""
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
        # `starts` are the first of equal entries of a group: what came less what was taken back.
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
        """Return the first values."""
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
        """Return the first or the last value; null if there is none."""
        counts, sizes = exploded(states[-1], np.int64)
        there = np.flatnonzero(counts > 0)
        kept = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[there], minlength=len(sizes))
        # Present values lie row by row: a row's last is before its end.
        ends = np.cumsum(kept)
        rows = pa.array(ends - 1 if self.latest else ends - kept, mask=kept == 0)
        return from_state(self._texts(states)[1].take(pa.array(there)).take(rows), self.value_type)


class Multiset(Mode):
    """mode(x), and what others compute of the same state: the distinct values, sorted, with how often they came.

    A value taken back before it came has a negative number. A number of 0 leaves the state.
    """

    def _merge_counts(self, states: States, groups: Groups) -> States:
        merged = super()._merge_counts(states, groups)
        counts, _ = exploded(merged[0], np.int64)
        return merged if counts.all() else self._packed(*self._some(merged, counts != 0))

    def inverted(self, states: States) -> States:
        """Negate the numbers."""
        counts, sizes = exploded(states[0], np.int64)
        return [packed(-counts, sizes), *states[1:]]

    def overdrawn(self, states: States) -> Bools:
        """Say which have a value less often than never."""
        return below_zero(*exploded(states[0], np.int64))

    def _some(self, states: States, kept: Bools) -> tuple[Ints, pa.Array, Ints]:
        """Return the items that are kept, as `_items` does."""
        counts, values, sizes = self._items(states)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        return counts[kept], values.filter(pa.array(kept)), np.bincount(owners[kept], minlength=len(sizes))

    def present(self, states: States) -> tuple[Ints, pa.Array, Ints]:
        """Return numbers and values of all rows, flat, and how many present values each row has."""
        counts, _ = exploded(states[0], np.int64)
        return self._some(states, counts > 0)

    def value(self, states: States) -> pa.Array:
        """Return the most frequent value; null of none."""
        return super().value(self._packed(*self.present(states)))


class SignedExtreme(Multiset):
    """min(x) or max(x). Of doubles -0.0 is 0.0."""

    def __init__(self, name: str, column: str, type_: pa.DataType, *, largest: bool) -> None:
        super().__init__(name, column, type_)
        self.largest = largest

    def value(self, states: States) -> pa.Array:
        """Return the last or the first value; null of none."""
        _, values, sizes = self.present(states)
        # A row's values are sorted: the first is the least, the value before its end the greatest.
        ends = np.cumsum(sizes)
        rows = pa.array(ends - 1 if self.largest else ends - sizes, mask=sizes == 0)
        return from_state(values.take(rows), self.value_type)


class SignedQuantile(Multiset):
    """quantile(x, p), 0 <= p <= 1, as `Quantile` has it."""

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType, fraction: float) -> None:
        number_type(name, function, column, type_)
        super().__init__(name, column, type_)
        self.fraction, self.value_type = fraction, DOUBLE
        self._unit = 10.0**type_.scale if pa.types.is_decimal(type_) else 1.0

    def value(self, states: States) -> pa.Array:
        """Return the value at the rank; null if there is none."""
        counts, values, sizes = self.present(states)
        some = np.flatnonzero(sizes)
        result = np.zeros(len(sizes))
        if len(some):
            # Positions among all values of all rows, each as often as it came.
            ends = np.cumsum(counts)
            last = ends[np.cumsum(sizes)[some] - 1] - 1
            first = np.concatenate([[0], last[:-1] + 1])
            rank = self.fraction * (last - first)
            below = np.floor(rank).astype(np.int64)
            places = (first + below, np.minimum(first + below + 1, last))
            plain = values.to_numpy(zero_copy_only=False).astype(np.float64) / self._unit
            # Each value stands for as many places as its count; `ends` is the place after its last.
            low, high = (plain[np.searchsorted(ends, place, side="right")] for place in places)
            result[some] = between(low, high, rank - below)
        return pa.array(result, mask=sizes == 0)


class SignedDistinct(Multiset):
    """count_distinct(x), exactly, by 64-bit hashes of the values, whatever the bound."""

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        state_type(type_, name)
        super().__init__(name, column, LONG)

    def _values(self, events: Events) -> pa.Array:
        values = to_state(events.columns[self.inputs[0]])
        return nullable(hash64(values).view(np.int64), validity(values))

    def value(self, states: States) -> pa.Array:
        """Return how many there are."""
        return pa.array(self.present(states)[2])
