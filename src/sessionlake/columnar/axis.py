"""Points of many keys on one axis, searched by key and place at once, and the greatest value of each of many ranges of rows."""

import numpy as np

from sessionlake.columnar.arrays import Ints, distinct


def range_max(values: Ints, low: Ints, high: Ints) -> Ints:
    """Return the greatest of values[low[i] : high[i]] for each i; no range is empty.

    It takes O((values + ranges) log longest), however much the ranges overlap.

    >>> range_max(np.array([3, 9, 1, 4]), np.array([0, 2, 0]), np.array([4, 4, 1])).tolist()
    [9, 4, 3]
    """
    # A sparse table: level j has the maxima of `width` = 2^j consecutive values. Two maxima, one from each end, cover any
    # range whose length is in [width, 2 * width). They may overlap, which does not change a maximum.
    greatest = np.empty(len(low), np.int64)
    length = high - low
    level, width = values, 1
    while True:
        at = np.flatnonzero((length >= width) & (length < 2 * width))
        greatest[at] = np.maximum(level[low[at]], level[high[at] - width])
        if 2 * width > length.max(initial=0):
            return greatest
        level = np.maximum(level[:-width], level[width:])
        width *= 2


_ROOM = 1 << 62


class Axis:
    """Points in columns, ascending by (code, place); a code is the number of the point's key.

    A place is, for example, the time of an event in microseconds.

    >>> axis = Axis(np.array([0, 0, 1]), np.array([10, 20, 15]))
    >>> axis.find(np.array([0, 0, 1]), np.array([11, 21, 0])).tolist()
    [1, 2, 2]
    """

    def __init__(self, codes: Ints, place: Ints) -> None:
        self._low, high = (int(place.min()), int(place.max())) if len(place) else (0, 0)
        # A point's number is code * width + (place - low). Places below all points get the lowest place's number, and
        # places above all points get width - 1, which no point has: hence 2 and not 1.
        self._width = high - self._low + 2
        self._codes = int(codes.max(initial=-1)) + 1
        self._distinct: Ints | None = None
        if (self._codes + 1) * self._width >= _ROOM:
            # The places are too far apart to fit in 63 bits with the code, so their ranks are used instead.
            self._distinct = distinct(place)
            self._width = len(self._distinct) + 1
        self._at = self._number(codes, place)

    def find(self, codes: Ints, place: Ints) -> Ints:
        """Return each code's first row at or after a place; the code's end if there is none."""
        # Points ascend by (code, place), which one number has.
        return np.searchsorted(self._at, self._number(codes, place))

    def between(self, codes: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the rows [first, end) of each code in the places [low, high]; end may lie before first if high does."""
        return self.find(codes, low), self.find(codes, high + 1)

    def _number(self, codes: Ints, place: Ints) -> Ints:
        # All codes above the last one with points are searched as one: a larger code might not fit in 63 bits with the place.
        lifted = np.minimum(codes, self._codes) * self._width
        if self._distinct is not None:
            # The places are too far apart for the number: their ranks stand for them.
            return lifted + np.searchsorted(self._distinct, place)
        return lifted + np.clip(place - self._low, 0, self._width - 1)
