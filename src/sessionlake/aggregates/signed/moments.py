"""variance, stddev, corr, covar and regr that can take rows back, by exact sums of numbers and products.

Of rounded sums nothing would be left if the spread is small beside the mean. These are exact, and so are their differences:
a value is rounded once. It is computed row by row, in whole numbers of any size.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events, States
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, to_state
from sessionlake.aggregates.signed import exact
from sessionlake.aggregates.signed.sums import ExactSums, set_apart
from sessionlake.columnar.arrays import numbers


@dataclass(frozen=True)
class Sums:
    """Exact sums of n pairs (y, x), as whole numbers: y and x times 2 ** exponent, products times 2 ** (2 * exponent)."""

    n: int
    y: int
    x: int
    yy: int
    xx: int
    xy: int
    exponent: int
    unit_y: int
    """Decimals are counted in units: y is so many times greater than what is meant."""
    unit_x: int

    @property
    def spread_y(self) -> int:
        """The sum of squared distances of y from the mean, times n."""
        return self.n * self.yy - self.y * self.y

    @property
    def spread_x(self) -> int:
        """The sum of squared distances of x from the mean, times n."""
        return self.n * self.xx - self.x * self.x

    @property
    def spread(self) -> int:
        """The products of both distances, times n."""
        return self.n * self.xy - self.y * self.x


def _covariance(s: Sums, spread: int, n: int) -> float:
    return exact.quotient(spread, 2 * s.exponent, s.n * n * s.unit_y * s.unit_x)


def _deviation(s: Sums, n: int) -> float:
    return exact.root(s.spread_x, 2 * s.exponent, s.n * n * s.unit_x**2)


def _correlation(s: Sums) -> float:
    size = exact.root(s.spread**2, 0, s.spread_y * s.spread_x)
    return -size if s.spread < 0 else size


def _slope(s: Sums) -> float:
    return exact.quotient(s.spread * s.unit_x, 0, s.spread_x * s.unit_y)


def _intercept(s: Sums) -> float:
    return exact.quotient(s.y * s.xx - s.x * s.xy, s.exponent, s.spread_x * s.unit_y)


@dataclass(frozen=True)
class _Formula:
    least: int
    """The fewest events that have a value."""
    compute: Callable[[Sums], float]
    divisor: Callable[[Sums], int] = lambda s: s.n
    """Computes what must be positive."""


_OF_ONE: Mapping[str, _Formula] = {
    "variance": _Formula(2, lambda s: _covariance(s, s.spread_x, s.n - 1)),
    "var_pop": _Formula(1, lambda s: _covariance(s, s.spread_x, s.n)),
    "stddev": _Formula(2, lambda s: _deviation(s, s.n - 1)),
    "stddev_pop": _Formula(1, lambda s: _deviation(s, s.n)),
}
_OF_TWO: Mapping[str, _Formula] = {
    "covar_samp": _Formula(2, lambda s: _covariance(s, s.spread, s.n - 1)),
    "covar_pop": _Formula(1, lambda s: _covariance(s, s.spread, s.n)),
    "corr": _Formula(2, _correlation, lambda s: s.spread_y * s.spread_x),
    "regr_slope": _Formula(2, _slope, lambda s: s.spread_x),
    "regr_intercept": _Formula(2, _intercept, lambda s: s.spread_x),
}


class _Moments(ExactSums):
    """A function of exact sums, computed row by row."""

    function: str
    formulas: Mapping[str, _Formula]

    def value(self, states: States) -> pa.Array:
        """Compute the function; null of fewer events than it takes, and if it is not defined."""
        columns = [column.to_pylist() for column in states]
        return pa.array([self.one(row) for row in zip(*columns, strict=True)], DOUBLE)

    def one(self, state: Sequence[Any]) -> float | None:
        """Compute the function for a state."""
        *stored, others, count = state
        formula = self.formulas[self.function]
        if count < formula.least:
            return None
        if others:
            return nan
        sums = self._sums(count, [exact.whole(number) for number in stored])
        return formula.compute(sums) if formula.divisor(sums) > 0 else None

    @abstractmethod
    def _sums(self, n: int, stored: Sequence[tuple[int, int]]) -> Sums:
        """Return what the formula is of, from the state's sums as (m, e), which are m * 2 ** e."""


class SignedMoments(_Moments):
    """variance(x), var_pop(x), stddev(x) or stddev_pop(x). The sums are of x and of x * x."""

    state = (BYTES, BYTES, BYTES, LONG)
    formulas = _OF_ONE

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        number_type(name, function, column, type_)
        self.name, self.inputs, self.function, self._unit = name, (column,), function, _unit(type_)

    def lift(self, events: Events) -> States:
        """Return each event's number and square; nothing for null."""
        values = to_state(events.columns[self.inputs[0]])
        found, others = _apart(numbers(values)[0])
        x = _limbs(found)
        return [x.stored(), x.times(x).stored(), others, values.is_valid().cast(LONG)]

    def _sums(self, n: int, stored: Sequence[tuple[int, int]]) -> Sums:
        exponent, (x, xx) = _aligned(stored, (1, 2))
        return Sums(n, x, x, xx, xx, xx, exponent, self._unit, self._unit)


class SignedComoments(_Moments):
    """A function of two columns y and x, over events with both. The sums: y, x, y * y, x * x and x * y."""

    state = (BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, LONG)
    formulas = _OF_TWO

    def __init__(self, name: str, function: str, columns: tuple[str, ...], types: tuple[pa.DataType, ...]) -> None:
        for column, type_ in zip(columns, types, strict=True):
            number_type(name, function, column, type_)
        self.name, self.inputs, self.function = name, columns, function
        self._units = [_unit(type_) for type_ in types]

    def lift(self, events: Events) -> States:
        """Return each event's numbers and products; nothing for an event that lacks a number."""
        columns = [to_state(events.columns[column]) for column in self.inputs]
        both = pc.and_(*(column.is_valid() for column in columns))
        y, x = (numbers(pc.if_else(both, column, pa.scalar(None, column.type)))[0] for column in columns)
        # An event is counted apart if a number of it has no sum; its other number then has no part in the sums.
        _, others = _apart(np.where(np.isfinite(y), x, y))
        finite = np.isfinite(y) & np.isfinite(x)
        of_y, of_x = (_limbs(np.where(finite, found, found.dtype.type(0))) for found in (y, x))
        sums = (of_y, of_x, of_y.times(of_y), of_x.times(of_x), of_x.times(of_y))
        return [*(limbs.stored() for limbs in sums), others, both.cast(LONG)]

    def _sums(self, n: int, stored: Sequence[tuple[int, int]]) -> Sums:
        exponent, (y, x, yy, xx, xy) = _aligned(stored, (1, 1, 2, 2, 2))
        return Sums(n, y, x, yy, xx, xy, exponent, *self._units)


def _unit(type_: pa.DataType) -> int:
    return int(10**type_.scale) if pa.types.is_decimal(type_) else 1


def _apart(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], pa.Array]:
    """Return the numbers with a sum, 0 in place of the others, and the others' counts."""
    if values.dtype == np.int64:
        return values, set_apart(np.zeros(len(values)))[1]
    return set_apart(values)


def _limbs(values: npt.NDArray[Any]) -> exact.Limbs:
    return exact.of_integers(values) if values.dtype == np.int64 else exact.of_doubles(values)


def _aligned(stored: Sequence[tuple[int, int]], powers: Sequence[int]) -> tuple[int, list[int]]:
    """Return e, and the numbers (m, e) as whole numbers: those of power 1 times 2 ** e, those of power 2 times 2 ** (2 * e).

    >>> _aligned([(3, 0), (9, -32)], (1, 2))
    (-16, [196608, 9])
    """
    given = list(zip(stored, powers, strict=True))
    least = min((exponent // power for (number, exponent), power in given if number), default=0)
    return least, [number << (exponent - power * least) if number else 0 for (number, exponent), power in given]
