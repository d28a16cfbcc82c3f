"""sum and avg of doubles that can take rows back: exact sums, rounded for readers only.

A rounded sum has no inverse: of (1e16 + 1) - 1e16 the 1 would be lost.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, to_state
from sessionlake.aggregates.signed import exact
from sessionlake.columnar.arrays import Bools, Groups, below_zero, exploded, nullable, numbers, packed

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
        counts = np.add.reduceat(numbers(count)[0], groups.starts)
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
    """Return the values with 0 for those that are not finite, and these as counts of NaN, inf and -inf."""
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
    """Return sums of finite doubles with what else was counted: NaN, or the infinity if there is one only."""
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
