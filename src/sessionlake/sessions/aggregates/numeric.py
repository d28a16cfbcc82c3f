"""count, sum, min, max and avg. Nulls are ignored, as in SQL; of nothing but nulls comes null (count: 0)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.errors import ConfigError
from sessionlake.sessions.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.sessions.arrays import Groups, Ints, nullable, numbers, ranks
from sessionlake.sessions.scalars import BYTES, DOUBLE, LONG, decimals, from_state, state_type, to_state

_SAFE_SUM = 1 << 62


class Count(Aggregate):
    """count() counts events, count(x) those whose x is not null."""

    state = (LONG,)
    value_type = LONG

    def __init__(self, name: str, column: str | None) -> None:
        self.name, self.column = name, column
        self.inputs = () if column is None else (column,)

    def lift(self, events: Events) -> States:
        """Return one for each counted event."""
        if self.column is None:
            return [pa.array(np.ones(len(events.time_us), np.int64))]
        return [pc.is_valid(events.columns[self.column]).cast(LONG)]

    def merge(self, states: States, groups: Groups) -> States:
        """Add."""
        return [pa.array(np.add.reduceat(numbers(states[0])[0], groups.starts))]

    def value(self, states: States) -> pa.Array:
        """Return the count."""
        return states[0]

    def from_value(self, values: pa.Array, time_us: Ints) -> States:
        """Return the value itself."""
        return [values.cast(LONG)]


class Sum(Aggregate):
    """sum(x): int64 for integers (saturating at its bounds), double for floats, decimal(38, s) for decimals."""

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        self.name, self.inputs = name, (column,)
        kind = state_type(type_, name)
        if kind == BYTES or pa.types.is_temporal(type_):
            raise ConfigError(f"aggregates.{name}: sum({column}) needs numbers, but {column} is {type_}; pick a numeric column")
        self.state = (kind,)
        self.value_type = pa.decimal128(38, type_.scale) if pa.types.is_decimal(type_) else kind

    def lift(self, events: Events) -> States:
        """Return each event's number."""
        return [to_state(events.columns[self.inputs[0]])]

    def merge(self, states: States, groups: Groups) -> States:
        """Add, ignoring nulls."""
        values, valid = numbers(states[0])
        total = np.add.reduceat(values, groups.starts)
        if values.dtype == np.int64 and len(values) and _may_overflow(values, groups):
            total = _saturated(total, values, groups)
        return [nullable(total, None if valid is None else np.logical_or.reduceat(valid, groups.starts))]

    def value(self, states: States) -> pa.Array:
        """Return the sum."""
        return decimals(states[0], self.value_type) if pa.types.is_decimal(self.value_type) else states[0]

    def from_value(self, values: pa.Array, time_us: Ints) -> States:
        """Return the value itself."""
        return [to_state(values) if pa.types.is_decimal(values.type) else values.cast(self.state[0])]


def _may_overflow(values: np.ndarray, groups: Groups) -> bool:
    largest = max(abs(int(values.min())), abs(int(values.max())))
    return largest * int(groups.sizes.max()) >= _SAFE_SUM


def _saturated(total: np.ndarray, values: np.ndarray, groups: Groups) -> np.ndarray:
    # Doubles tell on which side of the int64 range the exact sum lies; near the bounds both readings agree.
    estimate = np.add.reduceat(values.astype(np.float64), groups.starts)
    limits = np.iinfo(np.int64)
    wrapped = np.abs(estimate - total) > float(1 << 63)
    return np.where(wrapped, np.where(estimate > 0, limits.max, limits.min), total)


class Extreme(Aggregate):
    """min(x) or max(x) of numbers, texts, dates and timestamps."""

    def __init__(self, name: str, column: str, type_: pa.DataType, *, largest: bool) -> None:
        self.name, self.inputs, self.largest = name, (column,), largest
        self.state = (state_type(type_, name),)
        self.value_type = type_

    def lift(self, events: Events) -> States:
        """Return each event's value."""
        return [to_state(events.columns[self.inputs[0]])]

    def merge(self, states: States, groups: Groups) -> States:
        """Keep the extreme value, ignoring nulls."""
        if self.state[0] == BYTES:
            return merge_shared(states, groups, self._merge_texts)
        is_long = self.state[0] == LONG
        worst = (np.iinfo(np.int64).min if self.largest else np.iinfo(np.int64).max) if is_long else (-np.inf if self.largest else np.inf)
        values, valid = numbers(states[0], worst)
        pick = np.fmax if self.largest else np.fmin
        return [nullable(pick.reduceat(values, groups.starts), None if valid is None else np.logical_or.reduceat(valid, groups.starts))]

    def _merge_texts(self, states: States, groups: Groups) -> States:
        order = ranks(states[0])
        valid = pc.is_valid(states[0]).to_numpy(zero_copy_only=False)
        order = np.where(valid, order if self.largest else -order, np.iinfo(np.int64).min)
        best = np.maximum.reduceat(order, groups.starts)
        at_best = np.flatnonzero(order == best[groups.ids])
        _, first = np.unique(groups.ids[at_best], return_index=True)
        return [states[0].take(pa.array(at_best[first]))]

    def value(self, states: States) -> pa.Array:
        """Return the extreme value in the column's own type."""
        return from_state(states[0], self.value_type)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:
        """Return the value itself."""
        return [to_state(values.cast(self.value_type))]


class Average(Aggregate):
    """avg(x), a double."""

    state = (DOUBLE, LONG)
    value_type = DOUBLE

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        self.name, self.inputs = name, (column,)
        self._sum = Sum(name, column, type_)
        self._scale = 10.0 ** -type_.scale if pa.types.is_decimal(type_) else 1.0

    def lift(self, events: Events) -> States:
        """Return each event's number and whether it counts."""
        values = events.columns[self.inputs[0]]
        total = pc.multiply(to_state(values).cast(DOUBLE, safe=False), self._scale)
        return [pc.fill_null(total, 0.0), pc.is_valid(values).cast(LONG)]

    def merge(self, states: States, groups: Groups) -> States:
        """Add sums and counts."""
        return [pa.array(np.add.reduceat(numbers(column)[0], groups.starts)) for column in states]

    def value(self, states: States) -> pa.Array:
        """Divide; null where nothing was counted."""
        total, count = (numbers(column)[0] for column in states)
        with np.errstate(invalid="ignore", divide="ignore"):
            return nullable(total / count, count > 0)
