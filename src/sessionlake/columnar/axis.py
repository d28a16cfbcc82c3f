"""Points of many keys on one axis, found by key and place at once."""

import numpy as np

from sessionlake.columnar.arrays import Ints, distinct

_ROOM = 1 << 62


class Axis:
    """Points in columns, ascending by (code, place); `codes` say which of some keys each belongs to."""

    def __init__(self, codes: Ints, place: Ints) -> None:
        self._low, high = (int(place.min()), int(place.max())) if len(place) else (0, 0)
        self._width = high - self._low + 2
        self._codes = int(codes.max(initial=-1)) + 1
        self._distinct: Ints | None = None
        if (self._codes + 1) * self._width >= _ROOM:
            # Places too far apart to share 63 bits with the code: their ranks take their place.
            self._distinct = distinct(place)
            self._width = len(self._distinct) + 1
        self._at = self._number(codes, place)

    def find(self, codes: Ints, place: Ints) -> Ints:
        """Return the first row of each code that lies at or after a place; the code's end where none does."""
        return np.searchsorted(self._at, self._number(codes, place))

    def between(self, codes: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the rows [first, end) of each code in the places [low, high]; end may lie before first where high does."""
        return self.find(codes, low), self.find(codes, high + 1)

    def _number(self, codes: Ints, place: Ints) -> Ints:
        # Codes that have no points are all alike: the largest of them would not go into 63 bits with the place.
        lifted = np.minimum(codes, self._codes) * self._width
        if self._distinct is not None:
            return lifted + np.searchsorted(self._distinct, place)
        return lifted + np.clip(place - self._low, 0, self._width - 1)
