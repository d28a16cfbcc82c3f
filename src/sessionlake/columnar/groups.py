"""Groups of a key's points or intervals within a gap of each other, transitively.

Rows are sorted by key and start. A group ends if the key changes, or if the next start lies more than the gap after
the largest end so far. It is the *largest* end, because an interval may contain others that start after it. Keys are numbers
here (codes), so a few operations over whole columns group all keys of a batch. With a gap of 0, equal points are a group.
"""

import numpy as np

from sessionlake.columnar.arrays import Ints, argsort

_ROOM = (1 << 62) - 1
"""Numbers below it leave a bit of an int64 free besides the sign, so the sum of two such numbers can't overflow."""


def group_events(codes: Ints, time: Ints, gap: int) -> tuple[Ints, Ints]:
    """Return the order that sorts points by (code, time), and the index in that order at which each group starts.

    A distance of exactly the gap does not end a group.

    >>> codes, time = np.array([1, 0, 0, 1]), np.array([50, 9, 0, 10])
    >>> order, starts = group_events(codes, time, 10)
    >>> order.tolist(), starts.tolist()
    ([2, 1, 3, 0], [0, 2, 3])
    """
    order, codes, time = _sorted(codes, time)
    return order, _starts(codes, time, time, gap)


def group_intervals(codes: Ints, start: Ints, end: Ints, gap: int) -> tuple[Ints, Ints]:
    """Return order and group starts, as `group_events` does, of closed intervals, which may nest and overlap.

    >>> codes, start, end = np.array([0, 0, 0]), np.array([0, 1, 8]), np.array([9, 2, 8])
    >>> order, starts = group_intervals(codes, start, end, 3)
    >>> order.tolist(), starts.tolist()
    ([0, 1, 2], [0])
    """
    order, codes, start = _sorted(codes, start)
    return order, _starts(codes, start, _running_end(codes, end[order]), gap)


def _sorted(codes: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the order by (code, time), and both columns in it."""
    if not len(codes):
        return np.zeros(0, np.int64), codes, time
    low = int(time.min())
    width = int(time.max()) - low + 1
    # One number for code and time, code * width + (time - low), sorts faster than two columns. It fits an int64 except with
    # absurd ranges of times.
    if (int(codes.max()) + 1) * width < _ROOM:
        order = argsort(codes * width + (time - low), (int(codes.max()) + 1) * width)
    else:
        order = np.lexsort((time, codes))
    return order, codes[order], time[order]


def _running_end(codes: Ints, end: Ints) -> Ints:
    """Return the largest end so far within each code; codes are sorted.

    >>> _running_end(np.array([0, 0, 1]), np.array([9, 2, 5])).tolist()
    [9, 9, 5]
    """
    if not len(end):
        return end
    # `maximum.accumulate` knows no groups. So the ends of each code are shifted into a separate range above the ranges of
    # all lower codes. The maximum then starts again at each code, and the shift is subtracted from the result.
    low = int(end.min())
    width = int(end.max()) - low + 1
    if (int(codes[-1]) + 1) * width < _ROOM:
        shift = codes * width - low
        return np.maximum.accumulate(end + shift) - shift
    # The times are too far apart to fit in 63 bits with the code, so their ranks are used instead.
    distinct, rank = np.unique(end, return_inverse=True)
    shift = codes * len(distinct)
    return distinct[np.maximum.accumulate(rank + shift) - shift]


def _starts(codes: Ints, start: Ints, running_end: Ints, gap: int) -> Ints:
    """Return the indices at which groups start in sorted rows. Only a distance larger than the gap ends a group."""
    # The first row has no row before it and always starts a group.
    breaks = np.ones(len(codes), bool)
    breaks[1:] = (codes[1:] != codes[:-1]) | (start[1:] - running_end[:-1] > gap)
    return np.flatnonzero(breaks)
