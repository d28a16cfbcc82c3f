"""Rows of a key valid at the same time: the row that begins last counts (docs/rules.md, rule 280)."""

from collections.abc import Iterator

import numpy as np

from sessionlake.columnar.arrays import Bools, Ints


def disjoint(begin: Ints, end: Ints, new_key: Bools) -> tuple[Ints, Ints, Ints]:
    """Return rows, and when each begins and ends, such that at each time one row of a key is valid at most.

    Rows come sorted by key and begin, each with its begin (inclusive) and end (exclusive); `new_key` says at which rows a key
    begins. The result is sorted in the same way. A row that is covered for a while by one that begins later is in it twice.

    >>> disjoint(np.array([0, 10]), np.array([30, 20]), np.array([True, False]))
    (array([0, 1, 0]), array([ 0, 10, 20]), array([10, 20, 30]))
    """
    covered = np.zeros(len(begin), bool)
    covered[:-1] = ~new_key[1:] & (end[:-1] > begin[1:])
    if not covered.any():
        return np.arange(len(begin)), begin, end
    # Rows of a key are adjacent: the running count of first rows numbers the keys.
    key = np.cumsum(new_key) - 1
    some = np.unique(key[covered])
    others = np.flatnonzero(~np.isin(key, some))
    # Row by row, for keys with overlaps only, and once a version: tables of validity have few of them.
    starts = np.append(np.flatnonzero(new_key), len(begin)).tolist()
    cut_pieces = [piece for one in some.tolist() for piece in _pieces(begin, end, starts[one], starts[one + 1])]
    pieces = np.array(cut_pieces, np.int64).reshape(-1, 3).T
    kept = (others, begin[others], end[others])
    row, begins, ends = (np.concatenate(pair) for pair in zip(kept, pieces, strict=True))
    order = np.lexsort((begins, key[row]))
    return row[order], begins[order], ends[order]


def _pieces(begin: Ints, end: Ints, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield (row, begin, end) for each time in which a row of a key's, first to last exclusive, counts."""
    valid: list[int] = []  # the one that counts is the last
    at = 0
    for row in range(first, last + 1):
        until = int(begin[row]) if row < last else int(np.iinfo(np.int64).max)
        while valid and at < until:
            top = valid[-1]
            stop = min(int(end[top]), until)
            if stop > at:
                yield top, at, stop
                at = stop
            if end[top] <= at:
                valid.pop()
        if row < last:
            valid.append(row)
            at = int(begin[row])
