"""Groups of what lies together on an axis: points and intervals of a key within a gap of one another, transitively.

They are sorted by key and start. A group ends where the key changes, or where the next start lies more than the gap after
the largest end so far: the *largest*, for an interval may contain those that start after it. Keys are numbers here (codes),
so that all keys of a batch are grouped by a few operations over whole columns. With a gap of 0, equal points are a group.
"""

import numpy as np

from sessionlake.columnar.arrays import Ints, argsort

_ROOM = (1 << 62) - 1
"""Numbers below it leave a bit of an int64 free beside the sign: sums of two of them can't overflow."""


def group_events(codes: Ints, time: Ints, gap: int) -> tuple[Ints, Ints]:
    """Group points; return the order that sorts them by (code, time) and where in it each group starts."""
    order, codes, time = _sorted(codes, time)
    return order, _starts(codes, time, time, gap)


def group_intervals(codes: Ints, start: Ints, end: Ints, gap: int) -> tuple[Ints, Ints]:
    """Group closed intervals, which may nest and overlap; return order and group starts as `group_events` does."""
    order, codes, start = _sorted(codes, start)
    return order, _starts(codes, start, _running_end(codes, end[order]), gap)


def _sorted(codes: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the order by (code, time), and both columns in it."""
    if not len(codes):
        return np.zeros(0, np.int64), codes, time
    low = int(time.min())
    width = int(time.max()) - low + 1
    # One number for code and time sorts faster than two columns, and there is room for it in all but absurd ranges of times.
    if (int(codes.max()) + 1) * width < _ROOM:
        order = argsort(codes * width + (time - low), (int(codes.max()) + 1) * width)
    else:
        order = np.lexsort((time, codes))
    return order, codes[order], time[order]


def _running_end(codes: Ints, end: Ints) -> Ints:
    """Return the largest end so far within each code; codes are sorted.

    A running maximum knows no groups. So each code's ends are lifted into a range of their own, above those of all codes
    before: the maximum then begins anew at each code by itself, and is lowered again.
    """
    if not len(end):
        return end
    low = int(end.min())
    width = int(end.max()) - low + 1
    if (int(codes[-1]) + 1) * width < _ROOM:
        shift = codes * width - low
        return np.maximum.accumulate(end + shift) - shift
    # Times too far apart to share 63 bits with the code: ranks take their place.
    distinct, rank = np.unique(end, return_inverse=True)
    shift = codes * len(distinct)
    return distinct[np.maximum.accumulate(rank + shift) - shift]


def _starts(codes: Ints, start: Ints, running_end: Ints, gap: int) -> Ints:
    """Return where groups start in sorted rows. A distance of exactly the gap is none: only a larger one breaks."""
    breaks = np.ones(len(codes), bool)
    breaks[1:] = (codes[1:] != codes[:-1]) | (start[1:] - running_end[:-1] > gap)
    return np.flatnonzero(breaks)
