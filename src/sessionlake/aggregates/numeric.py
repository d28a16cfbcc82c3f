"""count, sum, min, max, avg, first_position and last_position. Nulls are ignored, as in SQL; the value of only nulls is null (count: 0).

Positions are the topic positions of a session's or window's first and last event.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.scalars import (
    BYTES,
    DOUBLE,
    LONG,
    decimal_words,
    decimals_of_words,
    from_state,
    state_type,
    to_state,
)
from sessionlake.aggregates.wide import added, none_wide, of_longs, of_whole, whole
from sessionlake.aggregates.wide import doubles_of as wide_doubles
from sessionlake.columnar.arrays import Bools, Groups, Ints, nullable, numbers, ranks, validity, within_group
from sessionlake.errors import ConfigError

_SAFE_SUM = 1 << 62
"""A group whose values could add up to less can't leave int64, and needs no look at each."""
_EXACT = 1 << 53
"""Doubles have all whole numbers below."""
_EXACT_DECIMAL = 10**15
"""The double next to a decimal of fewer units determines it."""
_HALF = 32
_LOW_HALF = (1 << _HALF) - 1
_FACTORS = 512
"""So many mantissas have a product that a double holds."""
_LARGEST_POWER = 5000
"""Of two; any double is smaller."""


class Count(Aggregate):
    """count() counts events, count(x) those whose x is not null."""

    state = (LONG,)
    value_type = LONG
    plain = 0

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
        return [pa.array(groups.sum(numbers(states[0])[0]))]

    def value(self, states: States) -> pa.Array:
        """Return the count."""
        return states[0]

    def inverted(self, states: States) -> States:
        """Negate."""
        return [pc.negate(states[0])]

    def overdrawn(self, states: States) -> Bools:
        """Say which counts are below 0."""
        return np.less(numbers(states[0])[0], 0)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - it has no time
        """Return the value itself."""
        return [values.cast(LONG)]


def number_type(name: str, function: str, column: str, type_: pa.DataType) -> pa.DataType:
    """Return the state type of a number column; ConfigError for any other."""
    kind = state_type(type_, name)
    if kind == BYTES or pa.types.is_temporal(type_):
        raise ConfigError(
            f"aggregates.{name}: {function}({column}) needs numbers, but {column} is {type_}; pick a numeric column"
        )
    return kind


def doubles_of(values: pa.Array) -> pa.Array:
    """Return numbers of any type as doubles; nulls stay null."""
    scale = 10.0**-values.type.scale if pa.types.is_decimal(values.type) else 1.0
    return pc.multiply(to_state(values).cast(DOUBLE, safe=False), scale)


class Sum(Aggregate):
    """sum(x) of floats, a double."""

    state = (DOUBLE,)
    value_type = DOUBLE
    plain = 0

    def __init__(self, name: str, column: str) -> None:
        self.name, self.inputs = name, (column,)

    def lift(self, events: Events) -> States:
        """Return each event's number."""
        return [to_state(events.columns[self.inputs[0]])]

    def merge(self, states: States, groups: Groups) -> States:
        """Add, ignoring nulls."""
        values, valid = numbers(states[0])
        with np.errstate(over="ignore", invalid="ignore"):
            total = groups.sum(values)
        return [nullable(total, None if valid is None else groups.any(valid))]

    def value(self, states: States) -> pa.Array:
        """Return the sum."""
        return states[0]

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - a sum has no time
        """Return the value itself."""
        return [values.cast(DOUBLE)]


class WholeSum(Aggregate):
    """sum(x) of integers and booleans: int64, null while the sum is beyond. It is kept in 128 bits (docs/rules.md, rule 466)."""

    state = (LONG, BYTES)
    rare = (1,)
    value_type = LONG
    plain = 0

    def __init__(self, name: str, column: str) -> None:
        self.name, self.inputs = name, (column,)

    def lift(self, events: Events) -> States:
        """Return each event's number."""
        return self.from_value(to_state(events.columns[self.inputs[0]]), events.time_us)

    def merge(self, states: States, groups: Groups) -> States:
        """Add, ignoring nulls."""
        (values, valid), wide = numbers(states[0]), states[1]
        some = None if valid is None else groups.any(valid)
        with np.errstate(over="ignore"):
            total = groups.sum(values)
        if wide.null_count == len(wide) and not _may_overflow(values, groups):
            return [nullable(total, some), none_wide(len(total))]
        total, fits, beyond = added(values, wide, groups.starts)
        is_wide = wide.is_valid().to_numpy(zero_copy_only=False)
        some = groups.any(is_wide | (True if valid is None else valid))
        return [nullable(total, some & fits), beyond]

    def value(self, states: States) -> pa.Array:
        """Return the sum."""
        return states[0]

    def beyond(self, states: States) -> int:
        """Return how many sums are kept in more than 64 bits."""
        return len(states[1]) - int(states[1].null_count)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - a sum has no time
        """Return the value itself."""
        return [values.cast(LONG), none_wide(len(values))]


class DecimalSum(Aggregate):
    """sum(x) of decimals, exact: decimal(38, s). The state is total >> 32 and the 32 bits below.

    A sum of values of up to 18 digits outgrows int64. The lower part is 32 bits wide, so that an int64 can add up 2 ** 31
    rows of it before the carry is moved into the upper one, once a merge.
    """

    state = (LONG, LONG)

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        number_type(name, "sum", column, type_)
        self.name, self.inputs = name, (column,)
        self.value_type = pa.decimal128(38, type_.scale)

    def lift(self, events: Events) -> States:
        """Return each event's number."""
        values = events.columns[self.inputs[0]]
        return self.from_value(values.cast(self.value_type), events.time_us)

    def merge(self, states: States, groups: Groups) -> States:
        """Add and carry, ignoring nulls."""
        high, valid = numbers(states[0])
        low, _ = numbers(states[1])
        total_low = groups.sum(low)
        total_high = groups.sum(high) + (total_low >> _HALF)
        some = None if valid is None else groups.any(valid)
        return [nullable(total_high, some), nullable(total_low & _LOW_HALF, some)]

    def value(self, states: States) -> pa.Array:
        """Return the sum."""
        (high, valid), (low, _) = numbers(states[0]), numbers(states[1])
        return decimals_of_words((high << _HALF) | low, high >> _HALF, valid, self.value_type)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - a sum has no time
        """Return the value itself."""
        words = decimal_words(values)
        valid = validity(values)
        high = (words[:, 1] << _HALF) | ((words[:, 0] >> _HALF) & _LOW_HALF)
        return [nullable(high, valid), nullable(words[:, 0] & _LOW_HALF, valid)]


def _may_overflow(values: Ints, groups: Groups) -> bool:
    """Say whether a group's sum can leave int64: it could if each value were as large as the largest."""
    largest = max(abs(int(values.min())), abs(int(values.max())))
    return largest * int(groups.sizes.max()) >= _SAFE_SUM


class Extreme(Aggregate):
    """min(x) or max(x) of numbers, texts, dates and timestamps."""

    plain = 0

    def __init__(self, name: str, column: str, type_: pa.DataType, *, largest: bool) -> None:
        self.name, self.inputs, self.largest = name, (column,), largest
        self.state = (state_type(type_, name),)
        self.value_type = type_

    def lift(self, events: Events) -> States:
        """Return each event's value."""
        return [to_state(events.columns[self.inputs[0]])]

    def merge(self, states: States, groups: Groups) -> States:
        """Keep the extreme value, ignoring nulls. NaN is greater than every number, as in Spark and DuckDB."""
        if self.state[0] == BYTES:
            return merge_shared(states, groups, self._merge_texts)
        # Nulls become a number that loses against every value, so a single reduction is enough.
        limits = np.iinfo(np.int64)
        if self.state[0] == LONG:
            worst: float = limits.min if self.largest else limits.max
        else:
            worst = -np.inf if self.largest else np.nan
        values, valid = numbers(states[0], worst)
        # maximum lets NaN win, fmin lets it lose.
        with np.errstate(invalid="ignore"):
            best = (np.maximum if self.largest else np.fmin).reduceat(values, groups.starts)
        return [nullable(best, None if valid is None else groups.any(valid))]

    def _merge_texts(self, states: States, groups: Groups) -> States:
        """Keep the extreme text: numpy reduces numbers only, so ranks stand for the texts."""
        order = ranks(states[0])
        valid = pc.is_valid(states[0]).to_numpy(zero_copy_only=False)
        order = np.where(valid, order if self.largest else -order, np.iinfo(np.int64).min)
        # Each group's greatest rank; nulls have the least number.
        best = np.maximum.reduceat(order, groups.starts)
        at_best = np.flatnonzero(order == best[groups.ids])
        _, first = np.unique(groups.ids[at_best], return_index=True)
        return [states[0].take(pa.array(at_best[first]))]

    def value(self, states: States) -> pa.Array:
        """Return the extreme value in the column's own type."""
        return from_state(states[0], self.value_type)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - it has no time
        """Return the value itself."""
        return [to_state(values.cast(self.value_type))]


class Average(Aggregate):
    """avg(x) of doubles, a double; the state is sum and count, for averages can't be merged."""

    state: tuple[pa.DataType, ...] = (DOUBLE, LONG)
    value_type = DOUBLE

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        self.name, self.inputs = name, (column,)
        number_type(name, "avg", column, type_)

    def lift(self, events: Events) -> States:
        """Return each event's number and whether it counts."""
        values = events.columns[self.inputs[0]]
        return [pc.fill_null(doubles_of(values), 0.0), pc.is_valid(values).cast(LONG)]

    def merge(self, states: States, groups: Groups) -> States:
        """Add sums and counts."""
        with np.errstate(over="ignore", invalid="ignore"):
            return [pa.array(groups.sum(numbers(column)[0])) for column in states]

    def value(self, states: States) -> pa.Array:
        """Divide; null if nothing was counted."""
        total, count = (numbers(column)[0] for column in states)
        with np.errstate(invalid="ignore", divide="ignore"):
            return nullable(total / count, count > 0)

    def one(self, state: Sequence[Any]) -> float | None:
        """Divide; None if nothing was counted."""
        total, count = state
        return total / count if count else None


class ExactAverage(Average):
    """avg(x) of integers, booleans and decimals, a double: the exact quotient, rounded once (docs/rules.md, rule 466).

    The total is counted in units of the last digit. The double next to a small total determines it, for example 12.34 a total of
    1234 cents; a greater one is kept in 128 bits, too.
    """

    state = (DOUBLE, LONG, BYTES)
    rare = (2,)

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        super().__init__(name, column, type_)
        self._unit = int(10**type_.scale) if pa.types.is_decimal(type_) else 1
        self._small = _EXACT if self._unit == 1 else _EXACT_DECIMAL

    def lift(self, events: Events) -> States:
        """Return each event's number and whether it counts."""
        units, valid = numbers(to_state(events.columns[self.inputs[0]]))
        count = np.ones(len(units), np.int64) if valid is None else valid.astype(np.int64)
        large = (units >= self._small) | (units <= -self._small)
        wide = of_longs(units, large) if large.any() else none_wide(len(units))
        return [pa.array(units / self._unit), pa.array(count), wide]

    def merge(self, states: States, groups: Groups) -> States:
        """Add totals and counts."""
        units, (count, _), wide = self._units(numbers(states[0])[0]), numbers(states[1]), states[2]
        counts = pa.array(groups.sum(count))
        largest = float(np.abs(units).max())
        if wide.null_count == len(wide) and largest * int(groups.sizes.max()) < self._small:
            total = groups.sum(units)
            return [pa.array(total / self._unit), counts, none_wide(len(counts))]
        is_wide = wide.is_valid().to_numpy(zero_copy_only=False)
        # Totals of before there were further bits are doubles of any size.
        beyond = ~is_wide & (np.abs(units) >= self._small)
        if beyond.any():
            wide = pc.coalesce(wide, of_whole([int(one) for one in units[beyond].tolist()], beyond))
        plain = np.where(is_wide | beyond, 0.0, units).astype(np.int64)
        sums, fits, wide = added(plain, wide, groups.starts, below=self._small)
        found = sums.astype(np.float64)
        found[~fits] = wide_doubles(wide.drop_null())
        return [pa.array(found / self._unit), counts, wide]

    def value(self, states: States) -> pa.Array:
        """Divide; null if nothing was counted."""
        units, count = self._units(numbers(states[0])[0]), numbers(states[1])[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            found = units / (count * float(self._unit))
        # Doubles hold only some larger numbers, so their quotient would be rounded more than once.
        large = states[2].is_valid().to_numpy(zero_copy_only=False) | (count > _EXACT // self._unit)
        for row in np.flatnonzero(large & (count > 0)).tolist():
            found[row] = self.one([column[row].as_py() for column in states])
        return nullable(found, count > 0)

    def one(self, state: Sequence[Any]) -> float | None:
        """Divide; None if nothing was counted."""
        total, count, wide = state
        units = round(total * self._unit) if wide is None else whole(wide)
        return units / (count * self._unit) if count else None

    def _units(self, totals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return totals in units. Earlier releases summed decimals as doubles; the nearest whole number mends these totals."""
        return totals if self._unit == 1 else np.rint(totals * self._unit)


class Product(Aggregate):
    """product(x), a double. The state is a mantissa in [0.5, 1) and a power of two, so no part of a product is beyond doubles."""

    state = (DOUBLE, LONG)
    value_type = DOUBLE

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        number_type(name, "product", column, type_)
        self.name, self.inputs = name, (column,)

    def lift(self, events: Events) -> States:
        """Return each event's number."""
        return self.from_value(doubles_of(events.columns[self.inputs[0]]), events.time_us)

    def merge(self, states: States, groups: Groups) -> States:
        """Multiply, ignoring nulls."""
        (mantissa, valid), (power, _) = numbers(states[0], 1.0), numbers(states[1])
        sizes = groups.sizes
        with np.errstate(invalid="ignore"):
            while len(mantissa) > len(groups.starts):
                starts = np.flatnonzero(within_group(sizes) % _FACTORS == 0)
                # At most `_FACTORS` mantissas are multiplied at once: their product neither over- nor underflows.
                mantissa, carried = np.frexp(np.multiply.reduceat(mantissa, starts))
                power = np.add.reduceat(power, starts) + carried
                sizes = -(-sizes // _FACTORS)
        some = None if valid is None else groups.any(valid)
        return [nullable(mantissa, some), nullable(power, some)]

    def value(self, states: States) -> pa.Array:
        """Return the product, infinite or 0 if it is beyond doubles."""
        (mantissa, valid), (power, _) = numbers(states[0]), numbers(states[1])
        with np.errstate(over="ignore", under="ignore"):
            return nullable(np.ldexp(mantissa, np.clip(power, -_LARGEST_POWER, _LARGEST_POWER)), valid)

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - a product has no time
        """Return the parts of the value."""
        found, valid = numbers(values.cast(DOUBLE), 1.0)
        mantissa, power = np.frexp(found)
        return [nullable(mantissa, valid), nullable(power.astype(np.int64), valid)]


PARTITION, OFFSET = "_partition", "_offset"
"""The columns of a topic's record behind a position (`sources/record_columns.py`)."""
OFFSETS = 1 << 40
"""A position is the number of the partition, times this, plus the offset: fewer records of a partition are ever read."""


class PositionEdge(Extreme):
    """The least or the greatest position of the events; null for events without a position."""

    def __init__(self, name: str, *, latest: bool) -> None:
        super().__init__(name, OFFSET, LONG, largest=latest)
        self.inputs = (PARTITION, OFFSET)

    def lift(self, events: Events) -> States:
        """Return each event's position."""
        partition, offset = (events.columns[name].cast(LONG) for name in self.inputs)
        return [pc.add(pc.multiply(partition, pa.scalar(OFFSETS, LONG)), offset)]
