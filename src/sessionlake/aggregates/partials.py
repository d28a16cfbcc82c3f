"""Partials: parts of sessions as columns, the one form in which events, restates, puts and stored sessions are merged.

One event is a partial whose start and end are its time. `merge_ranges` merges overlapping ranges of partials.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.beyond import BEYOND, counter
from sessionlake.columnar.arrays import Groups, Ints, concatenated, picked, plain_text, starts_of, taken, within_group
from sessionlake.columnar.records import UNTIL, together


@dataclass(frozen=True)
class Partials:
    """(key, start, end, count, revision, aggregate states) in columns of equal length; times inclusive, microseconds.

    `states` holds the state columns of all aggregates, one after the other. `revision` is the batch_id of a stored
    session's last change, and meaningless for rows that are not stored. Keys from `premerge` are a dictionary array.
    """

    keys: pa.Array
    start: Ints
    end: Ints
    count: Ints
    revision: Ints
    states: States
    until: Ints | None = None
    """`open_until` of each, if it does not follow from the end (`operators/sessions/windows.py`)."""

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.integer]) -> "Partials":
        """Return the given rows, in that order."""
        index = pa.array(rows)
        columns = [picked(column, index) for column in self.states]
        return Partials(
            self.keys.take(index),
            self.start[rows],
            self.end[rows],
            self.count[rows],
            self.revision[rows],
            columns,
            None if self.until is None else self.until[rows],
        )

    def to_table(self) -> pa.Table:
        """Return the columns key, start_us, end_us, event_count, revision, until_us if that is known, s0, s1, ... ."""
        columns = {
            "key": plain_text(self.keys),
            "start_us": self.start,
            "end_us": self.end,
            "event_count": self.count,
            "revision": self.revision,
            **({} if self.until is None else {UNTIL: self.until}),
        }
        return pa.table({**columns, **{f"s{i}": column for i, column in enumerate(self.states)}})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Partials":
        """Invert `to_table`."""
        table = table.combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]
        start, end, count, revision = (column.to_numpy() for column in columns[1:5])
        if UNTIL in table.column_names:
            return cls(columns[0], start, end, count, revision, columns[6:], columns[5].to_numpy())
        return cls(columns[0], start, end, count, revision, columns[5:])

    @classmethod
    def empty(cls, aggregates: Sequence[Aggregate]) -> "Partials":
        """Return no rows, with the state columns of the given aggregates."""
        none = np.zeros(0, np.int64)
        return cls(
            pa.array([], pa.string()),
            none,
            none,
            none,
            none,
            [pa.array([], type_) for a in aggregates for type_ in a.state],
        )


def concat(parts: Sequence[Partials]) -> Partials:
    """Return all parts' rows, in order; at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Partials(
        keys=pa.concat_arrays([plain_text(p.keys) for p in parts]),
        start=np.concatenate([p.start for p in parts]),
        end=np.concatenate([p.end for p in parts]),
        count=np.concatenate([p.count for p in parts]),
        revision=np.concatenate([p.revision for p in parts]),
        states=[concatenated(columns) for columns in zip(*(p.states for p in parts), strict=True)],
        until=together([(len(p), p.until) for p in parts]),
    )


def lift(aggregates: Sequence[Aggregate], events: Events, until: Ints | None = None) -> Partials:
    """Return each event as a partial; `until` has each event's `open_until`, if its time does not determine it."""
    ones = np.ones(len(events.time_us), np.int64)
    states = [column for aggregate in aggregates for column in aggregate.lift(events)]
    return Partials(plain_text(events.keys), events.time_us, events.time_us, ones, ones * 0, states, until)


def merge_states(aggregates: Sequence[Aggregate], states: States, groups: Groups) -> States:
    """Merge the state columns of all aggregates; rows are in group order.

    `states` holds the columns of all aggregates one after the other, each as many as its `state` says; so does the result.
    """
    merged: States = []
    at = 0
    for aggregate in aggregates:
        width = len(aggregate.state)
        merged += aggregate.merge(states[at : at + width], groups) if len(groups.starts) else states[at : at + width]
        at += width
    return merged


def values_of(aggregates: Sequence[Aggregate], states: States) -> list[pa.Array]:
    """Return states' values as users see them: a column for each aggregate, of its type."""
    values, at = [], 0
    for aggregate in aggregates:
        width = len(aggregate.state)
        values.append(aggregate.value(states[at : at + width]).cast(aggregate.value_type))
        at += width
    return values


def written_values(aggregates: Sequence[Aggregate], states: States) -> list[pa.Array]:
    """Return the values of written rows, as `values_of` does, and count values beyond their type."""
    found, at = counter(), 0
    for aggregate in aggregates:
        width = len(aggregate.state)
        if found is not None and (n := aggregate.beyond(states[at : at + width])):
            found[f"{BEYOND}:{aggregate.name}"] += n
        at += width
    return values_of(aggregates, states)


def merge_ranges(aggregates: Sequence[Aggregate], states: States, low: Ints, high: Ints, keys: pa.Array) -> States:
    """Merge the rows [low[i], high[i]) of the state columns into one state for each i; no range is empty.

    `keys` has the key of each row; all rows of a range have the same key. Raises StoreError if a column of the copied rows
    exceeds Arrow's 2 GiB.
    """
    # If ranges overlap little, or an aggregate has full states, each range's rows are copied and merged. Else the merges are
    # shared by binary lifting: level j has the merges of 2^j consecutive rows, and a range takes a merge for each bit of
    # its length. So O((rows + ranges) log longest) merges are enough for any associative aggregate.
    length = high - low
    longest = int(length.max(initial=1))
    if longest == 1:
        return [column.take(pa.array(low)) for column in states]
    lifts = all(a.spans_keys and not a.full_state for a in aggregates)
    if not lifts or length.sum() <= (len(keys) + len(low)) * longest.bit_length():
        rows = pa.array(np.repeat(low, length) + within_group(length))
        groups = Groups(starts_of(length), len(rows), lambda: keys.take(pa.array(low)))
        return merge_states(aggregates, [taken(column, rows) for column in states], groups)
    parts, owners = [], []
    at, width, level = low.copy(), 1, states
    while width <= longest:
        # `width` is a power of two: ranges whose length has this bit take a merge of `width` rows at `at`, and go on after
        # it. So a range's parts come in row order.
        these = np.flatnonzero(length & width)
        parts.append([column.take(pa.array(at[these])) for column in level])
        owners.append(these)
        at[these] += width
        if 2 * width <= longest:
            level = _doubled(aggregates, level, width)
        width *= 2
    owner = np.concatenate(owners)
    # Stable: each range's parts stay in row order.
    order = np.argsort(owner, kind="stable")
    # The sort is stable, so each range's parts stay in order; a group starts at each change of the owner.
    starts = np.flatnonzero(np.diff(owner[order], prepend=-1))
    gathered = [concatenated(columns).take(pa.array(order)) for columns in zip(*parts, strict=True)]
    return merge_states(aggregates, gathered, Groups(starts, len(order), lambda: keys.take(pa.array(low))))


def _doubled(aggregates: Sequence[Aggregate], level: States, width: int) -> States:
    """Return the merge of each row with the row `width` further on. Some merges mix two keys, but no range uses these."""
    rows = max(0, len(level[0]) - width) if level else 0
    # Rows 0, width, 1, 1 + width, ...: the two rows of each merge stand next to each other.
    pairs = pa.array(np.stack([np.arange(rows), np.arange(rows) + width], axis=1).ravel())
    return merge_states(aggregates, [column.take(pairs) for column in level], Groups(np.arange(rows) * 2, 2 * rows))
