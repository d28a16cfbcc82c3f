"""What the tests of the sources share."""

from decimal import Decimal

import numpy as np
import pyarrow as pa

from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.decoding.decoded import Decoded

COLUMNS = EventColumns(
    key="k",
    time="t",
    time_unit=None,
    id=None,
    inputs=("n",),
    types={"k": pa.string(), "t": pa.string(), "n": pa.int64()},
)
WIDE = EventColumns(
    key="k",
    time="t",
    time_unit=None,
    id="i",
    inputs=("n", "f", "b", "d", "m"),
    types={
        "k": pa.string(),
        "t": TIMESTAMP,
        "i": pa.string(),
        "n": pa.int64(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "m": pa.decimal128(10, 2),
    },
)
MONEY = Decimal("1.25")


def outcome(parts: list[Decoded]) -> list[tuple[tuple[object, ...], str | None, str | None, str | None]]:
    """List (values, error, raw, position) of every row."""
    found = []
    for part in parts:
        every = np.arange(len(part.table))
        values = zip(*(part.table.column(name).to_pylist() for name in part.table.column_names), strict=True)
        told = (part.error, part.raw(every), part.position(every))
        found += zip(values, *(array.to_pylist() for array in told), strict=True)
    return found


def errors(parts: list[Decoded]) -> list[str | None]:
    """List the error of every row."""
    return [row[1] for row in outcome(parts)]
