"""Ranges of consecutive rows that overlap, and the greatest value in each."""

import numpy as np

from sessionlake.columnar.arrays import Ints


def range_max(values: Ints, low: Ints, high: Ints) -> Ints:
    """Return the greatest of values[low[i] : high[i]] for each i; no range is empty.

    By a sparse table: level j has the maxima of 2^j consecutive values, and two of them cover any range. It takes
    O((values + ranges) log longest), however much the ranges overlap.
    """
    found = np.empty(len(low), np.int64)
    length = high - low
    level, width = values, 1
    while True:
        at = np.flatnonzero((length >= width) & (length < 2 * width))
        found[at] = np.maximum(level[low[at]], level[high[at] - width])
        if 2 * width > length.max(initial=0):
            return found
        level = np.maximum(level[:-width], level[width:])
        width *= 2
