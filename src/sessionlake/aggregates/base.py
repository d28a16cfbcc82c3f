"""The interface of aggregates: a lift of events to states, an order-free merge of states, and a value.

In terms of algebra it is a commutative monoid with a projection. Events are lifted to states, states are merged in any order
and any grouping, and a value is computed only for readers. So the same aggregate can be merged before the shuffle, in the
store, and by jobs years later, with the same result.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Groups, Ints, concatenated, starts_of
from sessionlake.columnar.equality import BY_TEXT, IdOrder

States = list[pa.Array]
"""An aggregate's state columns: one for each type in its `state`, one row a group (or an event, when just lifted)."""


@dataclass(frozen=True)
class Events:
    """Events that become single-event partials; all arrays have one row an event. Keys may be a dictionary of text."""

    keys: pa.Array
    time_us: Ints
    columns: Mapping[str, pa.Array]
    """The columns that aggregates read by their `inputs`' names, in the pipeline's types."""
    event_id: pa.Array | None = None
    """Text, by which ties of `first`, `last` and `collect` are broken; None if the config names no id."""
    source: Mapping[str, pa.Array] | None = None
    """The source's columns from which `columns` are computed; None if these are the source's."""
    batch: Ints | None = None
    """The batch that stored each event, for events read from a table; None for incoming events."""

    def take(self, rows: Ints) -> "Events":
        """Return the given events, in that order."""
        index = pa.array(rows)
        columns = {name: column.take(index) for name, column in self.columns.items()}
        ids = None if self.event_id is None else self.event_id.take(index)
        batch = None if self.batch is None else self.batch[rows]
        return Events(self.keys.take(index), self.time_us[rows], columns, ids, batch=batch)


class Aggregate(ABC):
    """A named, typed, mergeable aggregate; `merge` is associative and commutative.

    All methods work on whole columns. Instances are pickled to the workers.
    """

    # Stores and tables have the columns of `state` and their bytes. Changing either makes existing results unreadable,
    # so it needs another STATE_LAYOUT (`aggregates/partials.py`).

    name: str
    """The tables' column for the value."""
    state: tuple[pa.DataType, ...]
    """State column types: int64, float64 or binary, all nullable."""
    value_type: pa.DataType
    inputs: tuple[str, ...] = ()
    """The event columns that `lift` reads; all of them for a user's class that names none."""
    rare: tuple[int, ...] = ()
    """The indexes of state columns that are null in nearly all states: binary of 16 bytes, each behind an int64 column. Packed states have them only where they are not null (`aggregates/codec.py`)."""
    full_state: bool = False
    """Whether its state holds every value. To merge such rows twice would copy all values twice, so `ranges.py` merges them once."""
    plain: int | None = None
    """The index of the state column with the value, except for its type (`scalars.from_state`); None if `value` computes it."""
    one: Callable[[Sequence[Any]], Any] | None = None
    """Compute the value of one state, of int, float, bytes and None, as `value` does for columns, if this is simple."""
    by_time: bool = False
    """Whether states of rows taken back have the event's time."""
    spans_keys: bool = True
    """Whether states of several keys may be merged if nobody reads the result. A user's class merges states of a single key only."""
    id_order: IdOrder = BY_TEXT
    """The order of events' ids, by which ties are decided. States have the ids' texts whatever it is."""

    @abstractmethod
    def lift(self, events: Events) -> States:
        """Return the state of each event alone."""

    @abstractmethod
    def merge(self, states: States, groups: Groups) -> States:
        """Return a state for each group; a group's rows may have any order."""

    @abstractmethod
    def value(self, states: States) -> pa.Array:
        """Return the value for users, in type `value_type`."""

    def inverted(self, states: States) -> States | None:
        """Return states that take these back when they are merged with them; None if the aggregate can't subtract."""
        del states
        return None

    def overdrawn(self, states: States) -> Bools:
        """Say for each state whether something was taken back without having come, if the state can tell."""
        return np.zeros(len(states[0]), bool)

    def beyond(self, states: States) -> int:
        """Return how many values are null because they are beyond the value's type."""
        del states
        return 0

    def from_value(self, values: pa.Array, time_us: Ints) -> States | None:
        """Return states that have these values, as of the given times, or None if a value does not determine a state.

        Test helpers use it to write partials by values.
        """
        del values, time_us
        return None


def merge_shared(states: States, groups: Groups, merge: Callable[[States, Groups], States]) -> States:
    """Merge only groups of two or more rows; the others keep their state.

    Use it for states whose merge is expensive. In a stream many groups have a single event.
    """
    shared = groups.sizes > 1
    if shared.all():
        return merge(states, groups)
    single = [column.take(pa.array(groups.starts[~shared])) for column in states]
    if not shared.any():
        return single
    # The rows of the shared groups, and the start of each group among these rows.
    rows = pa.array(np.flatnonzero(shared[groups.ids]))
    sizes = groups.sizes[shared]
    keys = groups.keys
    subset = Groups(starts_of(sizes), int(sizes.sum()), lambda: keys().take(pa.array(np.flatnonzero(shared))))
    merged = merge([column.take(rows) for column in states], subset)
    # Restore group order: groups of one row and merged groups go to their places.
    order = np.empty(len(shared), np.int64)
    order[~shared] = np.arange(len(single[0]))
    order[shared] = len(single[0]) + np.arange(len(sizes))
    return [concatenated([a, m]).take(pa.array(order)) for a, m in zip(single, merged, strict=True)]
