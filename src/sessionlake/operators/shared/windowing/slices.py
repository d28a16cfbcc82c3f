"""A shard's slices and windows as columns: pairs of a key and a place on an axis, windows over slices, and their states."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import merge_ranges
from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.groups import group_events
from sessionlake.store.slices import Slices


@dataclass(frozen=True)
class Pairs:
    """Pairs of a key's code and a time.

    >>> pairs = Pairs(np.array([1, 0, 1]), np.array([5, 7, 5])).distinct()
    >>> pairs.codes.tolist(), pairs.time.tolist()
    ([0, 1], [7, 5])
    """

    codes: Ints
    time: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints | Bools) -> "Pairs":
        """Return the given rows, in that order."""
        return Pairs(self.codes[rows], self.time[rows])

    def distinct(self) -> "Pairs":
        """Return each pair once, ascending."""
        if len(self) < 2:
            return self
        order, starts = group_events(self.codes, self.time, 0)
        return self.take(order[starts])


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Return the pairs of all parts."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return some[0] if some else NO_PAIRS
    return Pairs(np.concatenate([part.codes for part in some]), np.concatenate([part.time for part in some]))


def are_among(pairs: Pairs, others: Pairs) -> Bools:
    """Say which pairs are among the others.

    >>> are_among(Pairs(np.array([0, 0]), np.array([5, 6])), Pairs(np.array([0]), np.array([6]))).tolist()
    [False, True]
    """
    if not len(pairs) or not len(others):
        return np.zeros(len(pairs), bool)
    rest = others.distinct()
    at = Axis(rest.codes, rest.time).find(pairs.codes, pairs.time)
    # find() gives the place at which a pair stands or would stand; it is there only if the pair at that place is equal.
    found: Bools = at < len(rest)
    at = at[found]
    found[found] = (rest.codes[at] == pairs.codes[found]) & (rest.time[at] == pairs.time[found])
    return found


@dataclass(frozen=True)
class Windows:
    """Windows to be sent: key's code, start, exclusive end; the slices [low, high) that they are made of; and why."""

    codes: Ints
    start: Ints
    end: Ints
    low: Ints
    high: Ints
    trigger: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints) -> "Windows":
        """Return the given rows, in that order."""
        codes, start, end, low, high = (c[rows] for c in (self.codes, self.start, self.end, self.low, self.high))
        return Windows(codes, start, end, low, high, self.trigger.take(pa.array(rows)))


_NONE = np.zeros(0, np.int64)
NO_WINDOWS = Windows(_NONE, _NONE, _NONE, _NONE, _NONE, pa.array([], pa.string()))


def together(parts: Sequence[Windows]) -> Windows:
    """Return the windows of all parts."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return some[0] if some else NO_WINDOWS
    codes, start, end, low, high = (
        np.concatenate([getattr(part, name) for part in some]) for name in ("codes", "start", "end", "low", "high")
    )
    return Windows(codes, start, end, low, high, pa.concat_arrays([part.trigger for part in some]))


def is_at(slices: Slices, rows: Ints, pairs: Pairs) -> Bools:
    """Say which pairs of a code and a start are the slices at some rows; a row may be one after the last."""
    found = rows < len(slices)
    at = rows[found]
    found[found] = (slices.codes[at] == pairs.codes[found]) & (slices["start"][at] == pairs.time[found])
    return found


class SliceAxis(Axis):
    """A shard's slices, ascending by (code, start): finds rows by key and time."""

    def __init__(self, slices: Slices) -> None:
        super().__init__(slices.codes, slices["start"])
        self._slices = slices

    def rows_of(self, pairs: Pairs) -> Ints:
        """Return the rows of those pairs (code, start) that have a slice."""
        rows = self.find(pairs.codes, pairs.time)
        return rows[is_at(self._slices, rows, pairs)]


def states_of(aggregates: Sequence[Aggregate], slices: Slices, windows: Windows, keys: pa.Array) -> tuple[Ints, States]:
    """Return the number of events and the aggregate states of windows, merged from those of their slices."""
    used = np.zeros(len(slices) + 1, np.int64)
    # +1 at each window's first slice and -1 after its last one: the running sum is the number of windows with a slice.
    # Only slices of some window are unpacked.
    np.add.at(used, windows.low, 1)
    np.add.at(used, windows.high, -1)
    rows = np.flatnonzero(np.cumsum(used)[:-1])
    # All slices [low, high) of a window are among `rows`, so they stay adjacent there.
    place = np.searchsorted(rows, windows.low)
    length = windows.high - windows.low
    sums = np.concatenate([[0], np.cumsum(slices["count"])])
    states = StateCodec(aggregates).decode(slices.state.take(pa.array(rows)))
    of_rows = keys.take(pa.array(slices.codes[rows]))
    return sums[windows.high] - sums[windows.low], merge_ranges(aggregates, states, place, place + length, of_rows)
