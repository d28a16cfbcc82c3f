"""Values of answers from the states in stores, row by row: for one page columns would take longer to set up than this takes in all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, States
from sessionlake.aggregates.codec import Scalar
from sessionlake.aggregates.scalars import BYTES, DOUBLE, LONG, from_state
from sessionlake.serve.encoded import Times, plain, time_value

_MICROS = "us"


@dataclass(frozen=True)
class Column:
    """A column of an answer, and the states that it is made of."""

    name: str
    type_: pa.DataType
    first: int
    """The first of its states, among all of the row's, and `types` those of its states."""
    types: Sequence[pa.DataType]
    plain: int | None
    """The index of the state that is the value, except for its type; None if the value is computed from several."""
    value: Callable[[States], pa.Array]
    """Compute a whole column."""
    one: Callable[[Sequence[Scalar]], Any] | None = None
    """Compute one value."""

    def json_values(self, rows: Sequence[Sequence[Scalar]], times: Times) -> list[Any]:
        """Return the values of rows, converted as `encoded.plain` converts columns. Each row holds the states of all its columns."""
        end = self.first + len(self.types)
        if self.one is not None:
            return [self.one(row[self.first : end]) for row in rows]
        read = None if self.plain is None else self._readers[times]
        if self.plain is not None and read is not None:
            at = self.first + self.plain
            if read is _itself:
                return [row[at] for row in rows]
            return [None if row[at] is None else read(row[at]) for row in rows]
        states = [pa.array([row[self.first + n] for row in rows], type_) for n, type_ in enumerate(self.types)]
        return plain(self.value(states), times).to_pylist()

    @cached_property
    def _readers(self) -> dict[Times, Callable[[Any], Any] | None]:
        return {"iso": reader_of(self.type_, "iso"), "us": reader_of(self.type_, "us")}


def columns_of(aggregates: Sequence[Aggregate]) -> list[Column]:
    """Return the columns of aggregates' values, of the states of all of them."""
    found, first = [], 0
    for of in aggregates:
        found.append(Column(of.name, of.value_type, first, of.state, of.plain, _value_of(of), of.one))
        first += len(of.state)
    return found


def columns_as_they_are(types: dict[str, pa.DataType], states: Sequence[pa.DataType]) -> list[Column]:
    """Return columns that have one state each, of that state's type."""
    return [Column(name, type_, at, (states[at],), 0, _back(type_)) for at, (name, type_) in enumerate(types.items())]


def reader_of(type_: pa.DataType, times: Times) -> Callable[[Any], Any] | None:
    """Return a function from a state to the value in answers; None for a type whose values are computed by column only."""
    if pa.types.is_integer(type_) or type_ in (LONG, DOUBLE, BYTES, pa.float32()):
        return _itself
    if pa.types.is_boolean(type_):
        return bool
    if pa.types.is_string(type_):
        return bytes.decode
    if pa.types.is_timestamp(type_) and type_.unit == _MICROS:
        return _itself if times == "us" else lambda value: time_value(value, times)
    return None


def _itself(value: Scalar) -> Scalar:
    return value


def _value_of(aggregate: Aggregate) -> Callable[[States], pa.Array]:
    return lambda states: aggregate.value(states).cast(aggregate.value_type)


def _back(type_: pa.DataType) -> Callable[[States], pa.Array]:
    return lambda states: from_state(states[0], type_)
