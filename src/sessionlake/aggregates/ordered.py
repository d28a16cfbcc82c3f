"""first, last and collect: by event time, ties by event id or else by value, so that arrival order never matters."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.scalars import BYTES, LONG, from_state, state_type, to_state
from sessionlake.columnar.arrays import (
    Groups,
    Ints,
    binary_array,
    exploded,
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
        # A null's time becomes the one that loses in this direction.
        sign = -1 if self.latest else 1
        times, _ = numbers(states[0], np.iinfo(np.int64).max * sign)
        pick = np.maximum if self.latest else np.minimum
        at_edge = np.flatnonzero(times == pick.reduceat(times, groups.starts)[groups.ids])
        owners = groups.ids[at_edge]
        if len(at_edge) > len(groups.starts):
            at_edge = self._tied(at_edge, owners, [column.take(pa.array(at_edge)) for column in states[1:]])
        rows = pa.array(at_edge)
        return [column.take(rows) for column in states]

    def _tied(self, rows: Ints, owners: Ints, columns: States) -> Ints:
        """Return one of the rows for each owner: the first or last by (id, value), or by value alone."""
        value, *ids = columns
        # Nulls rank last in either direction, so that a real value at the extreme of the time range wins.
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
        """Return a list of one value for each event; empty if it is null."""
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
        # All lists of all groups are laid out as one column each, sorted together, and cut again.
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
        return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()), items)


def as_bytes(values: pa.Array) -> pa.Array:
    """Return values of any state type as byte strings; of numbers their eight bytes."""
    if pa.types.is_binary(values.type):
        return values
    return packed(numbers(values)[0], np.ones(len(values), np.int64))


def pack_texts(texts: pa.Array, counts: Ints) -> States:
    """Return the columns of lengths and of bytes; row i has the next counts[i] texts."""
    cuts, data = offsets_of(texts)
    ends = np.concatenate([[0], np.cumsum(counts)])
    return [packed(np.diff(cuts).astype(np.int32), counts), binary_array(data, cuts[ends])]


def unpack_texts(lengths: pa.Array, data: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the elements of all rows' lists, flat and of a state type, from the columns of their lengths and their bytes."""
    sizes, _ = exploded(lengths, np.int32)
    texts = binary_array(offsets_of(data)[1], np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))
    return texts if type_ == BYTES else pa.array(offsets_of(texts)[1].view(type_.to_pandas_dtype()), type_)
