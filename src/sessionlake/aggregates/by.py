"""max_by and min_by: the value of the event at which another column is greatest or least."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, from_state, state_type, to_state
from sessionlake.columnar.arrays import Groups, Ints, nullable, numbers, ranks

_SIGN_BIT = np.int64(np.iinfo(np.int64).max)


def alike(values: pa.Array) -> pa.Array:
    """Return a state column in which values that compare as equal have equal bytes: -0.0 is 0.0, and all NaN are one."""
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
    # The bits of doubles are in their order, of negative ones in the opposite one.
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _SIGN_BIT, bits)


def least_rows(keys: Sequence[Ints], groups: Groups) -> Ints:
    """Return the row of each group that is least by the first key, of equal ones by the next, and so on.

    >>> least_rows([np.array([2, 1, 1]), np.array([0, 7, 5])], Groups(np.array([0]), 3)).tolist()
    [2]
    """
    rows = np.arange(groups.rows)
    for key in keys:
        if len(rows) == len(groups.starts):
            break
        owners, values = groups.ids[rows], key[rows]
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
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
