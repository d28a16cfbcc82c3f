"""The rules of windows by time on a shard's slices: merge, which windows are sent, and what is in them (docs/rules.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import merge_states
from sessionlake.aggregates.ranges import merge_ranges
from sessionlake.columnar.arrays import Bools, Groups, Ints, concatenated, taken, within_group
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.ranges import range_max
from sessionlake.operators.windows.emission import RESTATE, Firing
from sessionlake.operators.windows.spec import Grid, Sliding, TimeWindows
from sessionlake.store.layout import Heads
from sessionlake.store.slices import Slices
from sessionlake.stream.watermark import NO_WATERMARK


@dataclass(frozen=True)
class Pairs:
    """Pairs of a key's code and a time."""

    codes: Ints
    time: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints | Bools) -> "Pairs":
        """Return the given rows, in that order."""
        return Pairs(self.codes[rows], self.time[rows])

    def distinct(self) -> "Pairs":
        """Return each pair once, ascending."""
        if len(self) < 2:
            return self
        order, starts = group_events(self.codes, self.time, 0)
        return self.take(order[starts])


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Return the pairs of all parts."""
    none = np.zeros(0, np.int64)
    return Pairs(np.concatenate([none, *(p.codes for p in parts)]), np.concatenate([none, *(p.time for p in parts)]))


def are_among(pairs: Pairs, others: Pairs) -> Bools:
    """Say which pairs others have."""
    if not len(pairs) or not len(others):
        return np.zeros(len(pairs), bool)
    rest = others.distinct()
    at = Axis(rest.codes, rest.time).find(pairs.codes, pairs.time)
    found: Bools = at < len(rest)
    at = at[found]
    found[found] = (rest.codes[at] == pairs.codes[found]) & (rest.time[at] == pairs.time[found])
    return found


@dataclass(frozen=True)
class Windows:
    """Windows to be sent: key's code, start, exclusive end; the slices [low, high) that they are made of; and why."""

    codes: Ints
    start: Ints
    end: Ints
    low: Ints
    high: Ints
    trigger: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints) -> "Windows":
        """Return the given rows, in that order."""
        codes, start, end, low, high = (c[rows] for c in (self.codes, self.start, self.end, self.low, self.high))
        return Windows(codes, start, end, low, high, self.trigger.take(pa.array(rows)))


_NONE = np.zeros(0, np.int64)
NO_WINDOWS = Windows(_NONE, _NONE, _NONE, _NONE, _NONE, pa.array([], pa.string()))


@dataclass(frozen=True)
class Merged:
    """A shard's slices after a batch, as far as they were read: ascending by (code, start)."""

    slices: Slices
    changed: Bools
    before: Heads
    """Of each changed slice, in order, what its head was; the revision is -1 where the slice is new."""


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
    """Merge parts, one row a (task, key, slice), into stored slices; what changes gets the batch's id and reach.

    Stored slices that are `touched` count as changed, whether there are parts of them or not.

    Stored slices are ascending by (code, start), and far more than those that change: only these are sorted and merged.
    """
    codec = StateCodec(aggregates)
    both = joined([parts, touched]) if len(touched) else parts
    order, starts = group_events(both.codes, both.time, 0)
    given = both.take(order[starts])
    at = SliceAxis(stored).find(given.codes, given.time)
    known = is_at(stored, at, given)
    old = stored.take(at[known])
    # Of each changed slice the stored one, if there is one, and its parts, side by side.
    of_parts = np.repeat(np.arange(len(given)), np.diff(starts, append=len(order)))
    if len(touched):
        of_parts, order = of_parts[order < len(parts)], order[order < len(parts)]
    group = np.concatenate([np.flatnonzero(known), of_parts])
    rows = np.concatenate([np.arange(len(old)), len(old) + order])[np.argsort(group, kind="stable")]
    sizes = np.bincount(group, minlength=len(given))
    groups = Groups(np.cumsum(sizes) - sizes, len(rows), lambda: keys.take(pa.array(given.codes)))
    columns = zip(codec.decode(old.state), states, strict=True)
    index = pa.array(rows)
    merged = merge_states(aggregates, [concatenated(both).take(index) for both in columns], groups)
    new = np.zeros(len(given), stored.head.dtype)
    new["start"], new["revision"] = given.time, -1
    new[known] = old.head
    before = new.copy()
    events = np.concatenate([old["count"], count])[rows]
    new["count"] = np.add.reduceat(events, groups.starts) if len(given) else 0
    new["revision"], new["reach"] = batch_id, reach_us
    if "born" in (new.dtype.names or ()):
        new["born"][~known], new["born_reach"][~known] = batch_id, reach_us
    # Where the changed ones lie among all: each new one moves what follows on by one.
    place = at + np.cumsum(~known) - ~known
    rest = np.ones(len(stored) + int((~known).sum()), bool)
    rest[place[~known]] = False
    codes, head, source = np.empty(len(rest), np.int64), np.empty(len(rest), new.dtype), np.empty(len(rest), np.int64)
    codes[rest], head[rest], source[rest] = stored.codes, stored.head, np.arange(len(stored))
    codes[place], head[place], source[place] = given.codes, new, len(stored) + np.arange(len(given))
    state = taken(concatenated([stored.state, codec.encode(merged, len(given))]), pa.array(source))
    changed = np.zeros(len(rest), bool)
    changed[place] = True
    return Merged(Slices(codes, head, state), changed, before)


def is_at(slices: Slices, rows: Ints, pairs: Pairs) -> Bools:
    """Say which pairs of a code and a start are the slices at some rows; a row may lie one behind the last."""
    found = rows < len(slices)
    at = rows[found]
    found[found] = (slices.codes[at] == pairs.codes[found]) & (slices["start"][at] == pairs.time[found])
    return found


def grid_windows(windows: Grid, candidates: Pairs, firing: Firing) -> Pairs:
    """Return the windows (code, start) of a firing that have one of the candidate slices, each once."""
    size, advance = windows.size_us, windows.advance_us
    first = np.maximum(windows.first_end(candidates.time), _after(windows, firing.low_us))
    last = np.minimum(windows.last_end(candidates.time), _after(windows, firing.high_us) - advance)
    number = np.maximum((last - first) // advance + 1, 0)
    start = np.repeat(first - size, number) + within_group(number) * advance
    return Pairs(np.repeat(candidates.codes, number), start).distinct()


def _after(windows: Grid, time_us: int) -> int:
    """Return the first end of a window strictly after a time."""
    offset, advance = windows.offset_us + windows.size_us, windows.advance_us
    return (time_us - offset) // advance * advance + advance + offset


def listed_times(windows: TimeWindows, firing: Firing, frontier_us: int) -> tuple[int, int] | None:
    """Return the times [low, high) of slices that windows of a firing have or are made by; None where no window ends then.

    No slice lies after the frontier. Of windows on a grid few batches pass an end, and only these look into lists.
    """
    low = firing.low_us - windows.span_us - 1
    high = min(firing.high_us, frontier_us + 1)
    if isinstance(windows, Grid):
        first, after = _after(windows, firing.low_us), _after(windows, firing.high_us)
        low, high = first - windows.span_us, min(after - windows.advance_us, high)
        if first > firing.high_us:
            return None
    return (low, high) if high > low else None


def blocks_of(windows: Pairs, span_us: int, block_us: int) -> Pairs:
    """Return the blocks, (code, number), that hold the times [start, start + span) of windows, each once."""
    first, last = windows.time // block_us, (windows.time + span_us - 1) // block_us
    number = last - first + 1
    return Pairs(np.repeat(windows.codes, number), np.repeat(first, number) + within_group(number)).distinct()


def read_around(windows: Sliding, candidates: Pairs, firing: Firing) -> Pairs:
    """Return the blocks that windows of a firing with, or made by, candidate slices can reach; some more than once."""
    span = windows.span_us
    low = np.maximum(candidates.time - span, firing.low_us - span - 1)
    high = np.minimum(candidates.time + span, firing.high_us)
    some = high >= low
    codes, low, high = candidates.codes[some], low[some], high[some]
    first, number = low // windows.block_us, high // windows.block_us - low // windows.block_us + 1
    return Pairs(np.repeat(codes, number), np.repeat(first, number) + within_group(number))


class SliceAxis(Axis):
    """A shard's slices, ascending by (code, start): finds rows by key and time."""

    def __init__(self, slices: Slices) -> None:
        super().__init__(slices.codes, slices["start"])
        self._slices = slices

    def rows_of(self, pairs: Pairs) -> Ints:
        """Return the rows of those slices that are there, of the pairs of a code and a start."""
        rows = self.find(pairs.codes, pairs.time)
        return rows[is_at(self._slices, rows, pairs)]


def sent_windows(windows: TimeWindows, slices: Slices, axis: SliceAxis, asked: Pairs, firing: Firing) -> Windows:
    """Return the windows of a firing that have something that was not sent yet.

    `asked` are, of windows on a grid, those that have a candidate slice; else the candidate slices, which windows have or
    are made by.
    """
    found = asked if isinstance(windows, Grid) else _sliding_windows(windows, slices, firing)
    low, high = axis.find(found.codes, found.time), axis.find(found.codes, found.time + windows.span_us)
    holds, kept, maker = high > low, high > low, None
    if isinstance(windows, Sliding):
        marked = np.zeros(len(slices) + 1, np.int64)
        marked[axis.rows_of(asked)] = 1
        # The candidates before each row; a window that is left when one drops out begins right after it.
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
    for start in (time - windows.size_us, *([time + 1] if windows.exits else [])):
        end = start + span
        rows = np.flatnonzero((end > firing.low_us) & (end <= firing.high_us))
        found.append(Pairs(slices.codes[rows], start[rows]))
    return joined(found).distinct()


def _maker(slices: Slices, windows: Pairs, low: Ints) -> Ints:
    """Return the row of the slice right before each window's start, -1 where there is none."""
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
    # Of what changed since, how far the frontier had come: the window was past then.
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
    last = windows.high[made] - 1
    older = (slices["start"][last] == windows.end[made] - 1) & (born[last] < born[maker[made]])
    made[made] = ~older
    return made


def states_of(aggregates: Sequence[Aggregate], slices: Slices, windows: Windows, keys: pa.Array) -> tuple[Ints, States]:
    """Return the number of events and the aggregate states of windows, merged from those of their slices."""
    used = np.zeros(len(slices) + 1, np.int64)
    np.add.at(used, windows.low, 1)
    np.add.at(used, windows.high, -1)
    rows = np.flatnonzero(np.cumsum(used)[:-1])
    place = np.searchsorted(rows, windows.low)
    length = windows.high - windows.low
    sums = np.concatenate([[0], np.cumsum(slices["count"])])
    states = StateCodec(aggregates).decode(slices.state.take(pa.array(rows)))
    of_rows = keys.take(pa.array(slices.codes[rows]))
    return sums[windows.high] - sums[windows.low], merge_ranges(aggregates, states, place, place + length, of_rows)
