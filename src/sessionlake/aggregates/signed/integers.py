"""sum and avg of integers and decimals that can take rows back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import DOUBLE, LONG, decimals_of_words, to_state
from sessionlake.columnar.arrays import Bools, Groups, nullable, numbers

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
        high, low, count = (np.add.reduceat(numbers(column)[0], groups.starts) for column in states)
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
        # Doubles hold only some of the numbers beyond, so their quotient would be rounded more than once.
        large = (np.abs(high) >= _EXACT >> _HALF) | (np.abs(count) > _EXACT // unit)
        for row in np.flatnonzero(large & (count > 0)).tolist():
            found[row] = self.one([column[row].as_py() for column in states])
        return nullable(found, count > 0)

    def one(self, state: Sequence[Any]) -> float | None:
        """Divide; None if nothing was counted."""
        high, low, count = state
        return ((high << _HALF) + low) / (count * 10**self.scale) if count > 0 else None
