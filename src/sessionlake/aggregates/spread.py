"""Aggregates of central moments: variance, stddev, skewness, kurtosis, and of two columns covar, corr and regr.

Their states are means and sums of powers of the distances from them, and are merged by sums over a group's parts (Chan et
al. 1979, Pébay 2008). Nothing is subtracted from a state, so a spread that is small beside the mean stays exact.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.numeric import doubles_of, number_type
from sessionlake.aggregates.scalars import DOUBLE, LONG
from sessionlake.columnar.arrays import Bools, Groups, Ints, nullable, numbers

Doubles = npt.NDArray[np.float64]
Formula = Callable[..., Any]


def _merged_means(count: Doubles, means: Doubles, groups: Groups) -> tuple[Doubles, Doubles, Doubles]:
    """Return each group's count and mean, and each row's distance from its group's mean, 0 for a row without events."""
    total = groups.sum(count)
    # A nearby mean is the origin: the sum of small distances is more exact than the sum of means.
    some = count > 0
    origin = groups.sum(np.where(_first_of(some, groups), means, 0.0))
    away = np.where(some, means - origin[groups.ids], 0.0)
    mean = origin + groups.sum(count * away) / np.maximum(total, 1)
    return total, mean, np.where(some, means - mean[groups.ids], 0.0)


def _first_of(some: Bools, groups: Groups) -> Bools:
    """Say which rows are their group's first among some."""
    before: Ints = np.cumsum(some) - some  # rows of some, before each row
    return some & (before == before[groups.starts][groups.ids])


def _root(value: Any) -> Any:
    return np.sqrt(value)


class Moments(Aggregate):
    """A function of a column's central moments, up to the fourth.

    The state is n, the mean, and the sums of the second and higher powers of the distances from it, as many as the function
    asks for.
    """

    value_type = DOUBLE

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        number_type(name, function, column, type_)
        self.name, self.inputs, self.function = name, (column,), function
        self.order, self.least = _ORDERS[function]
        self.state = (LONG, *([DOUBLE] * self.order))

    def lift(self, events: Events) -> States:
        """Return each event's number as a mean, of which nothing is away."""
        values = doubles_of(events.columns[self.inputs[0]])
        zeros = pa.array(np.zeros(len(values)))
        return [pc.is_valid(values).cast(LONG), pc.fill_null(values, 0.0), *([zeros] * (self.order - 1))]

    def merge(self, states: States, groups: Groups) -> States:
        """Add the parts' powers as of the common mean."""
        count, means, *powers = (numbers(column)[0].astype(np.float64) for column in states)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            total, mean, away = _merged_means(count, means, groups)
            sums = _shifted(count, away, *powers)
            merged = [pa.array(groups.sum(power)) for power in sums]
        return [pa.array(total.astype(np.int64)), pa.array(mean), *merged]

    def value(self, states: States) -> pa.Array:
        """Compute the function; null of fewer numbers than it takes, and if it is not defined."""
        count, _, *powers = (numbers(column)[0].astype(np.float64) for column in states)
        with np.errstate(all="ignore"):
            found = _FORMULAS[self.function](count, *powers)
        defined = count >= self.least
        return nullable(found, defined & (powers[0] != 0) if self.order > 2 else defined)


def _shifted(count: Doubles, away: Doubles, m2: Doubles, *higher: Doubles) -> list[Doubles]:
    """Return each row's sums of powers about a mean that is `away` from its own."""
    square = away * away
    shifted = [m2 + count * square]
    if higher:
        shifted.append(higher[0] + 3 * away * m2 + count * square * away)
    if len(higher) > 1:
        shifted.append(higher[1] + 4 * away * higher[0] + 6 * square * m2 + count * square * square)
    return shifted


_ORDERS: Mapping[str, tuple[int, int]] = {
    "variance": (2, 2),
    "var_pop": (2, 1),
    "stddev": (2, 2),
    "stddev_pop": (2, 1),
    "skewness": (3, 1),
    "kurtosis": (4, 1),
}
"""The highest power of each function, and the fewest numbers of which it has a value."""
_FORMULAS: Mapping[str, Formula] = {
    "variance": lambda n, m2: m2 / (n - 1),
    "var_pop": lambda n, m2: m2 / n,
    "stddev": lambda n, m2: _root(m2 / (n - 1)),
    "stddev_pop": lambda n, m2: _root(m2 / n),
    "skewness": lambda n, m2, m3: _root(n) * m3 / (m2 * _root(m2)),
    "kurtosis": lambda n, m2, m3, m4: n * m4 / (m2 * m2) - 3,  # noqa: ARG005 (all moments are handed in)
}


class Comoments(Aggregate):
    """A function of two columns y and x, over the events that have both: corr, covar and regr of SQL.

    The state is n, both means, the sums of both squared distances, and the sum of their products.
    """

    value_type = DOUBLE
    state = (LONG, DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE)

    def __init__(self, name: str, function: str, columns: tuple[str, ...], types: tuple[pa.DataType, ...]) -> None:
        for column, type_ in zip(columns, types, strict=True):
            number_type(name, function, column, type_)
        self.name, self.inputs, self.function = name, columns, function

    def lift(self, events: Events) -> States:
        """Return each event's numbers as means; nothing for an event that lacks a number."""
        y, x = (doubles_of(events.columns[column]) for column in self.inputs)
        both = pc.and_(pc.is_valid(y), pc.is_valid(x))
        zeros = pa.array(np.zeros(len(y)))
        return [both.cast(LONG), *(pc.if_else(both, column, 0.0) for column in (y, x)), zeros, zeros, zeros]

    def merge(self, states: States, groups: Groups) -> States:
        """Add the parts' sums as of the common means."""
        count, y, x, yy, xx, xy = (numbers(column)[0].astype(np.float64) for column in states)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            total, mean_y, away_y = _merged_means(count, y, groups)
            _, mean_x, away_x = _merged_means(count, x, groups)
            parts = (yy + count * away_y**2, xx + count * away_x**2, xy + count * away_y * away_x)
            merged = [pa.array(groups.sum(part)) for part in parts]
        return [pa.array(total.astype(np.int64)), pa.array(mean_y), pa.array(mean_x), *merged]

    def value(self, states: States) -> pa.Array:
        """Compute the function; null of fewer events than it takes, and if it is not defined."""
        sums = [numbers(column)[0].astype(np.float64) for column in states]
        least, divisor, formula = _OF_TWO[self.function]
        with np.errstate(all="ignore"):
            defined = (sums[0] >= least) & (divisor(*sums) != 0)
            return nullable(formula(*sums), defined)


def _slope(n: Doubles, y: Doubles, x: Doubles, yy: Doubles, xx: Doubles, xy: Doubles) -> Doubles:
    del n, y, x, yy
    return xy / xx


_OF_TWO: Mapping[str, tuple[int, Formula, Formula]] = {
    "covar_samp": (2, lambda *s: s[0], lambda *s: s[5] / (s[0] - 1)),
    "covar_pop": (1, lambda *s: s[0], lambda *s: s[5] / s[0]),
    "corr": (2, lambda *s: s[3] * s[4], lambda *s: s[5] / (_root(s[3]) * _root(s[4]))),
    "regr_slope": (2, lambda *s: s[4], _slope),
    "regr_intercept": (2, lambda *s: s[4], lambda *s: s[1] - _slope(*s) * s[2]),
}
"""By function the fewest events, what must not be 0, and the formula, of (n, mean y, mean x, yy, xx, xy)."""
