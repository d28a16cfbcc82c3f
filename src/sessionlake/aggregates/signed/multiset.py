"""Aggregates by a multiset of values, so that they can take rows back: min, max, mode, quantile, median and count_distinct.

A value that is taken back may have been the extreme one, so every value is kept. The states grow with the distinct values of
a group.
"""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Events, States
from sessionlake.aggregates.full import between
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import DOUBLE, LONG, from_state, state_type, to_state
from sessionlake.aggregates.sets import Mode
from sessionlake.columnar.arrays import Bools, Groups, Ints, below_zero, exploded, hash64, nullable, packed, validity


class Multiset(Mode):
    """mode(x), and what others compute of the same state: the distinct values, sorted, with how often they came.

    A value that was taken back before it came has a negative number. One that is 0 leaves the state.
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
        """Return the numbers and the values of all rows, flat, and how many values each row has: those that came."""
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
