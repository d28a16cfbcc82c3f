"""What every aggregate is: a lift of events to states, an order-free merge of states, and a value."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Groups, Ints

States = list[pa.Array]


@dataclass(frozen=True)
class Events:
    """Events that become single-event partials; all arrays have one row an event. Keys may be a dictionary of text."""

    keys: pa.Array
    time_us: Ints
    columns: Mapping[str, pa.Array]
    event_id: pa.Array | None = None


class Aggregate(ABC):
    """A named, typed, mergeable aggregate; `merge` is associative and commutative.

    `state` gives the types of its state columns: int64, float64 or binary, all nullable.
    """

    name: str
    state: tuple[pa.DataType, ...]
    value_type: pa.DataType
    inputs: tuple[str, ...] = ()

    @abstractmethod
    def lift(self, events: Events) -> States:
        """Return the state of each event alone."""

    @abstractmethod
    def merge(self, states: States, groups: Groups) -> States:
        """Return one state a group; the rows of a group come in any order."""

    @abstractmethod
    def value(self, states: States) -> pa.Array:
        """Return the value that users see, of type `value_type`."""

    def from_value(self, values: pa.Array, time_us: Ints) -> States | None:
        """Return states that have these values, or None where a value does not determine a state."""
        del values, time_us
        return None


def merge_shared(states: States, groups: Groups, merge: Callable[[States, Groups], States]) -> States:
    """Merge only groups of two or more rows; the others keep their state. For states that are dear to merge."""
    shared = groups.sizes > 1
    if shared.all():
        return merge(states, groups)
    alone = [column.take(pa.array(groups.starts[~shared])) for column in states]
    if not shared.any():
        return alone
    rows = pa.array(np.flatnonzero(shared[groups.ids]))
    sizes = groups.sizes[shared]
    keys = groups.keys
    subset = Groups(np.cumsum(sizes) - sizes, int(sizes.sum()), lambda: keys().take(pa.array(np.flatnonzero(shared))))
    merged = merge([column.take(rows) for column in states], subset)
    order = np.empty(len(shared), np.int64)
    order[~shared] = np.arange(len(alone[0]))
    order[shared] = len(alone[0]) + np.arange(len(sizes))
    return [pa.concat_arrays([a, m]).take(pa.array(order)) for a, m in zip(alone, merged, strict=True)]
