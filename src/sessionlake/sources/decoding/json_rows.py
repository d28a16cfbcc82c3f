"""A JSON line parsed by Python: the slow path for lines that Arrow refused."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Self

import pyarrow as pa

from sessionlake.sources.decoding.decoded import one_line, wrong_type

Row = dict[str, Any]
_TWO_63 = 2**63
SPECIAL_DOUBLES = ("NaN", "Infinity", "-Infinity")
"""Texts that are doubles: JSON has no numbers for them, and Debezium, Spark and others write them so."""


class Written(Decimal):
    """A number with its text."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Read a number; InvalidOperation if its exponent is out of bounds."""
        made = super().__new__(cls, text)
        made.text = text
        return made


def written(number: int | Decimal) -> str:
    """Return the text of a parsed number as the line has it."""
    return number.text if isinstance(number, Written) else str(number)


def _int(text: str) -> int | Written:
    # An int has no minus zero, and Arrow's reader gives a double its sign.
    return Written(text) if text == "-0" else int(text)


class _Repeated(dict[str, Any]):
    """An object with a key given twice."""

    names: frozenset[str] = frozenset()


def parse_object(line: bytes) -> Row:
    """Parse a line; ValueError, in words for the reader, unless it is a JSON object in UTF-8."""
    try:
        value = json.loads(line.decode(), object_pairs_hook=_object, parse_float=Written, parse_int=_int)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    except (RecursionError, InvalidOperation, ValueError) as error:
        raise ValueError(one_line(error)) from error
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004
    return value


def _object(pairs: list[tuple[str, Any]]) -> Row:
    whole = dict(pairs)
    if len(whole) == len(pairs):
        return whole
    repeated = _Repeated(whole)
    repeated.names = frozenset(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return repeated


@dataclass(frozen=True, slots=True)
class Converter:
    """Take a schema's columns from parsed objects; reasons name the pinned type."""

    schema: pa.Schema
    pinned: pa.Schema
    _columns: list[tuple[str, pa.DataType, Callable[[Any], Any]]] = field(init=False)

    def __post_init__(self) -> None:
        columns = [
            (column.name, named.type, _conversion(column.type, named.type))
            for column, named in zip(self.schema, self.pinned, strict=True)
        ]
        object.__setattr__(self, "_columns", columns)

    def __call__(self, found: Row) -> tuple[Row, str | None]:
        """Return the row, and the reason of its first value that is null for its wrong type.

        Raises ValueError when one of the columns is given twice.
        """
        if isinstance(found, _Repeated):
            twice = [name for name, _, _ in self._columns if name in found.names]
            if twice:
                raise ValueError(f"column {twice[0]} is given twice")
        row: Row = {}
        reason: str | None = None
        for name, kind, conversion in self._columns:
            value = found.get(name)
            if value is not None:
                row[name] = conversion(value)
                if row[name] is None and reason is None:
                    reason = wrong_type(name, _shown(value), kind)
        return row, reason


def _conversion(kind: pa.DataType, pinned: pa.DataType) -> Callable[[Any], Any]:
    """Give the function from a JSON value to a Python value that Arrow takes for `kind`, or None."""
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return _whole
    if pa.types.is_floating(kind):
        return _double
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind)
    return _text if pinned == pa.string() else _string


def _text(value: Any) -> str | None:
    """Return a text, or a number's text: a text column has numbers as written."""
    return written(value) if _is_number(value) and not isinstance(value, float) else _string(value)


def _string(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _whole(value: Any) -> int | None:
    # The bound also drops NaN, and keeps 1e999999 from being written out.
    if not _is_number(value) or not abs(value) <= _TWO_63:
        return None
    whole = int(value)
    return whole if whole == value and -_TWO_63 <= whole < _TWO_63 else None


def _double(value: Any) -> float | None:
    if isinstance(value, str) and value in SPECIAL_DOUBLES:
        return float(value)
    if not _is_number(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    overflowed = isinstance(value, Decimal) and number in (float("inf"), float("-inf"))
    return None if overflowed else number


def _decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, Decimal)):
        return None
    try:
        number = Decimal(value)
        pa.scalar(number, kind)
    except (InvalidOperation, pa.ArrowInvalid, ValueError):
        return None
    return number


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    try:
        return json.dumps(value, default=written).strip('"')
    except RecursionError:  # a value just shallow enough to be parsed may be too deep to be written
        return "a deeply nested value"
