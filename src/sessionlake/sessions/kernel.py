"""The merge kernel: group partials of a key that lie within the gap of one another, transitively, and merge them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, Events, States
from sessionlake.columnar.arrays import Bools, Groups, Ints, argsort, plain_text
from sessionlake.sessions.partials import Partials

_ROOM = (1 << 62) - 1


def group_events(codes: Ints, time: Ints, gap: int) -> tuple[Ints, Ints]:
    """Group points; return the order that sorts them by (code, time) and where in it each group starts."""
    order, codes, time = _sorted(codes, time)
    return order, _starts(codes, time, time, gap)


def group_intervals(codes: Ints, start: Ints, end: Ints, gap: int) -> tuple[Ints, Ints]:
    """Group closed intervals, which may nest and overlap; return order and group starts as `group_events` does."""
    order, codes, start = _sorted(codes, start)
    return order, _starts(codes, start, _running_end(codes, end[order]), gap)


def _sorted(codes: Ints, time: Ints) -> tuple[Ints, Ints, Ints]:
    if not len(codes):
        return np.zeros(0, np.int64), codes, time
    low = int(time.min())
    width = int(time.max()) - low + 1
    if (int(codes.max()) + 1) * width < _ROOM:
        order = argsort(codes * width + (time - low), (int(codes.max()) + 1) * width)
    else:
        order = np.lexsort((time, codes))
    return order, codes[order], time[order]


def _running_end(codes: Ints, end: Ints) -> Ints:
    """Return the largest end so far within each code; codes are sorted."""
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
    breaks = np.ones(len(codes), bool)
    breaks[1:] = (codes[1:] != codes[:-1]) | (start[1:] - running_end[:-1] > gap)
    return np.flatnonzero(breaks)


def merge_states(aggregates: Sequence[Aggregate], states: States, groups: Groups) -> States:
    """Merge the state columns of all aggregates; rows are in group order."""
    merged: States = []
    at = 0
    for aggregate in aggregates:
        width = len(aggregate.state)
        merged += aggregate.merge(states[at : at + width], groups) if len(groups.starts) else states[at : at + width]
        at += width
    return merged


def lift(aggregates: Sequence[Aggregate], events: Events) -> Partials:
    """Return each event as a partial."""
    ones = np.ones(len(events.time_us), np.int64)
    states = [column for aggregate in aggregates for column in aggregate.lift(events)]
    return Partials(plain_text(events.keys), events.time_us, events.time_us, ones, ones * 0, states)


def premerge(aggregates: Sequence[Aggregate], events: Events, gap: int, close_us: int) -> tuple[Partials, Bools]:
    """Merge events into partials, whose keys are a dictionary, as far as that can't change what is late; say which remain alone.

    A partial that ends at or after `close_us` is accepted whatever it meets, so its events may travel as one; events
    of an older partial must each be judged by the session they end up in.
    """
    encoded = events.keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order, starts = group_events(codes, events.time_us, gap)
    sizes = np.diff(starts, append=len(order))
    time = events.time_us[order]
    open_ = time[starts + sizes - 1] >= close_us if len(starts) else np.zeros(0, bool)
    alone = np.zeros(len(order), bool)
    if not open_.all():
        in_open = np.repeat(open_, sizes)
        alone[order[~in_open]] = True
        order, time, sizes = order[in_open], time[in_open], sizes[open_]
    at = np.cumsum(sizes) - sizes
    # Of the keys only those of groups are taken: to copy every event's text would cost more than all the rest.
    keys = pa.DictionaryArray.from_arrays(pa.array(codes[order[at]]), encoded.dictionary)
    rows = pa.array(order)
    states = [column.take(rows) for aggregate in aggregates for column in aggregate.lift(events)]
    merged = merge_states(aggregates, states, Groups(at, len(order), lambda: plain_text(keys)))
    return Partials(keys, time[at], time[at + sizes - 1], sizes, np.zeros(len(at), np.int64), merged), alone
