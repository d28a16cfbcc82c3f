"""median, quantile and users' classes with `evaluate`: aggregates that need all values at once.

Their states hold all values, and grow with the events of a session or window. To merge is to concatenate and sort.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, Events, States, merge_shared
from sessionlake.aggregates.custom import Custom, json_of_value
from sessionlake.aggregates.numeric import number_type
from sessionlake.aggregates.ordered import Collect
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, to_state
from sessionlake.columnar.arrays import Groups, exploded, numbers, packed, plain_text, starts_of
from sessionlake.user_code import NOT_THEIRS

_ALL_ROWS = np.iinfo(np.int64).max
Doubles = npt.NDArray[np.float64]


class Quantile(Aggregate):
    """quantile(x, p), 0 <= p <= 1, exactly: the value at rank p * (n - 1), between two values by linear interpolation.

    This is SQL's percentile_cont, DuckDB's quantile_cont and numpy's default. NaN counts as the greatest number, as in
    SQL; -0.0 is 0.0. The state is the values that are not null, sorted, eight bytes each: of integers and decimals the
    (unscaled) int64, else the double.
    """

    state = (BYTES,)
    value_type = DOUBLE
    full_state = True

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType, fraction: float) -> None:
        self.name, self.inputs, self.fraction = name, (column,), fraction
        self._dtype = np.dtype(np.int64 if number_type(name, function, column, type_) == LONG else np.float64)
        self._unit = 10.0**type_.scale if pa.types.is_decimal(type_) else 1.0

    def lift(self, events: Events) -> States:
        """Return each event's value; of a null none."""
        values, valid = numbers(to_state(events.columns[self.inputs[0]]))
        if self._dtype == np.float64:
            # Equal values must have equal bytes, or the order of arrival would show in the state.
            values = np.where(np.isnan(values), np.nan, values + 0.0)
        if valid is None:
            return [packed(values, np.ones(len(values), np.int64))]
        return [packed(values[valid], valid.astype(np.int64))]

    def merge(self, states: States, groups: Groups) -> States:
        """Put the values of all together, sorted."""
        return merge_shared(states, groups, self._merge_values)

    def _merge_values(self, states: States, groups: Groups) -> States:
        values, counts = exploded(states[0], self._dtype)
        owners = np.repeat(groups.ids, counts)
        order = np.lexsort((values, owners))
        return [packed(values[order], np.bincount(owners, minlength=len(groups.starts)))]

    def value(self, states: States) -> pa.Array:
        """Return the value at the rank; null if there is none."""
        values, counts = exploded(states[0], self._dtype)
        result = np.zeros(len(counts))
        some = np.flatnonzero(counts)
        # The flat index of the first and the last value of each state with values.
        first, last = starts_of(counts)[some], np.cumsum(counts)[some] - 1
        rank = self.fraction * (last - first)
        below = np.floor(rank).astype(np.int64)
        low = values[first + below].astype(np.float64) / self._unit
        high = values[np.minimum(first + below + 1, last)].astype(np.float64) / self._unit
        result[some] = between(low, high, rank - below)
        return pa.array(result, mask=counts == 0)


def between(low: Doubles, high: Doubles, part: Doubles) -> Doubles:
    """Return low + part * (high - low) for each part in [0, 1), never outside of [low, high]."""
    with np.errstate(invalid="ignore", over="ignore"):
        # Weighted, not low + part * (high - low): the difference of two doubles may be no double. Rounding is clipped.
        points = np.clip(low * (1 - part) + high * part, low, high)
    return np.where((part == 0) | (low == high), low, points)


class RowsEvaluator(Protocol):
    """The user's method that computes a value from all rows at once, instead of KIP-94's three methods.

    >>> class FirstAndLast:
    ...     columns = ("page",)
    ...
    ...     def evaluate(self, key, rows):
    ...         return {"first": rows[0]["page"], "last": rows[-1]["page"]}
    >>> FirstAndLast().evaluate("k", [{"page": "home"}, {"page": "cart"}])
    {'first': 'home', 'last': 'cart'}

    Optional attributes: `columns`, the event columns that rows have (default: every column of the source); `value_type`,
    one of long, double, string, boolean (default: string, the JSON text of the value); `serialize(row) -> bytes` and
    `deserialize(bytes)` (default: JSON, in which dates, times and decimals are texts and binaries base64).
    """

    def evaluate(self, key: str, rows: list[dict[str, Any]]) -> Any:
        """Return the value of all rows, which come by event time, then event id, then as they are stored."""


class Evaluated(Custom):
    """An aggregate by a user's class with `evaluate`: its Python runs once an event, and over all rows for each value.

    The state is the key, and the rows as `collect` without a limit has them.
    """

    state = (BYTES, *Collect.state)
    full_state = True
    as_json = staticmethod(json_of_value)

    def __init__(self, name: str, path: str, directory: str | None, user: RowsEvaluator) -> None:
        super().__init__(name, path, directory, user)
        self._rows = Collect(name, "row", BYTES, _ALL_ROWS)

    def lift(self, events: Events) -> States:
        """Return each event's row; BadEventsError names all events whose row can't be stored."""
        (rows,) = super().lift(events)
        keys = plain_text(events.keys).cast(BYTES)
        return [keys, *self._rows.lift(Events(events.keys, events.time_us, {"row": rows}, events.event_id))]

    def _lifted(self, keys: list[str], rows: list[dict[str, Any]]) -> list[bytes | None]:
        del keys
        return [self._dump(row) for row in rows]

    def merge(self, states: States, groups: Groups) -> States:
        """Put the rows of all together, by time."""
        self._rows.id_order = self.id_order
        return [states[0].take(pa.array(groups.starts)), *self._rows.merge(states[1:], groups)]

    def value(self, states: States) -> pa.Array:
        """Return the value that the user's class computes from the rows."""
        values = []
        for key, rows in zip(states[0].to_pylist(), self._rows.value(states[1:]).to_pylist(), strict=True):
            text = key.decode()
            try:
                values.append(self.user.evaluate(text, [self._load(row) for row in rows]))
            except NOT_THEIRS:
                raise
            except BaseException as error:
                raise self._raised("evaluate", error, text) from error
        return self._column("evaluate", values)
