"""Ranges of consecutive rows that overlap, and the greatest value in each."""

import numpy as np

from sessionlake.columnar.arrays import Ints


def range_max(values: Ints, low: Ints, high: Ints) -> Ints:
    """Return the greatest of values[low[i] : high[i]] for each i; no range is empty.

    It takes O((values + ranges) log longest), however much the ranges overlap.

    >>> range_max(np.array([3, 9, 1, 4]), np.array([0, 2, 0]), np.array([4, 4, 1])).tolist()
    [9, 4, 3]
    """
    # A sparse table: level j has the maxima of `width` = 2^j consecutive values. Two of them, one from each end, cover any
    # range whose length is in [width, 2 * width). They may overlap, which does not change a maximum.
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
