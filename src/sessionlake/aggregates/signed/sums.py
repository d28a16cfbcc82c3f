"""sum, avg, bool_and and bool_or that can take rows back.

Sums of doubles are exact, and rounded for readers only. A rounded sum has no inverse: (1e16 + 1) - 1e16 would lose the 1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.logic import boolean_type
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, decimals_of_words, to_state
from sessionlake.aggregates.signed import exact
from sessionlake.columnar.arrays import Bools, Groups, below_zero, exploded, nullable, numbers, packed


class SignedLogical(Aggregate):
    """bool_and(c) or bool_or(c). The state is of how many events c is true, and of how many it is false."""

    state = (LONG, LONG)
    value_type = pa.bool_()

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        boolean_type(name, function, column, type_)
        self.name, self.inputs, self.every = name, (column,), function == "bool_and"

    def lift(self, events: Events) -> States:
        """Return a 1 in the column of an event's condition, true or false; in none for null."""
        found = events.columns[self.inputs[0]]
        return [pc.fill_null(column, fill_value=False).cast(LONG) for column in (found, pc.invert(found))]

    def merge(self, states: States, groups: Groups) -> States:
        """Add."""
        return [pa.array(groups.sum(numbers(column)[0])) for column in states]

    def inverted(self, states: States) -> States:
        """Negate."""
        return [pc.negate(column) for column in states]

    def overdrawn(self, states: States) -> Bools:
        """Say which are true, or false, of fewer than no events."""
        true, false = (numbers(column)[0] < 0 for column in states)
        return true | false

    def value(self, states: States) -> pa.Array:
        """Return whether all are true, or any; null of none."""
        true, false = (numbers(column)[0] > 0 for column in states)
        return nullable(~false if self.every else true, true | false)


_HALF = 32
_LOW_HALF = (1 << _HALF) - 1
_EXACT = 1 << 53
"""Doubles have all whole numbers up to this."""


class IntegerSum(Aggregate):
    """sum(x): int64 for integers and booleans, null if the sum is beyond; decimal(38, s) for decimals.

    The state is the exact total >> 32, the 32 bits below, and how many values are not null.
    """

    state = (LONG, LONG, LONG)

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        number_type(name, function, column, type_)
        self.name, self.inputs = name, (column,)
        self.scale = type_.scale if pa.types.is_decimal(type_) else 0
        self.value_type = pa.decimal128(38, type_.scale) if pa.types.is_decimal(type_) else LONG

    def lift(self, events: Events) -> States:
        """Return each event's number; of a null nothing."""
        values, valid = numbers(to_state(events.columns[self.inputs[0]]))
        count = np.ones(len(values), np.int64) if valid is None else valid.astype(np.int64)
        return [pa.array(values >> _HALF), pa.array(values & _LOW_HALF), pa.array(count)]

    def merge(self, states: States, groups: Groups) -> States:
        """Add and carry."""
        high, low, count = (groups.sum(numbers(column)[0]) for column in states)
        return [pa.array(high + (low >> _HALF)), pa.array(low & _LOW_HALF), pa.array(count)]

    def inverted(self, states: States) -> States:
        """Negate."""
        high, low, count = (-numbers(column)[0] for column in states)
        return [pa.array(high + (low >> _HALF)), pa.array(low & _LOW_HALF), pa.array(count)]

    def overdrawn(self, states: States) -> Bools:
        """Say which have less than no values."""
        return np.less(numbers(states[-1])[0], 0)

    def value(self, states: States) -> pa.Array:
        """Return the sum; null if nothing was counted."""
        high, low, count = (numbers(column)[0] for column in states)
        total = (high << _HALF) | low
        if self.value_type != LONG:
            return decimals_of_words(total, high >> _HALF, count > 0, self.value_type)
        return nullable(total, (count > 0) & (high >> (_HALF - 1) == total >> 63))

    def beyond(self, states: States) -> int:
        """Return how many sums of integers need more than 64 bits."""
        high, low, count = (numbers(column)[0] for column in states)
        if self.value_type != LONG:
            return 0
        return int(np.count_nonzero((count > 0) & (high >> (_HALF - 1) != ((high << _HALF) | low) >> 63)))


class IntegerAverage(IntegerSum):
    """avg(x) of integers and decimals: the exact quotient, rounded to a double once."""

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        super().__init__(name, function, column, type_)
        self.value_type = DOUBLE

    def value(self, states: States) -> pa.Array:
        """Divide; null if nothing was counted."""
        high, low, count = (numbers(column)[0] for column in states)
        unit = 10**self.scale
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (high * float(1 << _HALF) + low) / (count * float(unit))
        # Doubles hold only some larger numbers, so their quotient would be rounded more than once.
        large = (np.abs(high) >= _EXACT >> _HALF) | (np.abs(count) > _EXACT // unit)
        for row in np.flatnonzero(large & (count > 0)).tolist():
            found[row] = self.one([column[row].as_py() for column in states])
        return nullable(found, count > 0)

    def one(self, state: Sequence[Any]) -> float | None:
        """Divide; None if nothing was counted."""
        high, low, count = state
        return ((high << _HALF) + low) / (count * 10**self.scale) if count > 0 else None


Doubles = npt.NDArray[np.float64]
_KINDS = 3
"""NaN, inf and -inf."""


class ExactSums(Aggregate):
    """A function of exact sums. NaN and infinities have no place in them and are counted apart.

    The state is the sums (`exact.py`), then how many NaN, inf and -inf there are (three int64; nothing if there are none), then
    the number of values.
    """

    value_type = DOUBLE

    def merge(self, states: States, groups: Groups) -> States:
        """Add."""
        *sums, others, count = states
        counts = groups.sum(numbers(count)[0])
        return [*(exact.added(column, groups) for column in sums), added_others(others, groups), pa.array(counts)]

    def inverted(self, states: States) -> States:
        """Negate."""
        *sums, others, count = states
        return [*map(exact.negated, sums), negated_others(others), pa.array(-numbers(count)[0])]

    def overdrawn(self, states: States) -> Bools:
        """Say which have less than no values, NaN or infinities."""
        return (numbers(states[-1])[0] < 0) | below_zero(*exploded(states[-2], np.int64))


class DoubleSum(ExactSums):
    """sum(x): the exact sum, rounded to a double once."""

    state = (BYTES, BYTES, LONG)

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        number_type(name, function, column, type_)
        self.name, self.inputs = name, (column,)

    def lift(self, events: Events) -> States:
        """Return each event's number; of a null nothing."""
        values, valid = numbers(to_state(events.columns[self.inputs[0]]))
        count = np.ones(len(values), np.int64) if valid is None else valid.astype(np.int64)
        finite, others = set_apart(values)
        return [exact.of_doubles(finite).stored(), others, pa.array(count)]

    def value(self, states: States) -> pa.Array:
        """Return the sum, which is infinite or NaN as IEEE's sum is; null if nothing was counted."""
        found, count = with_others(exact.rounded(states[0]), states[1]), numbers(states[2])[0]
        return nullable(found, count > 0)


class DoubleAverage(DoubleSum):
    """avg(x) of doubles: the exact sum, rounded, by the number of values; also if the sum is beyond doubles."""

    def value(self, states: States) -> pa.Array:
        """Divide; null if nothing was counted."""
        total, count = exact.rounded(states[0]), numbers(states[2])[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            found = total / count
        for row in np.flatnonzero(np.isinf(total) & (count > 0)).tolist():
            found[row] = exact.quotient(*exact.whole(states[0][row].as_py()), int(count[row]))
        return nullable(with_others(found, states[1]), count > 0)


def set_apart(values: Doubles) -> tuple[Doubles, pa.Array]:
    """Return the values with 0 in place of NaN, inf and -inf, and the counts of these three."""
    odd = ~np.isfinite(values)
    if not odd.any():
        return values, packed(np.zeros(0, np.int64), np.zeros(len(values), np.int64))
    some = values[odd]
    kinds = np.stack([np.isnan(some), some == np.inf, some == -np.inf], axis=1).astype(np.int64)
    return np.where(odd, 0.0, values), packed(kinds.ravel(), np.where(odd, _KINDS, 0))


def added_others(column: pa.Array, groups: Groups) -> pa.Array:
    """Return each group's counts of NaN, inf and -inf."""
    kinds, lengths = exploded(column, np.int64)
    if not len(kinds):
        return column.take(pa.array(groups.starts))
    sums = np.zeros((len(groups.starts), _KINDS), np.int64)
    np.add.at(sums, groups.ids[lengths > 0], kinds.reshape(-1, _KINDS))
    some = sums.any(axis=1)
    return packed(sums[some].ravel(), np.where(some, _KINDS, 0))


def negated_others(column: pa.Array) -> pa.Array:
    """Return the counts with the other sign."""
    kinds, lengths = exploded(column, np.int64)
    return packed(-kinds, lengths)


def with_others(sums: Doubles, column: pa.Array) -> Doubles:
    """Return sums of finite doubles together with the other counts: NaN, or the infinity if there is only one."""
    kinds, lengths = exploded(column, np.int64)
    if not len(kinds):
        return sums
    rows = np.flatnonzero(lengths)
    nan, above, below = (kinds.reshape(-1, _KINDS) > 0).T
    is_nan = nan | (above & below)
    odd = is_nan | above | below
    result = sums.copy()
    result[rows[odd]] = np.where(is_nan, np.nan, np.where(above, np.inf, -np.inf))[odd]
    return result
