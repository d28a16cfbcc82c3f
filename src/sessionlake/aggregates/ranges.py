"""States of ranges of consecutive rows that overlap: what windows are of the slices that they are made of."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, States
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Groups, Ints, concatenated, taken, within_group


def merge_ranges(aggregates: Sequence[Aggregate], states: States, low: Ints, high: Ints, keys: pa.Array) -> States:
    """Merge the rows [low[i], high[i]) of the state columns into one state for each i; no range is empty.

    `keys` has the key of each row: all rows of a range have one. Where ranges overlap little, or an aggregate has full
    states, their rows are gathered. Else binary lifting: level j has the merges of 2^j consecutive rows, of which a range
    takes one for each bit of its length, so that of any associative aggregate O((rows + ranges) log longest) merges are
    enough. StoreError where a column of what is gathered is more than Arrow's 2 GiB.
    """
    length = high - low
    longest = int(length.max(initial=1))
    if longest == 1:
        return [column.take(pa.array(low)) for column in states]
    lifts = all(a.spans_keys and not a.full_state for a in aggregates)
    if not lifts or length.sum() <= (len(keys) + len(low)) * longest.bit_length():
        rows = pa.array(np.repeat(low, length) + within_group(length))
        groups = Groups(np.cumsum(length) - length, len(rows), lambda: keys.take(pa.array(low)))
        return merge_states(aggregates, [taken(column, rows) for column in states], groups)
    parts, owners = [], []
    at, width, level = low.copy(), 1, states
    while width <= longest:
        these = np.flatnonzero(length & width)
        parts.append([column.take(pa.array(at[these])) for column in level])
        owners.append(these)
        at[these] += width
        if 2 * width <= longest:
            level = _doubled(aggregates, level, width)
        width *= 2
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    starts = np.flatnonzero(np.diff(owner[order], prepend=-1))
    gathered = [concatenated(columns).take(pa.array(order)) for columns in zip(*parts, strict=True)]
    return merge_states(aggregates, gathered, Groups(starts, len(order), lambda: keys.take(pa.array(low))))


def _doubled(aggregates: Sequence[Aggregate], level: States, width: int) -> States:
    """Return the merges of each row with the one `width` further on; some are of two keys, and no range takes those."""
    rows = max(0, len(level[0]) - width) if level else 0
    pairs = pa.array(np.stack([np.arange(rows), np.arange(rows) + width], axis=1).ravel())
    return merge_states(aggregates, [column.take(pairs) for column in level], Groups(np.arange(rows) * 2, 2 * rows))
