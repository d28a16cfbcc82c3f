"""The columns that a processor may send, and the check of each row that it does (rule 352)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools
from sessionlake.columnar.column_types import type_named
from sessionlake.operators.process.api import Row
from sessionlake.warehouse.schemas import YEAR_1_US, YEAR_9999_US

_DAY_US = 86_400_000_000
_LONG = range(-(1 << 63), 1 << 63)


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _LONG


def _is_double(value: Any) -> bool:
    # A whole number of any size has no double: 10 ** 400.
    return isinstance(value, float) or (_is_long(value) and math.isfinite(value))


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, datetime) and value.tzinfo is not None and value.astimezone(UTC) is not None
    except OverflowError:
        # Year 9999 in a zone west of Greenwich is year 10000 in UTC.
        return False


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "long": _is_long,
    "double": _is_double,
    "string": _is_text,
    "boolean": lambda value: isinstance(value, bool),
    "timestamp": _is_time,
    "date": lambda value: isinstance(value, date) and not isinstance(value, datetime),
}


@dataclass(frozen=True)
class OutputColumns:
    """The columns of [process.output]: the names of their types by name."""

    types: Mapping[str, str]

    @cached_property
    def arrow(self) -> dict[str, pa.DataType]:
        """The columns' Arrow types."""
        return {name: type_named(text) for name, text in self.types.items()}

    def checked(self, row: Row) -> Row:
        """Return a row that a processor has sent; TypeError if it is not as declared."""
        if not isinstance(row, Mapping):
            raise TypeError(f"a row is a dict of [process.output], and {type(row).__name__} is not")
        for name, value in row.items():
            text = self.types.get(name)
            if text is None:
                raise TypeError(f"column {name!r} is not in [process.output]")
            if value is not None and not _FITS[text](value):
                raise TypeError(f"column {name!r} is {text}, and {value!r:.80} is not")
        return row

    def columns(self, rows: list[Row]) -> dict[str, pa.Array]:
        """Return checked rows as columns; a column that a row leaves out is null."""
        return {name: pa.array([row.get(name) for row in rows], type_) for name, type_ in self.arrow.items()}


def outside_of_years(values: pa.Array) -> Bools:
    """Return which values are times or dates outside of the years 1 to 9999, for which Python has no value; of other types none is.

    >>> outside_of_years(pa.array([0, 253_402_300_800_000_000, None], pa.timestamp("us"))).tolist()
    [False, True, False]
    """
    if pa.types.is_timestamp(values.type):
        numbers, unit = values.cast(pa.int64()), 1
    elif pa.types.is_date32(values.type):
        numbers, unit = values.cast(pa.int32()).cast(pa.int64()), _DAY_US
    else:
        return np.zeros(len(values), bool)
    outside = pc.or_(pc.less(numbers, YEAR_1_US // unit), pc.greater(numbers, YEAR_9999_US // unit))
    found: Bools = pc.fill_null(outside, False).to_numpy(zero_copy_only=False)
    return found
