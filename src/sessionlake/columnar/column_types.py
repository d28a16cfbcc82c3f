"""Columns' Arrow types: from a config's text, from a commit's metadata, and in errors."""

from collections.abc import Mapping

import pyarrow as pa

from sessionlake.sql_types import DEEPEST, SqlType, parse_type, wrong_fields

TIME = pa.timestamp("us", "UTC")
_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": TIME,
}
_STORED = {str(type_): type_ for type_ in (*_PLAIN.values(), pa.binary(), pa.timestamp("us"))}
"""The plain types in commits' metadata, by Arrow's texts. Composed types have Spark's texts there."""


def arrow_of(type_: SqlType) -> pa.DataType:
    """Return a column's Arrow type.

    >>> arrow_of(parse_type("array<decimal(10, 2)>"))
    ListType(list<item: decimal128(10, 2)>)
    """
    match type_.name:
        case "decimal":
            return pa.decimal128(*type_.digits)
        case "array":
            return pa.list_(arrow_of(type_.parts[0]))
        case "map":
            return pa.map_(pa.string(), arrow_of(type_.parts[0]))
        case "struct":
            parts = [arrow_of(part) for part in type_.parts]
            return pa.struct(list(zip(type_.fields, parts, strict=True)))
    return _PLAIN[type_.name]


def type_named(text: str) -> pa.DataType:
    """Return the Arrow type for a config's text; ValueError in one line if it names none.

    >>> type_named("long")
    DataType(int64)
    """
    return arrow_of(parse_type(text))


def sql_type_of(type_: pa.DataType) -> SqlType | None:
    """Return the type as which an Arrow type is read: widest numbers, times in UTC; None if there is none.

    >>> sql_type_of(pa.list_(pa.struct([("n", pa.int32())])))
    array<struct<n: bigint>>
    """
    return _sql_type(type_, DEEPEST)


def _sql_type(type_: pa.DataType, depth: int) -> SqlType | None:
    is_ = pa.types
    if is_.is_nested(type_):
        return _composed(type_, depth - 1) if depth else None
    if is_.is_dictionary(type_):
        return _sql_type(type_.value_type, depth)
    if is_.is_decimal128(type_):
        return (
            SqlType("decimal", digits=(type_.precision, type_.scale)) if 0 <= type_.scale <= type_.precision else None
        )
    kinds = (
        (is_.is_boolean, "boolean"),
        (is_.is_integer, "bigint"),
        (is_.is_floating, "double"),
        (is_.is_string, "string"),
        (is_.is_large_string, "string"),
        (is_.is_string_view, "string"),
        (is_.is_date32, "date"),
        (is_.is_timestamp, "timestamp"),
    )
    return next((SqlType(name) for is_it, name in kinds if is_it(type_)), None)


def _composed(type_: pa.DataType, depth: int) -> SqlType | None:
    is_ = pa.types
    if is_.is_map(type_):
        key, value = _sql_type(type_.key_type, 0), _sql_type(type_.item_type, depth)
        return SqlType("map", (value,)) if key == SqlType("string") and value is not None else None
    if is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_):
        element = _sql_type(type_.value_type, depth)
        return None if element is None else SqlType("array", (element,))
    if not is_.is_struct(type_) or wrong_fields([field.name for field in type_]) is not None:
        return None
    parts = [_sql_type(field.type, depth) for field in type_]
    known = tuple(part for part in parts if part is not None)
    return SqlType("struct", known, tuple(field.name for field in type_)) if len(known) == len(parts) else None


def stored_text(type_: pa.DataType) -> str:
    """Return the text for a commit's metadata: Arrow's for a plain type, and Spark's for a composed type.

    Arrow's text for a list has a name for elements, which differs by the file's writer.

    >>> stored_text(pa.int64()), stored_text(pa.list_(pa.int64()))
    ('int64', 'array<bigint>')
    """
    composed = sql_type_of(type_) if pa.types.is_nested(type_) else None
    return str(type_) if composed is None else str(composed)


def stored_type(text: str) -> pa.DataType:
    """Return the type for a text in a commit's metadata; KeyError for any other text."""
    if text.startswith("decimal128"):
        precision, scale = text[11:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if "<" not in text:
        return _STORED[text]
    try:
        return type_named(text)
    except ValueError as error:
        raise KeyError(text) from error


def type_name(type_: pa.DataType) -> str:
    """Return a type's name for errors, as a config would have it.

    >>> type_name(pa.int64()), type_name(pa.list_(pa.int32())), type_name(pa.binary())
    ('long', 'array<bigint>', 'binary')
    """
    if pa.types.is_timestamp(type_):
        return "timestamp"
    known = sql_type_of(type_)
    if known is None or (not pa.types.is_nested(type_) and arrow_of(known) != type_):
        return str(type_)
    return "long" if known.name == "bigint" else str(known)
