"""first, last, collect, max_by and min_by: by event time, or by another column. Arrival order never matters.

Ties of first, last and collect are decided by event id, or else by value.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, from_state, state_type, to_state
from sessionlake.columnar.arrays import (
    Groups,
    Ints,
    binary_array,
    bounds_of,
    exploded,
    nullable,
    numbers,
    offsets_of,
    packed,
    ranks,
    within_group,
)


class Edge(Aggregate):
    """first(x) or last(x): the value that is not null at the earliest or latest time.

    A tie goes to the smallest (first) or largest (last) event id, then value. The state is the time, the value and, if
    events have ids, the id.
    """

    plain = 1

    def __init__(self, name: str, column: str, type_: pa.DataType, *, latest: bool, with_id: bool) -> None:
        self.name, self.inputs, self.latest, self.with_id = name, (column,), latest, with_id
        self.state = (LONG, state_type(type_, name), BYTES) if with_id else (LONG, state_type(type_, name))
        self.value_type = type_

    def lift(self, events: Events) -> States:
        """Return time, value and tie-breaker of each event; all null if the value is."""
        value = to_state(events.columns[self.inputs[0]])
        valid = pc.is_valid(value)
        states = [pc.if_else(valid, pa.array(events.time_us), pa.scalar(None, LONG)), value]
        if self.with_id:
            ids = pa.nulls(len(value), BYTES) if events.event_id is None else events.event_id.cast(BYTES)
            states.append(pc.if_else(valid, pc.fill_null(ids, b""), pa.scalar(None, BYTES)))
        return states

    def merge(self, states: States, groups: Groups) -> States:
        """Keep the row at the edge: earliest or latest time, then the tie-breakers."""
        # A null's time becomes the losing time in this direction.
        sign = -1 if self.latest else 1
        times, _ = numbers(states[0], np.iinfo(np.int64).max * sign)
        pick = np.maximum if self.latest else np.minimum
        # The rows whose time is their group's edge.
        at_edge = np.flatnonzero(times == pick.reduceat(times, groups.starts)[groups.ids])
        owners = groups.ids[at_edge]
        if len(at_edge) > len(groups.starts):
            at_edge = self._tied(at_edge, owners, [column.take(pa.array(at_edge)) for column in states[1:]])
        rows = pa.array(at_edge)
        return [column.take(rows) for column in states]

    def _tied(self, rows: Ints, owners: Ints, columns: States) -> Ints:
        """Return a row for each owner: the first or last by (id, value), or by value alone."""
        value, *ids = columns
        # Nulls rank last in either direction, so a real value at the extreme of the time range wins.
        is_null = pc.is_null(value).to_numpy(zero_copy_only=False)
        last, sign = np.iinfo(np.int64).max, -1 if self.latest else 1
        ranked = [ranks(value), *(self.id_order.ranks(pc.fill_null(column, b"")) for column in ids)]
        order = np.lexsort((*(np.where(is_null, last, sign * each) for each in ranked), owners))
        _, first = np.unique(owners[order], return_index=True)
        return rows[order[first]]

    def value(self, states: States) -> pa.Array:
        """Return the value in the column's own type."""
        return from_state(states[1], self.value_type)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:
        """Return the value as of the given times."""
        return self.lift(Events(values, time_us, {self.inputs[0]: values.cast(self.value_type)}))


class Collect(Aggregate):
    """collect(x, limit): the first `limit` values that are not null, ordered by time, then id or value.

    The state is three lists, packed as `columnar.arrays.exploded` reads them: times; ids, as their lengths and their bytes;
    values, likewise. A merge needs times and ids to order by, of the values that are kept no less.
    """

    state: tuple[pa.DataType, ...] = (BYTES, BYTES, BYTES, BYTES, BYTES)

    def __init__(self, name: str, column: str, type_: pa.DataType, limit: int) -> None:
        self.name, self.inputs, self.limit = name, (column,), limit
        self.item_type = type_
        self.item_state = state_type(type_, name)
        self.value_type = pa.list_(type_)

    def lift(self, events: Events) -> States:
        """Return a single-value list for each event; empty for null."""
        value = self._values(events)
        valid = pc.is_valid(value).to_numpy(zero_copy_only=False)
        kept = pa.array(np.flatnonzero(valid))
        ids = pa.nulls(len(value), BYTES) if events.event_id is None else events.event_id.cast(BYTES)
        ids = pc.fill_null(ids, b"")
        return self._packed(events.time_us[valid], ids.take(kept), value.take(kept), valid.astype(np.int64))

    def _values(self, events: Events) -> pa.Array:
        """Return what is collected of each event, of the type `item_state`."""
        return to_state(events.columns[self.inputs[0]])

    def merge(self, states: States, groups: Groups) -> States:
        """Merge the lists and keep the first `limit` values."""
        return merge_shared(states, groups, self._merge_lists)

    def _merge_lists(self, states: States, groups: Groups) -> States:
        # All groups' lists are laid out as a column each, sorted together, and cut again.
        times, counts = exploded(states[0], np.int64)
        ids, values = unpack_texts(states[1], states[2], BYTES), unpack_texts(states[3], states[4], self.item_state)
        owners = np.repeat(groups.ids, counts)
        order = self._order(owners, times, ids, values) if len(times) else np.zeros(0, np.int64)
        position = within_group(np.bincount(owners[order], minlength=len(groups.starts)))
        order = order[position < self.limit]
        kept = np.bincount(owners[order], minlength=len(groups.starts))
        rows = pa.array(order)
        return self._packed(times[order], ids.take(rows), values.take(rows), kept)

    def _order(self, owners: Ints, times: Ints, ids: pa.Array, values: pa.Array) -> Ints:
        """Return the rows by owner, in the order of the list."""
        return np.lexsort((ranks(values), self.id_order.ranks(ids), times, owners))

    def _packed(self, times: Ints, ids: pa.Array, values: pa.Array, counts: Ints) -> States:
        return [packed(times, counts), *pack_texts(ids, counts), *pack_texts(as_bytes(values), counts)]

    def value(self, states: States) -> pa.Array:
        """Return the list of values."""
        _, counts = exploded(states[0], np.int64)
        items = from_state(unpack_texts(states[3], states[4], self.item_state), self.item_type)
        return pa.ListArray.from_arrays(pa.array(bounds_of(counts), pa.int32()), items)


def as_bytes(values: pa.Array) -> pa.Array:
    """Return values of any state type as byte strings; numbers as eight bytes."""
    if pa.types.is_binary(values.type):
        return values
    return packed(numbers(values)[0], np.ones(len(values), np.int64))


def pack_texts(texts: pa.Array, counts: Ints) -> States:
    """Return the columns of lengths and of bytes; row i has the next counts[i] texts."""
    cuts, data = offsets_of(texts)
    ends = bounds_of(counts)
    return [packed(np.diff(cuts).astype(np.int32), counts), binary_array(data, cuts[ends])]


def unpack_texts(lengths: pa.Array, data: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the elements of all rows' lists, flat and in a state type, from columns of lengths and bytes."""
    sizes, _ = exploded(lengths, np.int32)
    # Text i ends where the lengths so far do.
    texts = binary_array(offsets_of(data)[1], np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    return texts if type_ == BYTES else pa.array(offsets_of(texts)[1].view(type_.to_pandas_dtype()), type_)


_SIGN_BIT = np.int64(np.iinfo(np.int64).max)


def alike(values: pa.Array) -> pa.Array:
    """Return a state column in which equal values have equal bytes: -0.0 is 0.0, and all NaN are alike."""
    if values.type != DOUBLE:
        return values
    found, valid = numbers(values)
    return nullable(np.where(np.isnan(found), np.nan, found + 0.0), valid)


def ordered(column: pa.Array) -> Ints:
    """Return whole numbers in the order of a state column's values; any for nulls. NaN is the greatest number, -0.0 is 0.0.

    >>> ordered(pa.array([1.5, -1.5, float("nan")])).argsort().tolist()
    [1, 0, 2]
    """
    if column.type == BYTES:
        return ranks(column)
    values = numbers(alike(column))[0]
    if column.type != DOUBLE:
        return values
    # Positive doubles sort as their bits do; negative ones sort the opposite way.
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _SIGN_BIT, bits)


def least_rows(keys: Sequence[Ints], groups: Groups) -> Ints:
    """Return each group's least row by the first key, on ties by the next, and so on.

    >>> least_rows([np.array([2, 1, 1]), np.array([0, 7, 5])], Groups(np.array([0]), 3)).tolist()
    [2]
    """
    rows = np.arange(groups.rows)
    for key in keys:
        if len(rows) == len(groups.starts):
            break
        owners, values = groups.ids[rows], key[rows]
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        # `rows` are in group order and every group has one, so `owners` numbers the runs of `starts`.
        rows = rows[values == np.minimum.reduceat(values, starts)[owners]]
    return rows[np.flatnonzero(np.diff(groups.ids[rows], prepend=-1))]


class ValueBy(Aggregate):
    """max_by(x, y) or min_by(x, y): x of the event of the greatest or least y that is not null; x may be null.

    A tie goes to the earliest time, then to the least id, then to the least x, null last. The state is y, the time, x and, if
    events have ids, the id.
    """

    plain = 2

    def __init__(
        self, name: str, columns: tuple[str, ...], types: tuple[pa.DataType, ...], *, largest: bool, with_id: bool
    ) -> None:
        self.name, self.inputs, self.largest, self.with_id = name, columns, largest, with_id
        x, y = (state_type(type_, name) for type_ in types)
        self.state = (y, LONG, x, BYTES) if with_id else (y, LONG, x)
        self.value_type = types[0]

    def lift(self, events: Events) -> States:
        """Return each event's columns; all null if y is."""
        x, y = (alike(to_state(events.columns[column])) for column in self.inputs)
        columns = [y, pa.array(events.time_us), x]
        if self.with_id:
            ids = pa.nulls(len(x), BYTES) if events.event_id is None else events.event_id.cast(BYTES)
            columns.append(pc.fill_null(ids, b""))
        valid = pc.is_valid(y)
        return [pc.if_else(valid, column, pa.scalar(None, column.type)) for column in columns]

    def merge(self, states: States, groups: Groups) -> States:
        """Keep the row at the extreme."""
        if groups.rows == len(groups.starts):
            return states
        y, time, x, *ids = states
        by_y = ordered(y)
        keys = [
            _is_null(y),
            ~by_y if self.largest else by_y,
            ordered(time),
            *map(self.id_order.ranks, (pc.fill_null(column, b"") for column in ids)),
            _is_null(x),
            ordered(x),
        ]
        rows = pa.array(least_rows(keys, groups))
        return [column.take(rows) for column in states]

    def value(self, states: States) -> pa.Array:
        """Return the value in the column's own type."""
        return from_state(states[2], self.value_type)


def _is_null(column: pa.Array) -> Ints:
    return column.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
