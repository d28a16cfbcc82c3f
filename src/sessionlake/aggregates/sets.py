"""collect_set, string_agg and mode: what became of the values of a group, each once, joined, or counted."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.ordered import Collect, alike, as_bytes, ordered, pack_texts, unpack_texts
from sessionlake.aggregates.scalars import BYTES, from_state, state_type, to_state
from sessionlake.columnar.arrays import Bools, Groups, Ints, exploded, packed, within_group
from sessionlake.errors import ConfigError


def changes(*columns: Ints) -> Bools:
    """Say which rows differ from the row before in a column."""
    changed = np.ones(len(columns[0]), bool)
    changed[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return changed


class CollectSet(Collect):
    """collect_set(x, limit): the first `limit` distinct values, each by the least (time, id) of its events.

    The result does not depend on the order of merges: a dropped value has `limit` earlier ones, which stay.
    """

    def _values(self, events: Events) -> pa.Array:
        return alike(super()._values(events))

    def _order(self, owners: Ints, times: Ints, ids: pa.Array, values: pa.Array) -> Ints:
        """Return the rows of each owner's distinct values, by time, then id, then value."""
        by_id, by_value = self.id_order.ranks(ids), ordered(values)
        order = np.lexsort((by_id, times, by_value, owners))
        order = order[changes(owners[order], by_value[order])]
        return order[np.lexsort((by_value[order], by_id[order], times[order], owners[order]))]


class StringAgg(Collect):
    """string_agg(x, separator, limit): the first `limit` texts, by time, then id, then text, joined; null of none."""

    def __init__(self, name: str, column: str, type_: pa.DataType, separator: str, limit: int) -> None:
        if not pa.types.is_string(type_):
            raise ConfigError(
                f"aggregates.{name}: string_agg({column}) needs texts, but {column} is {type_}; cast it to string"
            )
        super().__init__(name, column, type_, limit)
        self.separator, self.value_type = separator, type_

    def value(self, states: States) -> pa.Array:
        """Return the joined texts."""
        lists = super().value(states)
        some = pc.greater(pc.list_value_length(lists), 0)
        return pc.if_else(some, pc.binary_join(lists, self.separator), pa.scalar(None, self.value_type))


class Mode(Aggregate):
    """mode(x): the value that most events have; of several the least.

    The state is the distinct values, sorted, with their counts: it grows with them.
    """

    state = (BYTES, BYTES, BYTES)
    full_state = True

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        self.name, self.inputs, self.value_type = name, (column,), type_
        self.item_state = state_type(type_, name)

    def lift(self, events: Events) -> States:
        """Return each event's value once; of a null nothing."""
        values = self._values(events)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        counts = valid.astype(np.int64)
        return self._packed(counts[valid], values.drop_null(), counts)

    def _values(self, events: Events) -> pa.Array:
        """Return the counted value of each event, in type `item_state`; equal values have equal bytes."""
        return alike(to_state(events.columns[self.inputs[0]]))

    def merge(self, states: States, groups: Groups) -> States:
        """Add the counts of equal values."""
        return merge_shared(states, groups, self._merge_counts)

    def _merge_counts(self, states: States, groups: Groups) -> States:
        counts, values, sizes = self._items(states)
        if not len(counts):
            return [column.take(pa.array(groups.starts)) for column in states]
        owners, by_value = np.repeat(groups.ids, sizes), ordered(values)
        order = np.lexsort((by_value, owners))
        starts = np.flatnonzero(changes(owners[order], by_value[order]))
        first = order[starts]
        kept = np.bincount(owners[first], minlength=len(groups.starts))
        # `starts` are the first of a group's equal values: their counts are summed.
        return self._packed(np.add.reduceat(counts[order], starts), values.take(pa.array(first)), kept)

    def _packed(self, counts: Ints, values: pa.Array, sizes: Ints) -> States:
        return [packed(counts, sizes), *pack_texts(as_bytes(values), sizes)]

    def _items(self, states: States) -> tuple[Ints, pa.Array, Ints]:
        """Return the counts and the values of all rows, flat, and how many each row has."""
        counts, sizes = exploded(states[0], np.int64)
        return counts, unpack_texts(states[1], states[2], self.item_state), sizes

    def value(self, states: States) -> pa.Array:
        """Return the most frequent value; null of none."""
        counts, values, sizes = self._items(states)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        # Values are sorted within a row, so the first of its most frequent values is the least.
        best = np.lexsort((within_group(sizes), -counts, owners))[np.cumsum(sizes)[sizes > 0] - sizes[sizes > 0]]
        rows = np.zeros(len(sizes), np.int64)
        rows[sizes > 0] = best
        return from_state(values.take(pa.array(rows, mask=sizes == 0)), self.value_type)
