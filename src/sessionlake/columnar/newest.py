"""The newest version of each row, among all versions of them."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, argsort, combined

VERSION = "_version"
"""The column of a version's number. The greatest number counts. Null stands for a row without versions."""
OLDEST = -1
"""The least number of a version."""
LIVE = "_live"
"""The column that says whether a version, if it is the newest, is a row."""
KEY, NAME = "key", "_name"
"""The key's column, and the prefix of the columns that name a row together with it."""
_HELD_BYTES = 64 << 20
"""This number of bytes of versions is held, or as many as the last newest versions had, before the next search for the newest."""


def newest(pieces: Iterable[pa.Table]) -> pa.Table:
    """Return of each row the newest version, if it is live, and all rows without a version; not the columns above.

    The pieces have all versions of their rows; at least one piece is needed. Older versions are held up to a bound.

    >>> rows = {"key": ["a", "a", "b"], VERSION: [7, 6, 6], LIVE: [False, True, True], "value": [3, 2, 1]}
    >>> newest([pa.table(rows)]).to_pylist()
    [{'key': 'b', 'value': 1}]
    """
    held: list[pa.Table] = []
    merged = size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.nbytes
        if size > 2 * merged + _HELD_BYTES:
            held = [_newest(_together(held))]
            merged = size = held[0].nbytes
    rows = _newest(_together(held))
    if VERSION not in rows.column_names:
        return rows
    marks = [name for name in rows.column_names if name in (VERSION, LIVE) or name.startswith(NAME)]
    return rows.drop_columns(marks).filter(rows[LIVE].fill_null(True))


def _together(pieces: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(pieces, promote_options="default")


def _newest(rows: pa.Table) -> pa.Table:
    """Return each row's newest version, and rows without a version."""
    if VERSION not in rows.column_names or rows[VERSION].null_count == len(rows):
        return rows
    without = rows.filter(rows[VERSION].is_null())
    rows = rows.filter(rows[VERSION].is_valid()) if len(without) else rows
    version: Ints = combined(rows[VERSION]).to_numpy() - OLDEST
    # Each row's place in version order, equal versions in the order of the pieces.
    order = argsort(version, int(version.max()) + 1)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    names = [KEY, *(name for name in rows.column_names if name.startswith(NAME))]
    last = rows.select(names).append_column(VERSION, pa.array(place)).group_by(names, use_threads=False)
    is_newest = np.zeros(len(order), bool)
    is_newest[order[combined(last.aggregate([(VERSION, "max")])[f"{VERSION}_max"]).to_numpy()]] = True
    # `take` would first bring all versions together in one array, which has bounds.
    kept = rows if is_newest.all() else rows.filter(pa.array(is_newest))
    return _together([kept, without]) if len(without) else kept
