"""bool_and and bool_or that can take rows back."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, Events, States
from sessionlake.aggregates.logic import boolean_type
from sessionlake.aggregates.scalars import LONG
from sessionlake.columnar.arrays import Bools, Groups, nullable, numbers


class SignedLogical(Aggregate):
    """bool_and(c) or bool_or(c). The state is of how many events c is true, and of how many it is false."""

    state = (LONG, LONG)
    value_type = pa.bool_()

    def __init__(self, name: str, function: str, column: str, type_: pa.DataType) -> None:
        boolean_type(name, function, column, type_)
        self.name, self.inputs, self.every = name, (column,), function == "bool_and"

    def lift(self, events: Events) -> States:
        """Return one for what each event's condition is; of a null nothing."""
        found = events.columns[self.inputs[0]]
        return [pc.fill_null(column, fill_value=False).cast(LONG) for column in (found, pc.invert(found))]

    def merge(self, states: States, groups: Groups) -> States:
        """Add."""
        return [pa.array(np.add.reduceat(numbers(column)[0], groups.starts)) for column in states]

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
