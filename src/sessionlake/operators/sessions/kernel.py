"""The merge kernel (docs/rules.md, rules 4 and 160): partials of a key that meet while one is open become one.

`columnar.groups` says which lie together, `aggregates.partials.merge_states` merges them.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Aggregate, Events
from sessionlake.aggregates.partials import Partials, merge_states
from sessionlake.columnar.arrays import Bools, Groups, Ints, picked, plain_text
from sessionlake.columnar.groups import group_events, group_intervals
from sessionlake.columnar.records import Records
from sessionlake.operators.sessions.windows import SessionWindows


def premerge(
    aggregates: Sequence[Aggregate],
    events: Events,
    windows: SessionWindows,
    open_us: int,
    until: Ints | None = None,
    *,
    finals_last: bool = False,
) -> tuple[Partials, Bools]:
    """Merge events into partials as far as that can't change which events are late; return them, and which events were not merged.

    This runs before the shuffle, when stored sessions and other tasks' events are not known. A partial that is open until
    `open_us` or later is always accepted (docs/rules.md, rule 5), so its events may travel as one. An older one may
    turn out late, and its events then go to late_events one by one: they must travel with their raw rows. `until` has the
    events' `open_until` if they have gaps of their own. The partials' keys are a dictionary; the mask is of the events,
    in their order. With `finals_last` an event before `open_us` is not merged: it may join a closed session, and is late then
    (docs/rules.md, rule 264).
    """
    if finals_last and (events.time_us < open_us).any():
        unmerged = events.time_us < open_us
        rest = np.flatnonzero(~unmerged)
        some = None if until is None else until[rest]
        return premerge(aggregates, events.take(rest), windows, open_us, some)[0], unmerged
    encoded = events.keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if until is None:
        order, starts = group_points(codes, events.time_us, windows)
    else:
        order, starts = group_intervals(codes, events.time_us, until, 0)
    sizes = np.diff(starts, append=len(order))
    time = events.time_us[order]
    # Events are points in order of time, so the last one of a group is its end.
    merged_until = _group_until(windows, time[starts + sizes - 1], None if until is None else until[order], starts)
    open_ = merged_until >= open_us
    unmerged = np.zeros(len(order), bool)
    if not open_.all():
        in_open = np.repeat(open_, sizes)
        unmerged[order[~in_open]] = True
        # Events of groups that may be late leave; the rest of each array stays in the same order.
        order, time, sizes, merged_until = order[in_open], time[in_open], sizes[open_], merged_until[open_]
    at = np.cumsum(sizes) - sizes
    # Only the groups' keys are taken: a copy of every event's text would cost more than all the rest.
    keys = pa.DictionaryArray.from_arrays(pa.array(codes[order[at]]), encoded.dictionary)
    rows = pa.array(order)
    states = [picked(column, rows) for aggregate in aggregates for column in aggregate.lift(events)]
    merged = merge_states(aggregates, states, Groups(at, len(order), lambda: plain_text(keys)))
    none = np.zeros(len(at), np.int64)
    kept = merged_until if windows.keeps_until else None
    return Partials(keys, time[at], time[at + sizes - 1], sizes, none, merged, kept), unmerged


def group_points(codes: Ints, time_us: Ints, windows: SessionWindows) -> tuple[Ints, Ints]:
    """Group events whose gap follows from their time; return the order that sorts them by (code, time), and the place in it at which each group starts."""
    if windows.before and len(time_us) and time_us.min() < windows.before[-1].until_us:
        return group_intervals(codes, time_us, windows.open_until(time_us), 0)
    order, starts = group_events(codes, time_us, windows.gap_us)
    if windows.max_length_us is None or not len(order):
        return order, starts
    cell = windows.cell_ends(time_us[order])
    # A group also ends where the cell changes: no session crosses a bound of a cell.
    breaks = np.append(True, cell[1:] != cell[:-1])
    breaks[starts] = True
    return order, np.flatnonzero(breaks)


def until_of(windows: SessionWindows, partials: Partials | Records) -> Ints:
    """Return until when each is open: as it is kept, or as it follows from the end."""
    return windows.open_until(partials.end) if partials.until is None else partials.until


def known_until(windows: SessionWindows, end: Ints, given: pa.Array | None) -> Ints | None:
    """Return until when partials that corrections brought are open, in microseconds: as given, or as follows from the end.

    None if it always follows from the end. A given value lies between the end and the end + the widest gap.
    """
    if not windows.keeps_until:
        return None
    follows = windows.open_until(end)
    if given is None:
        return follows
    most = windows.open_until(end, np.full(len(end), windows.widest_us))
    micros = pc.fill_null(given.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return np.where(pc.is_valid(given).to_numpy(zero_copy_only=False), np.clip(micros, end, most), follows)


def _group_until(windows: SessionWindows, end: Ints, until: Ints | None, starts: Ints) -> Ints:
    if until is None or not len(starts):
        return windows.open_until(end)
    return np.maximum.reduceat(until, starts)
