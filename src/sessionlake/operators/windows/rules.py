"""The rules of windows by time on a shard's slices: merge, which windows are sent, and their content (docs/rules.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Bools, Groups, Ints, concatenated, picked, taken, within_group
from sessionlake.columnar.axis import range_max
from sessionlake.columnar.groups import group_events
from sessionlake.operators.shared.windowing.emission import RESTATE, Firing
from sessionlake.operators.shared.windowing.slices import Pairs, SliceAxis, Windows, is_at, joined
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows
from sessionlake.store.layout import Heads
from sessionlake.store.slices import Slices
from sessionlake.stream.watermark import NO_WATERMARK


@dataclass(frozen=True)
class Merged:
    """A shard's slices after a batch, as far as they were read: ascending by (code, start)."""

    slices: Slices
    changed: Bools
    before: Heads
    """The earlier head of each changed slice, in order; the revision is -1 if the slice is new."""


@dataclass(frozen=True)
class Changing:
    """The slices that a batch changes, each once, ascending, and the parts that are merged into them."""

    slices: Pairs
    part: Ints
    """Rows of the parts, ordered by slice."""
    owner: Ints
    """For each of `part` the row of its slice in `slices`."""


def merge_slices(
    aggregates: Sequence[Aggregate],
    stored: Slices,
    parts: Pairs,
    count: Ints,
    states: States,
    keys: pa.Array,
    *,
    batch_id: int,
    reach_us: int,
    touched: Pairs,
) -> Merged:
    """Merge parts, one row for each (task, key, slice), into stored slices; changed slices get the batch's id and reach.

    Stored slices that are `touched` count as changed, whether there are parts of them or not.

    Stored slices are ascending by (code, start), and far more than those that change: only these are sorted and merged.
    """
    changing = changing_slices(parts, touched)
    given = changing.slices
    at = SliceAxis(stored).find(given.codes, given.time)
    known = is_at(stored, at, given)
    new = np.zeros(len(given), stored.head.dtype)
    new["start"], new["revision"] = given.time, -1
    new[known] = stored.head[at[known]]
    before = new.copy()
    new["count"], state = _merged_parts(
        aggregates, stored.take(at[known]), np.flatnonzero(known), changing, count, states, keys
    )
    new["revision"], new["reach"] = batch_id, reach_us
    if "born" in (new.dtype.names or ()):
        new["born"][~known], new["born_reach"][~known] = batch_id, reach_us
    place, source = places_among(len(stored), at, known)
    codes = np.concatenate([stored.codes, given.codes])[source]
    head = np.concatenate([stored.head, new])[source]
    changed = np.zeros(len(source), bool)
    changed[place] = True
    return Merged(
        Slices(codes, head, taken(concatenated([stored.state, state]), pa.array(source))),
        changed,
        before,
    )


def changing_slices(parts: Pairs, touched: Pairs) -> Changing:
    """Return the slices that have parts or are touched, and their parts."""
    both = joined([parts, touched])
    # With a gap of 0 a group has equal (code, time): one group for each slice.
    order, starts = group_events(both.codes, both.time, 0)
    first = order[starts]
    # The number of its group for each row of `order`.
    owner = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    if len(touched):
        # The parts' rows come first in the grouped array: greater row numbers are those of touched slices.
        owner, order = owner[order < len(parts)], order[order < len(parts)]
    return Changing(both.take(first), order, owner)


def _merged_parts(
    aggregates: Sequence[Aggregate],
    old: Slices,
    old_owner: Ints,
    changing: Changing,
    count: Ints,
    states: States,
    keys: pa.Array,
) -> tuple[Ints, pa.Array]:
    """Return for each changing slice its events and packed states: those of the stored slice, if there is one, and of its parts."""
    codec, slices = StateCodec(aggregates), changing.slices
    owner = np.concatenate([old_owner, changing.owner])
    # Stored slices are rows [0, len(old)), parts the rows after them. Sorted by slice, the stored one stands before its parts.
    rows = np.concatenate([np.arange(len(old)), len(old) + changing.part])[np.argsort(owner, kind="stable")]
    sizes = np.bincount(owner, minlength=len(slices))
    # cumsum(sizes) - sizes is the first row of each group.
    groups = Groups(np.cumsum(sizes) - sizes, len(rows), lambda: keys.take(pa.array(slices.codes)))
    index = pa.array(rows)
    columns = zip(codec.decode(old.state), states, strict=True)
    merged = merge_states(aggregates, [picked(concatenated(both), index) for both in columns], groups)
    events = np.concatenate([old["count"], count])[rows]
    counts = np.add.reduceat(events, groups.starts) if len(slices) else np.zeros(0, np.int64)
    return counts, codec.encode(merged, len(slices))


def places_among(stored: int, at: Ints, known: Bools) -> tuple[Ints, Ints]:
    """Return the rows of changed slices among all, and for each of all rows its source: the stored slices, then the changed ones.

    `at` are the rows of the stored slices at which `known` changed slices are, or before which new ones belong.

    For example, of 3 stored slices the second changes, and a new one comes before the third:

    >>> place, source = places_among(3, np.array([1, 2]), np.array([True, False]))
    >>> place.tolist(), source.tolist()
    ([1, 2], [0, 3, 4, 2])
    """
    new = ~known
    # Each new slice moves those that follow on by one.
    place = at + np.cumsum(new) - new
    is_stored = np.ones(stored + int(new.sum()), bool)
    is_stored[place[new]] = False
    source = np.empty(len(is_stored), np.int64)
    source[is_stored] = np.arange(stored)
    # A known slice is in both: the changed one takes the stored one's place.
    source[place] = stored + np.arange(len(at))
    return place, source


def grid_windows(windows: Grid, candidates: Pairs, firing: Firing) -> Pairs:
    """Return the windows (code, start) of a firing that have one of the candidate slices, each once."""
    size, advance = windows.size_us, windows.advance_us
    # `first` and `last` are ends of windows: the firing has those in (low_us, high_us].
    first = np.maximum(windows.first_end(candidates.time), _after(windows, firing.low_us))
    last = np.minimum(windows.last_end(candidates.time), _after(windows, firing.high_us) - advance)
    number = np.maximum((last - first) // advance + 1, 0)
    # Each candidate slice gives `number` windows, which start one advance apart.
    start = np.repeat(first - size, number) + within_group(number) * advance
    return Pairs(np.repeat(candidates.codes, number), start).distinct()


def _after(windows: Grid, time_us: int) -> int:
    """Return the first end of a window strictly after a time."""
    offset, advance = windows.offset_us + windows.size_us, windows.advance_us
    # Floor division also rounds negative times down, so this holds before the epoch.
    return (time_us - offset) // advance * advance + advance + offset


def listed_times(windows: TimeWindows, firing: Firing, frontier_us: int) -> tuple[int, int] | None:
    """Return the times [low, high) of slices that windows of a firing have or are made by; None if no window ends then.

    No slice lies after the frontier. Of windows on a grid few batches pass an end, and only these look into lists.
    """
    # One more: a sliding window is also made by the slice right before its start.
    low = firing.low_us - windows.span_us - 1
    high = min(firing.high_us, frontier_us + 1)
    if isinstance(windows, Grid):
        first, after = _after(windows, firing.low_us), _after(windows, firing.high_us)
        low, high = first - windows.span_us, min(after - windows.advance_us, high)
        if first > firing.high_us:
            return None
    return (low, high) if high > low else None


def blocks_of(windows: Pairs, span_us: int, block_us: int) -> Pairs:
    """Return the blocks, (code, number), that hold the times [start, start + span) of windows, each once.

    For example, a window [15, 25) lies in the blocks 1 and 2 of 10 microseconds:

    >>> blocks_of(Pairs(np.array([0]), np.array([15])), span_us=10, block_us=10).time.tolist()
    [1, 2]
    """
    first, last = windows.time // block_us, (windows.time + span_us - 1) // block_us
    number = last - first + 1
    return Pairs(np.repeat(windows.codes, number), np.repeat(first, number) + within_group(number)).distinct()


def read_around(windows: Sliding, candidates: Pairs, firing: Firing) -> Pairs:
    """Return the blocks that windows of a firing with, or made by, candidate slices can reach; some more than once."""
    span = windows.span_us
    # A window with the slice starts at most a span before it, and one that the slice makes ends at most a span after it.
    low = np.maximum(candidates.time - span, firing.low_us - span - 1)
    high = np.minimum(candidates.time + span, firing.high_us)
    some = high >= low
    codes, low, high = candidates.codes[some], low[some], high[some]
    first, number = low // windows.block_us, high // windows.block_us - low // windows.block_us + 1
    return Pairs(np.repeat(codes, number), np.repeat(first, number) + within_group(number))


def sent_windows(windows: TimeWindows, slices: Slices, axis: SliceAxis, asked: Pairs, firing: Firing) -> Windows:
    """Return the windows of a firing that have something that was not sent yet.

    `asked` are, of windows on a grid, those that have a candidate slice; else the candidate slices, which windows have or
    are made by.
    """
    found = asked if isinstance(windows, Grid) else _sliding_windows(windows, slices, firing)
    low, high = axis.find(found.codes, found.time), axis.find(found.codes, found.time + windows.span_us)
    # A window has the slices [low, high) of the axis; low == high is a window without events.
    holds, kept, maker = high > low, high > low, None
    if isinstance(windows, Sliding):
        marked = np.zeros(len(slices) + 1, np.int64)
        marked[axis.rows_of(asked)] = 1
        # `sums` counts the candidates before each row, so a difference counts those in a window.
        # A window that begins right after a candidate, without it, is asked for as well.
        sums = np.concatenate([[0], np.cumsum(marked)])
        maker = _maker(slices, found, low)
        holds = sums[high] > sums[low]
        kept &= holds | ((maker >= 0) & (marked[maker] > 0))
        maker = maker[kept]
    low, high, found = low[kept], high[kept], found.take(kept)
    trigger = pa.repeat(firing.trigger, len(found))
    sent = Windows(found.codes, found.time, found.time + windows.span_us, low, high, trigger)
    unsent = holds[kept] if firing.trigger == RESTATE else _changed(slices, sent, firing)
    if maker is not None:
        unsent |= _made(slices, sent, maker, firing)
    return sent.take(np.flatnonzero(unsent))


def _sliding_windows(windows: Sliding, slices: Slices, firing: Firing) -> Pairs:
    """Return the windows that slices make, (code, start), whose ends a firing has; each once."""
    time, span = slices["start"], windows.span_us
    found = []
    # A slice at t makes the window that ends at t and, with exits, the one that begins right after t.
    for start in (time - windows.size_us, *([time + 1] if windows.exits else [])):
        end = start + span
        rows = np.flatnonzero((end > firing.low_us) & (end <= firing.high_us))
        found.append(Pairs(slices.codes[rows], start[rows]))
    return joined(found).distinct()


def _maker(slices: Slices, windows: Pairs, low: Ints) -> Ints:
    """Return the row of the slice right before each window's start, -1 if there is none."""
    # The row before the window's first one; it counts only if it has the same key and lies at start - 1.
    row = low - 1
    known = row >= 0
    known[known] = (slices.codes[row[known]] == windows.codes[known]) & (
        slices["start"][row[known]] == windows.time[known] - 1
    )
    return np.where(known, row, -1)


def _changed(slices: Slices, windows: Windows, firing: Firing) -> Bools:
    """Say which windows have a slice with a change that no batch has sent."""
    revision, low, high = slices["revision"], windows.low, windows.high
    if not firing.reached:
        return range_max(revision, low, high) > firing.since
    # `reach` is the frontier at the slice's last change: the window was over by then.
    waiting = np.where(revision > firing.since, slices["reach"], NO_WATERMARK)
    return range_max(waiting, low, high) >= windows.end


def _made(slices: Slices, windows: Windows, maker: Ints, firing: Firing) -> Bools:
    """Say which windows are there since a slice right before them is, -1 for none, whose birth no batch has sent."""
    made = maker >= 0
    born = slices["born"]
    made[made] = born[maker[made]] > firing.since
    if firing.reached:
        made[made] = slices["born_reach"][maker[made]] >= windows.end[made]
    # A window at whose very end an older event lies was there before.
    # A window with the maker is not empty, so high - 1 is its last slice.
    last = windows.high[made] - 1
    older = (slices["start"][last] == windows.end[made] - 1) & (born[last] < born[maker[made]])
    made[made] = ~older
    return made
