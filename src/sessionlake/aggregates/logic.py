"""Aggregates of conditions and of bits: count_if, bool_and, bool_or, bit_and, bit_or and bit_xor."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.numeric import Count, Extreme
from sessionlake.aggregates.scalars import LONG, to_state
from sessionlake.columnar.arrays import Groups, Ints, nullable, numbers
from sessionlake.errors import ConfigError


def boolean_type(name: str, function: str, column: str, type_: pa.DataType) -> None:
    """Raise ConfigError for a column that is no condition."""
    if not pa.types.is_boolean(type_):
        raise ConfigError(
            f"aggregates.{name}: {function}({column}) needs true or false, but {column} is {type_}; compare it, as in {function}({column} > 0)"
        )


class CountIf(Count):
    """count_if(c) counts the events of which c is true."""

    def __init__(self, name: str, column: str, type_: pa.DataType) -> None:
        boolean_type(name, "count_if", column, type_)
        super().__init__(name, column)

    def lift(self, events: Events) -> States:
        """Return 1 for each event with a true condition."""
        return [pc.fill_null(events.columns[self.inputs[0]], fill_value=False).cast(LONG)]


class Logical(Extreme):
    """bool_and(c): whether c is true of every event; bool_or(c): of any. Events do not count if c is null."""

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType, *, largest: bool) -> None:
        boolean_type(name, function, column, type_)
        super().__init__(name, column, type_, largest=largest)


class Bits(Aggregate):
    """bit_and(x), bit_or(x) and bit_xor(x) of whole numbers."""

    state = (LONG,)
    value_type = LONG
    plain = 0

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        if not pa.types.is_integer(type_):
            raise ConfigError(
                f"aggregates.{name}: {function}({column}) needs whole numbers, but {column} is {type_}; cast it to bigint"
            )
        self.name, self.inputs, self.function = name, (column,), function

    def lift(self, events: Events) -> States:
        """Return each event's number."""
        return [to_state(events.columns[self.inputs[0]])]

    def merge(self, states: States, groups: Groups) -> States:
        """Combine the bits, ignoring nulls."""
        operation, neutral = _BITWISE[self.function]
        values, valid = numbers(states[0], neutral)
        # Nulls are the neutral element here, so the operation over a group's rows ignores them.
        combined = operation.reduceat(values, groups.starts)
        return [nullable(combined, None if valid is None else groups.any(valid))]

    def value(self, states: States) -> pa.Array:
        """Return the bits."""
        return states[0]

    def from_value(self, values: pa.Array, time_us: Ints) -> States:  # noqa: ARG002 - bits have no time
        """Return the value itself."""
        return [values.cast(LONG)]


_BITWISE = {"bit_and": (np.bitwise_and, -1), "bit_or": (np.bitwise_or, 0), "bit_xor": (np.bitwise_xor, 0)}
"""Each function's operation, and the number that changes no other number's bits."""
