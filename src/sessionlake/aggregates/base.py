"""What every aggregate is: a lift of events to states, an order-free merge of states, and a value.

In algebra's terms a commutative monoid with a projection: events are lifted into it, merged there in any order and any
grouping, and only for readers is a value made. So the same aggregate can be merged before the shuffle, in the store, and
by jobs years later, and nothing shows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Groups, Ints, concatenated

States = list[pa.Array]
"""An aggregate's state columns, as many as its `state` has types, one row a group (or an event, when just lifted)."""


@dataclass(frozen=True)
class Events:
    """Events that become single-event partials; all arrays have one row an event. Keys may be a dictionary of text."""

    keys: pa.Array
    time_us: Ints
    columns: Mapping[str, pa.Array]
    """What aggregates read, by the names of their `inputs`, in the pipeline's types."""
    event_id: pa.Array | None = None
    """Text, by which ties of `first`, `last` and `collect` are broken; None where the config names no id."""


class Aggregate(ABC):
    """A named, typed, mergeable aggregate; `merge` is associative and commutative.

    All methods work on whole columns. Instances are pickled to the workers. What `state` is, and what its bytes mean, is
    stored: a change of either makes existing sessions unreadable, and asks for another STATE_LAYOUT
    (`aggregates/partials.py`).
    """

    name: str
    """The column of the tables that has its value."""
    state: tuple[pa.DataType, ...]
    """Types of its state columns: int64, float64 or binary, all nullable."""
    value_type: pa.DataType
    inputs: tuple[str, ...] = ()
    """The event columns that `lift` reads; of a user's class that names none, all of them."""
    full_state: bool = False
    """Whether its state holds every value, so that to merge rows twice would be to copy all of them twice: `ranges.py` never does."""
    plain: int | None = None
    """Which of its state columns is the value, but for the type (`scalars.from_state`); None where `value` computes one."""
    one: Callable[[Sequence[Any]], Any] | None = None
    """Compute the value of one state, of int, float, bytes and None, as `value` does of columns, where that is simple."""
    spans_keys: bool = True
    """Whether states of several keys may be merged where nobody reads what comes of it; a user's class is asked for one key only."""

    @abstractmethod
    def lift(self, events: Events) -> States:
        """Return the state of each event single."""

    @abstractmethod
    def merge(self, states: States, groups: Groups) -> States:
        """Return one state a group; the rows of a group come in any order."""

    @abstractmethod
    def value(self, states: States) -> pa.Array:
        """Return the value that users see, of type `value_type`."""

    def from_value(self, values: pa.Array, time_us: Ints) -> States | None:
        """Return states that have these values, as of the given times, or None where a value does not determine a state.

        For harness and tests, which write partials by values.
        """
        del values, time_us
        return None


def merge_shared(states: States, groups: Groups, merge: Callable[[States, Groups], States]) -> States:
    """Merge only groups of two or more rows; the others keep their state.

    For states that are dear to merge: in a stream many groups are a single event.
    """
    shared = groups.sizes > 1
    if shared.all():
        return merge(states, groups)
    single = [column.take(pa.array(groups.starts[~shared])) for column in states]
    if not shared.any():
        return single
    rows = pa.array(np.flatnonzero(shared[groups.ids]))
    sizes = groups.sizes[shared]
    keys = groups.keys
    subset = Groups(np.cumsum(sizes) - sizes, int(sizes.sum()), lambda: keys().take(pa.array(np.flatnonzero(shared))))
    merged = merge([column.take(rows) for column in states], subset)
    # Groups come out in their order again: those of one row, then the merged ones, are put where they belong.
    order = np.empty(len(shared), np.int64)
    order[~shared] = np.arange(len(single[0]))
    order[shared] = len(single[0]) + np.arange(len(sizes))
    return [concatenated([a, m]).take(pa.array(order)) for a, m in zip(single, merged, strict=True)]
