"""The rules of windows and sessions by count on a shard's slices: merge, which windows are sent, which slices are kept (docs/rules.md).

Slices are ascending by (code, start); a code is the place of a series among a batch's. All numbers are the series' own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Bools, Groups, Ints, concatenated, picked, within_group
from sessionlake.columnar.axis import range_max
from sessionlake.columnar.groups import group_intervals
from sessionlake.operators.counts.spec import Counts, Grid, Sessions, Sliding
from sessionlake.operators.shared.windowing.emission import EARLY, FULL
from sessionlake.operators.shared.windowing.slices import Pairs, SliceAxis, Windows
from sessionlake.store.series import COUNTED
from sessionlake.store.slices import Slices

_NEVER = -(1 << 61)


@dataclass(frozen=True)
class Numbers:
    """For each series: the number at which its windows begin, the one since which it is known, and its frontier, the last number of all messages that it counts."""

    first: Ints
    """The number with which the first window without an offset begins."""
    since: Ints
    """The number of its first message; if it was forgotten, since then."""
    before: Ints
    """The frontier before the batch."""
    after: Ints


@dataclass(frozen=True)
class Messages:
    """A batch's messages, one a row: the code of the series, the number in it, and the aggregates' states."""

    codes: Ints
    number: Ints
    states: States


@dataclass(frozen=True)
class Merged:
    """The slices of the series that a batch has to do with, after the batch."""

    slices: Slices
    changed: Bools
    given: Ints
    """How many of a slice's messages came with the batch."""


def slice_starts(windows: Counts, numbers: Numbers, codes: Ints, number: Ints) -> Ints:
    """Return the start of each message's slice; for sessions and sliding windows, which have no grid, the message's number.

    For example, windows of 10 every 4 messages have slices of 2:

    >>> one = np.array([1])
    >>> slice_starts(Grid(10, 4), Numbers(one, one, one * 0, one * 3), np.zeros(3, np.int64), np.array([1, 2, 3])).tolist()
    [1, 1, 3]
    """
    if not isinstance(windows, Grid):
        return number
    # Windows and so slices are counted from the series' own first number, and not from 0.
    origin = numbers.first[codes] + windows.offset
    return (number - origin) // windows.slice * windows.slice + origin


def merge(
    windows: Counts,
    aggregates: Sequence[Aggregate],
    stored: Slices,
    messages: Messages,
    numbers: Numbers,
    newest: Ints,
    keys: pa.Array,
    batch_id: int,
) -> Merged:
    """Merge a batch's messages into the stored slices; `newest` is each series' newest event time, `keys` its key.

    Only the states of slices that change are unpacked.
    """
    # Rows below len(stored) are stored slices, the others are messages, in all arrays that follow.
    codes = np.concatenate([stored.codes, messages.codes])
    own = slice_starts(windows, numbers, messages.codes, messages.number)
    start = np.concatenate([stored["start"], own])
    last = np.concatenate([stored["last"], messages.number])
    # Slices of a grid join only if their starts are equal: then an interval is a point, and the gap 0.
    end, gap = (last, windows.gap) if isinstance(windows, Sessions) else (start, 0)
    order, starts = group_intervals(codes, start, end, gap)
    is_given = order >= len(stored)
    sizes = np.diff(starts, append=len(order))
    changed = _any(is_given, starts)
    head = np.zeros(len(starts), COUNTED)
    of_group = order[starts]
    head["start"] = start[of_group]
    head["last"] = _reduced(np.maximum, last[order], starts)
    counts = np.concatenate([stored["count"], np.ones(len(messages.codes), np.int64)])
    head["count"] = _reduced(np.add, counts[order], starts)
    unchanged = ~changed
    # An unchanged group is one stored slice, so its first row is that slice.
    for name in ("revision", "first", "newest"):
        head[name][unchanged] = stored[name][of_group[unchanged]]
    group_codes = codes[of_group]
    head["revision"][changed] = batch_id
    head["first"][changed] = numbers.since[group_codes[changed]]
    head["newest"][changed] = newest[group_codes[changed]]
    # Stored states are unpacked for changed slices only, and put next to the messages' states.
    rows = order[np.repeat(changed, sizes)]
    old = rows < len(stored)
    # The place of each row's state: the unpacked stored states come first, then those of all messages.
    place = np.where(old, np.cumsum(old) - 1, int(old.sum()) + rows - len(stored))
    codec, index = StateCodec(aggregates), pa.array(place)
    unpacked = codec.decode(stored.state.take(pa.array(rows[old])))
    columns = [picked(concatenated([a, b]), index) for a, b in zip(unpacked, messages.states, strict=True)]
    some = sizes[changed]
    groups = Groups(np.cumsum(some) - some, len(rows), lambda: keys.take(pa.array(group_codes[changed])))
    packed = codec.encode(merge_states(aggregates, columns, groups), len(some))
    # A changed group takes its new packed state, which stands after the stored ones; the others keep theirs.
    source = np.where(changed, len(stored) + np.cumsum(changed) - 1, of_group)
    state = pa.concat_arrays([stored.state, packed]).take(pa.array(source))
    return Merged(Slices(group_codes, head, state), changed, _reduced(np.add, is_given.astype(np.int64), starts))


def sent_windows(
    windows: Counts, merged: Merged, listed: Bools, messages: Messages, numbers: Numbers, since: int, *, early: bool
) -> Windows:
    """Return the windows that go out: those that are full since the batch, and with `early` current ones that changed after the batch `since`.

    They are among those with a changed slice, and those of the series that lists name (by code, `listed`). Ends are inclusive.
    """
    if isinstance(windows, Sliding):
        return _sliding(windows, merged.slices, messages)
    slices = merged.slices
    asked = merged.changed | listed[slices.codes]
    if isinstance(windows, Sessions):
        return _sessions(windows, slices, asked, numbers, since, early=early)
    found = _grid_windows(windows, slices, np.flatnonzero(asked), numbers, early=early)
    axis = SliceAxis(slices)
    # The slices [low, high) of each window.
    low, high = axis.find(found.codes, found.time), axis.find(found.codes, found.time + windows.size)
    end = found.time + windows.size - 1
    is_full = end <= numbers.after[found.codes]
    due = np.flatnonzero(is_full | (range_max(slices["revision"], low, high) > since))
    found = found.take(due)
    return Windows(found.codes, found.time, end[due], low[due], high[due], _triggers(is_full[due]))


def new_windows(windows: Grid, merged: Merged, numbers: Numbers) -> Pairs:
    """Return the windows, (code, start), that are not full and got their first message of the key with the batch."""
    slices = merged.slices
    found = _grid_windows(windows, slices, np.flatnonzero(merged.changed), numbers, early=True)
    found = found.take(found.time + windows.size - 1 > numbers.after[found.codes])
    axis = SliceAxis(slices)
    # Prefix sums of the messages of before the batch: equal ones at both bounds mean that the window had none.
    older = np.concatenate([[0], np.cumsum(slices["count"] - merged.given)])
    low, high = axis.find(found.codes, found.time), axis.find(found.codes, found.time + windows.size)
    return found.take(older[high] == older[low])


def all_windows(windows: Grid, slices: Slices, numbers: Numbers) -> Pairs:
    """Return the windows, (code, start), that have one of the slices and are not full."""
    found = _grid_windows(windows, slices, np.arange(len(slices)), numbers, early=True)
    return found.take(found.time + windows.size - 1 > numbers.after[found.codes])


def is_waiting(windows: Counts, slices: Slices, first: Ints, frontier: Ints) -> Bools:
    """Say which slices have a window that is not full, given each series' first number and its frontier."""
    reached = frontier[slices.codes]
    if isinstance(windows, Sessions):
        return reached - slices["last"] < windows.gap
    if isinstance(windows, Sliding):
        return np.zeros(len(slices), bool)
    start, origin = slices["start"], first[slices.codes] + windows.offset
    last_window = (start - origin) // windows.advance * windows.advance + origin
    return (start >= origin) & (last_window + windows.size - 1 > reached)


def is_kept(windows: Counts, slices: Slices, numbers: Numbers, *, per_key: bool) -> Bools:
    """Say which slices later windows need; of a series by key the last one stays, which says how far it has counted."""
    if isinstance(windows, Sliding):
        kept = slices["start"] > numbers.after[slices.codes] - windows.size + 1
    else:
        kept = is_waiting(windows, slices, numbers.first, numbers.after)
    if per_key:
        # The last slice of a series is the one before another code.
        kept |= np.diff(slices.codes, append=-1) != 0
    return kept


def _grid_windows(windows: Grid, slices: Slices, rows: Ints, numbers: Numbers, *, early: bool) -> Pairs:
    """Return the windows, (code, start), of slices, that were not full before the batch, and without `early` are by now."""
    size, advance = windows.size, windows.advance
    codes, start = slices.codes[rows], slices["start"][rows]
    origin = numbers.first[codes] + windows.offset

    def at_or_after(number: Ints) -> Ints:
        # The first start at or after a number: -(-x // a) rounds up.
        return -((origin - number) // advance) * advance + origin

    # Windows that have the slice, and whose last number lies after the old frontier: they were not full.
    low = np.maximum(start + windows.slice - size, numbers.before[codes] - size + 2)
    first = at_or_after(np.maximum(low, origin))
    # Without `early` only windows whose last number the frontier has reached.
    high = start if early else np.minimum(start, numbers.after[codes] - size + 1)
    last = at_or_after(high + 1) - advance
    number = np.maximum((last - first) // advance + 1, 0)
    found = np.repeat(first, number) + within_group(number) * advance
    return Pairs(np.repeat(codes, number), found).distinct()


def _sliding(windows: Sliding, slices: Slices, messages: Messages) -> Windows:
    start = messages.number - windows.size + 1
    axis = SliceAxis(slices)
    low, high = axis.find(messages.codes, start), axis.find(messages.codes, messages.number) + 1
    return Windows(messages.codes, start, messages.number, low, high, pa.repeat(FULL, len(start)))


def _sessions(windows: Sessions, slices: Slices, asked: Bools, numbers: Numbers, since: int, *, early: bool) -> Windows:
    is_full = ~is_waiting(windows, slices, numbers.first, numbers.after)
    rows = np.flatnonzero(asked & (is_full | (early & (slices["revision"] > since))))
    some = slices.take(rows)
    return Windows(some.codes, some["start"], some["last"], rows, rows + 1, _triggers(is_full[rows]))


def _triggers(full: Bools) -> pa.Array:
    return pa.array(np.where(full, FULL, EARLY), pa.string())


def _any(mask: Bools, starts: Ints) -> Bools:
    return np.logical_or.reduceat(mask, starts) if len(starts) else np.zeros(0, bool)


def _reduced(ufunc: np.ufunc, values: Ints, starts: Ints) -> Ints:
    return ufunc.reduceat(values, starts) if len(starts) else np.zeros(0, np.int64)
