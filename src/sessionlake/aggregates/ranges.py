"""States of overlapping ranges of consecutive rows. For example, windows are such ranges of slices."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, States
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Groups, Ints, concatenated, taken, within_group


def merge_ranges(aggregates: Sequence[Aggregate], states: States, low: Ints, high: Ints, keys: pa.Array) -> States:
    """Merge the rows [low[i], high[i]) of the state columns into one state for each i; no range is empty.

    `keys` has the key of each row; all rows of a range have the same key. Raises StoreError if a column of the copied rows
    exceeds Arrow's 2 GiB.
    """
    # If ranges overlap little, or an aggregate has full states, each range's rows are copied and merged. Else the merges are
    # shared by binary lifting: level j has the merges of 2^j consecutive rows, and a range takes one of them for each bit of
    # its length. So O((rows + ranges) log longest) merges are enough for any associative aggregate.
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
        # `width` is a power of two: ranges whose length has this bit take one merge of `width` rows at `at`, and go on after
        # it. So the parts of a range come in the order of its rows.
        these = np.flatnonzero(length & width)
        parts.append([column.take(pa.array(at[these])) for column in level])
        owners.append(these)
        at[these] += width
        if 2 * width <= longest:
            level = _doubled(aggregates, level, width)
        width *= 2
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    # The sort is stable, so each range's parts stay in order; a group starts at each change of the owner.
    starts = np.flatnonzero(np.diff(owner[order], prepend=-1))
    gathered = [concatenated(columns).take(pa.array(order)) for columns in zip(*parts, strict=True)]
    return merge_states(aggregates, gathered, Groups(starts, len(order), lambda: keys.take(pa.array(low))))


def _doubled(aggregates: Sequence[Aggregate], level: States, width: int) -> States:
    """Return the merge of each row with the row `width` further on. Some merges are of two keys, but no range uses those."""
    rows = max(0, len(level[0]) - width) if level else 0
    # Rows 0, width, 1, 1 + width, ...: the two rows of each merge stand next to each other.
    pairs = pa.array(np.stack([np.arange(rows), np.arange(rows) + width], axis=1).ravel())
    return merge_states(aggregates, [column.take(pairs) for column in level], Groups(np.arange(rows) * 2, 2 * rows))
