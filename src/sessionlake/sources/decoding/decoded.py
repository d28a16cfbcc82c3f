"""The result of decoding: typed rows, the reason for each bad row, and each row's origin in the source."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.column_types import type_name
from sessionlake.errors import first_line
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.casting import cast_or_null
from sessionlake.sources.decoding.safe_cast import text_dictionary, without_dictionary
from sessionlake.sources.decoding.whole import Whole

MAX_ROWS = 250_000
BLOCK_BYTES = 32 << 20
_SHOWN = 60
WRONG_TYPE = "wrong type: "
"""The begin of error texts for rows that are refused only for values of wrong types."""
NO_ROW = "no row in "
"""The begin of error texts for rows without a match in a lookup."""

_Part = TypeVar("_Part")
Indices = npt.NDArray[np.integer[Any]]


class Origin(Protocol):
    """The origin of a Decoded's rows."""

    def text(self, row: int, /) -> str | None:
        """Give the row as it was written."""

    def line(self, row: int, /) -> int | None:
        """Give the 1-based number of the row's first line, or of the row in a binary file."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Hold some rows of one file, in file order.

    `table` has the needed columns in their pinned types (text of keys may be a dictionary), null if missing or wrong; `error` is a string
    array of the same length, null for good rows.
    """

    table: pa.Table
    error: pa.Array
    path: str
    origin: Origin
    whole: Whole | None = None
    """Fetches some rows with all columns; None if these are not asked for, or if there is no row."""

    def raw(self, indices: Indices) -> pa.Array:
        """Return the original text of the given rows, cut if it is long; null for the row of an unreadable file."""
        return pa.array([self.origin.text(int(row)) for row in indices], pa.string())

    def position(self, indices: Indices) -> pa.Array:
        """Return `<path>:<line or row number>` for each of the given rows, 1-based."""
        lines = (self.origin.line(int(row)) for row in indices)
        return pa.array([self.path if line is None else f"{self.path}:{line}" for line in lines], pa.string())


class Nowhere:
    """Stand for a file that has no readable rows."""

    def text(self, _row: int) -> str | None:
        """Give null."""
        return None

    def line(self, _row: int) -> int | None:
        """Give null."""
        return None


def unreadable(path: str, columns: EventColumns, error: Exception) -> Decoded:
    """Return the error row of a file that can't be read (on)."""
    return bad_row(f"unreadable file: {one_line(error)}", path, columns, Nowhere())


def bad_row(reason: str, path: str, columns: EventColumns, origin: Origin) -> Decoded:
    """Make one error row."""
    table = pa.table([pa.nulls(1, field.type) for field in columns.schema], schema=columns.schema)
    return Decoded(table, pa.array([reason], pa.string()), path, origin)


def in_halves(
    decode: Callable[[int, int], _Part], failed: Callable[[int, Exception], _Part], first: int, last: int
) -> Iterator[_Part]:
    """Decode rows first..last, last excluded; if that raises, each half, until the rows that raise stand alone.

    An unforeseen error must cost only the bad row. Lack of memory is no fault of a row.
    """
    try:
        yield decode(first, last)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever a row's bytes can make a parser raise)
        if last - first == 1:
            yield failed(first, error)
            return
    else:
        return
    middle = (first + last) // 2
    yield from in_halves(decode, failed, first, middle)
    yield from in_halves(decode, failed, middle, last)


def one_line(error: object) -> str:
    """Give the first line of a message, shortened."""
    return shorten(first_line(error), 200)


def shorten(text: str, limit: int = _SHOWN) -> str:
    """Cut a text to at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def wrong_type(name: str, shown: str, kind: pa.DataType) -> str:
    """Return the error text for a value of a wrong type."""
    return f"{wrong_column(name)}{shorten(shown)} is not a {type_name(kind)}"


def wrong_column(name: str) -> str:
    """Return the begin of error texts for values of a wrong type."""
    return f"{WRONG_TYPE}{name} = "


def no_row(lookup: str) -> str:
    """Return the error text for a row that a lookup finds nothing for."""
    return f"{NO_ROW}{lookup}"


def typed(read: pa.Table, columns: EventColumns, errors: Mapping[int, str] | None = None) -> tuple[pa.Table, pa.Array]:
    """Cast the columns that were read to the pinned types; a missing column is null, a row's first error stays.

    Keys stay a dictionary of text, if nothing else reads them.
    """
    reasons = dict(errors or {})
    arrays = []
    for field in columns.schema:
        if field.name not in read.column_names:
            arrays.append(pa.nulls(len(read), field.type))
            continue
        encoded = text_dictionary(read.column(field.name)) if field.name == columns.lone_key else None
        if encoded is not None:
            arrays.append(encoded)
            continue
        values = without_dictionary(read.column(field.name))
        array, bad = cast_or_null(values, field.type)
        if field.name in columns.canonical and field.type == pa.int64() and values.type == pa.string():
            other = pc.fill_null(pc.not_equal(array.cast(pa.string()), values), fill_value=False)
            if pc.any(other).as_py():
                array = pc.if_else(other, pa.scalar(None, field.type), array)
                bad |= other.to_numpy(zero_copy_only=False)
        arrays.append(array)
        for row in np.flatnonzero(bad).tolist():
            if row not in reasons or _comes_before(columns, field.name, reasons[row]):
                reasons[row] = wrong_type(field.name, shown(values[row]), field.type)
    return pa.table(arrays, names=columns.schema.names), error_array(len(read), reasons)


def _comes_before(columns: EventColumns, name: str, told: str) -> bool:
    """Say whether a column's wrong type goes before another reason: `where` reads this column, and not the other."""
    asked = columns.asked
    return name in asked and told.startswith(WRONG_TYPE) and not told.startswith(tuple(map(wrong_column, asked)))


def shown(value: pa.Scalar) -> str:
    """Show a value as it stands in the source, text in quotes."""
    try:
        shown_value = value.as_py()
    except (ValueError, OverflowError):  # not UTF-8, or a time that Python has no date for
        if pa.types.is_large_string(value.type):
            return repr(value.cast(pa.large_binary()).as_py())
        # Not str(value), which asks Python for the date once more.
        bare = value.cast(pa.binary() if pa.types.is_string(value.type) else pa.string()).as_py()
        return bare if isinstance(bare, str) else repr(bare)
    return repr(shown_value) if isinstance(shown_value, (str, bytes)) else str(shown_value)


def plain(value: pa.Scalar) -> object:
    """Return a value as Python has it; as a text if Python has none, for example for a time in the year 10000.

    >>> plain(pa.scalar(253_402_300_800, pa.timestamp("s")))
    '10000-01-01 00:00:00'
    """
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return shown(value)


def error_array(rows: int, reasons: Mapping[int, str]) -> pa.Array:
    """Lay sparse reasons out as one string array, null if there is none."""
    if not reasons:
        return pa.nulls(rows, pa.string())
    dense: list[str | None] = [None] * rows
    for row, reason in reasons.items():
        dense[row] = reason
    return pa.array(dense, pa.string())
