"""Columns and fields that are read (rule 460): from the columns that rows have to one column for each name, and back."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.column_names import DEPTH, name_of, parts_of
from sessionlake.errors import ConfigError


def nested_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that have these names' fields, and no other fields; ConfigError if one name is read as two types.

    >>> nested_schema(pa.schema([("page.url", pa.string()), ("page.ms", pa.int64())]))
    page: struct<url: string, ms: int64>
      child 0, url: string
      child 1, ms: int64
    """
    columns: dict[str, pa.DataType] = {}
    for field in schema:
        first, *inner = parts_of(field.name)
        type_ = reduce(lambda below, part: pa.struct([(part, below)]), reversed(inner), field.type)
        columns[first] = _merged(columns.get(first, type_), type_, (first,))
    return pa.schema(list(columns.items()))


def _merged(one: pa.DataType, other: pa.DataType, parts: tuple[str, ...]) -> pa.DataType:
    if one == other:
        return one
    if not (pa.types.is_struct(one) and pa.types.is_struct(other)):
        raise ConfigError(
            f"{name_of(parts)!r} is read as a {one}, and elsewhere as a {other}; read one of them, or give one type to both"
        )
    fields = {field.name: field.type for field in one}
    for field in other:
        fields[field.name] = _merged(fields.get(field.name, field.type), field.type, (*parts, field.name))
    return pa.struct(list(fields.items()))


def type_at(schema: Iterable[pa.Field], name: str) -> pa.DataType | None:
    """Return a column's or field's type; None if the schema has none.

    >>> type_at(pa.schema([("page", pa.struct([("url", pa.string())]))]), "page.url")
    DataType(string)
    """
    fields, type_ = list(schema), None
    for part in parts_of(name):
        # By position, since a file may have two columns of equal name.
        type_ = next((field.type for field in fields if field.name == part), None)
        fields = list(type_) if type_ is not None and pa.types.is_struct(type_) else []
    return type_


def leaves(schema: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the columns and fields that have no fields themselves, lists and maps among them; those that lie too deep to be read are left out.

    >>> [*leaves(pa.schema([("page", pa.struct([("url", pa.string())])), ("tags", pa.list_(pa.string()))]))]
    ['page.url', 'tags']
    """
    for field in schema:
        parts = (*above, field.name)
        if not pa.types.is_struct(field.type):
            yield name_of(parts)
        elif len(parts) < DEPTH:
            yield from leaves(field.type, parts)


def leaf_types(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types for columns without fields, and for the fields in the others.

    >>> leaf_types({"page": pa.struct([("url", pa.string())]), "at": pa.int64()})
    {'page.url': DataType(string), 'at': DataType(int64)}
    """
    schema = [pa.field(parts_of(name)[0], type_) for name, type_ in types.items()]
    return {name: type_at(schema, name) or pa.null() for name in leaves(schema)}


def as_object(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row's columns and fields as the object that has them, from which they can be read again.

    >>> as_object({"page.url": "/", "page.ms": 7, "`a.b`": 1})
    {'page': {'url': '/', 'ms': 7}, 'a.b': 1}
    """
    found: dict[str, object] = {}
    for name, value in row.items():
        *above, last = parts_of(name)
        inner = found
        for part in above:
            known = inner.get(part)
            inner[part] = known if isinstance(known, dict) else {}
            inner = cast("dict[str, object]", inner[part])
        inner[last] = value
    return found


def is_flat(names: Iterable[str]) -> bool:
    """Say whether each name is a column's own."""
    return all(parts_of(name) == (name,) for name in names)


def flattened(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a column for each name that a table has; a field is null if anything above it is.

    >>> flattened(pa.table({"page": [{"url": "/"}, None]}), ["page.url", "page.ms"]).to_pydict()
    {'page.url': ['/', None]}
    """
    there = {name: parts for name in names if type_at(table.schema, name) is not None for parts in [parts_of(name)]}
    columns = {
        name: pc.struct_field(table.column(first), inner) if inner else table.column(first)
        for name, (first, *inner) in there.items()
    }
    return pa.table(columns) if columns else table.select([])
