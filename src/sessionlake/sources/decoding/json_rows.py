"""A JSON line parsed by Python: the slow path for lines that Arrow refused."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Self

import pyarrow as pa

from sessionlake.column_names import name_of, parts_of
from sessionlake.sources.decoding.decoded import one_line, shorten, wrong_column, wrong_type

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
    _columns: list[tuple[str, tuple[str, ...], pa.DataType, Callable[[Any], Any]]] = field(init=False)

    def __post_init__(self) -> None:
        columns = [
            (column.name, parts_of(column.name), named.type, _conversion(column.type, named.type))
            for column, named in zip(self.schema, self.pinned, strict=True)
        ]
        object.__setattr__(self, "_columns", columns)

    def __call__(self, found: Row) -> tuple[Row, str | None]:
        """Return the row, and the reason of its first value that is null for its wrong type.

        Raises ValueError when one of the columns is given twice.
        """
        row: Row = {}
        reason: str | None = None
        for name, parts, kind, conversion in self._columns:
            value, at = _reached(found, name, parts)
            if value is None:
                continue
            row[name] = conversion(value) if at == len(parts) else None
            if row[name] is None and reason is None:
                if at == len(parts):
                    reason = wrong_type(name, _shown(value), kind)
                else:
                    above = f"{name_of(parts[:at])} = {shorten(_shown(value))}"
                    reason = f"{wrong_column(name)}none, because {above} has no fields"
        return row, reason


def _reached(found: Row, name: str, parts: tuple[str, ...]) -> tuple[Any, int]:
    """Return the value that a name means, or the value above it that is no object, and the number of its parts.

    ValueError if a part is given twice.
    """
    value: Any = found
    for at, part in enumerate(parts):
        if not isinstance(value, dict):
            return value, at
        if isinstance(value, _Repeated) and part in value.names:
            raise ValueError(f"column {name} is given twice")
        value = value.get(part)
    return value, len(parts)


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
    if pa.types.is_nested(kind):
        return _nested_conversion(kind, pinned)
    return _text if pinned == pa.string() else _string


def _nested_conversion(kind: pa.DataType, pinned: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_list(kind):
        return _items(_conversion(kind.value_type, pinned.value_type))
    if pa.types.is_map(kind):
        return _pairs(_conversion(kind.item_type, pinned.item_type))
    return _fields({f.name: _conversion(f.type, pinned.field(f.name).type) for f in kind})


def _items(conversion: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the conversion of a list, which is null if one of its values is wrong."""

    def converted(value: Any) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        found = [None if item is None else conversion(item) for item in value]
        is_wrong = any(new is None and item is not None for new, item in zip(found, value, strict=True))
        return None if is_wrong else found

    return converted


def _pairs(conversion: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the conversion of an object to a map's pairs, which are null if one of the values is wrong, or a key is given twice."""
    items = _items(conversion)

    def converted(value: Any) -> list[tuple[str, Any]] | None:
        found = items([*value.values()]) if isinstance(value, dict) and not isinstance(value, _Repeated) else None
        return None if found is None else list(zip(value, found, strict=True))

    return converted


def _fields(conversions: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the conversion of an object to a struct, which is null if one of its fields is wrong or given twice."""

    def converted(value: Any) -> Row | None:
        if not isinstance(value, dict) or (isinstance(value, _Repeated) and value.names & conversions.keys()):
            return None
        given = {name: value.get(name) for name in conversions}
        found = {name: None if given[name] is None else conversions[name](given[name]) for name in conversions}
        is_wrong = any(found[name] is None and given[name] is not None for name in conversions)
        return None if is_wrong else found

    return converted


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
