"""The columns of messages to read, and the column types: declared, or by the first values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from sessionlake.aggregates import Aggregate, build_aggregates
from sessionlake.aggregates.spec import build_custom, hidden_columns, parse_aggregates
from sessionlake.column_names import DEPTH, name_of, names_of, parts_of
from sessionlake.columnar.column_types import type_named
from sessionlake.columnar.equality import IdOrder
from sessionlake.errors import ConfigError
from sessionlake.local.rows import Row, value_at
from sessionlake.sources.columns import EventColumns, normal_type
from sessionlake.sources.decoding.nested import leaves, type_at
from sessionlake.stream.shape import Shape, Shaping
from sessionlake.warehouse.schemas import TIME

Types = Mapping[str, pa.DataType]


def declared_types(schema: Mapping[str, str] | None) -> dict[str, pa.DataType]:
    """Return the types of a `schema`; ConfigError for an unknown type."""
    types = {}
    for name, text in (schema or {}).items():
        try:
            types[name] = type_named(text)
        except ValueError as error:
            raise ConfigError(f"schema: {name}: {error}") from error
    return types


def type_of(name: str, rows: Sequence[Row]) -> pa.DataType:
    """Return the type of a column's first values; whole numbers if there are none."""
    parts = [part for row in rows for part in (row, *row.get("put", ()))]
    values = [value for part in parts if (value := value_at(part, name)) is not None]
    if values and all(type(value) in (int, float) for value in values):
        return pa.array(values).type
    inferred = pa.array(values[:1]).type if values else pa.int64()
    return TIME if pa.types.is_timestamp(inferred) else inferred


def names_in(rows: Iterable[Row]) -> list[str]:
    """Return the names of rows' columns, and of the fields in them, each once.

    >>> names_in([{"user": {"id": 7}}, {"at": 1}])
    ['user', 'user.id', 'at']
    """
    return list(dict.fromkeys(name for row in rows for name in _names_in(row, ())))


def _names_in(row: Row, above: tuple[str, ...]) -> Iterator[str]:
    for part, value in row.items():
        yield name_of((*above, part))
        if isinstance(value, Mapping) and len(above) + 1 < DEPTH:
            yield from _names_in(value, (*above, part))


def types_in(message: Row) -> dict[str, pa.DataType]:
    """Return the types of a message's values, except values without an Arrow type, and of the fields in them."""
    found: dict[str, pa.DataType] = {}
    for name in names_in([message]):
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            found |= {} if value_at(message, name) is None else {name: type_of(name, [message])}
    return found


def with_fields(types: Types) -> dict[str, pa.DataType]:
    """Return types of columns, and of the fields in columns.

    >>> [*with_fields({"user": pa.struct([("id", pa.int64())])})]
    ['user', 'user.id']
    """
    inner = leaves([pa.field(parts_of(name)[0], type_) for name, type_ in types.items() if pa.types.is_struct(type_)])
    schema = pa.schema([(parts_of(name)[0], type_) for name, type_ in types.items()])
    return {**types, **{name: normal_type(type_at(schema, name)) for name in inner}}


def types_of(table: pa.Table) -> dict[str, pa.DataType]:
    """Return the types as which a table's columns are read."""
    named = zip(names_of(table.column_names), table.schema.types, strict=True)
    return with_fields({name: _plain(type_) for name, type_ in named if type_ != pa.null()})


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    return normal_type(type_)


def aggregated(
    texts: Mapping[str, str],
    types: Types,
    *,
    key: str | None,
    time: str | None,
    event_id: str | None = None,
    columns: Sequence[str] = (),
    others: Sequence[str] = (),
) -> tuple[tuple[Aggregate, ...], EventColumns, Shape]:
    """Return aggregates, the columns to read (for the aggregates, and `columns`), and the computed columns.

    A column without a type has whole numbers. `others` are further columns of messages: a user's class that names no
    columns reads all of it.
    """
    specs = parse_aggregates(texts, lambda: {*types, *others, *(name for name in (key, time, event_id) if name)})
    classes = [build_custom(spec.name, spec.path) for spec in specs if spec.path is not None]
    names = [*(name for spec in specs for name in spec.inputs), *columns, *(name for c in classes for name in c.inputs)]
    # A user's class that names no columns reads all.
    names += others if any(not c.inputs for c in classes) else []
    own = tuple(name for name in (key, time, event_id) if name is not None)
    shaping = Shaping("event", (), None, own, tuple(dict.fromkeys(names)), hidden_columns(specs))
    known = {name: types.get(name, pa.int64()) for name in shaping.inputs}
    for name in (key, event_id):
        if name is not None:
            known.setdefault(name, types.get(name, pa.string()))
    if time is not None:
        known.setdefault(time, types.get(time, pa.int64()))
    shape = shaping.shape({name: types.get(name, pa.null()) for name in shaping.inputs})
    unit = None if time is None or pa.types.is_timestamp(known[time]) else "us"
    read = EventColumns(key, time, unit, event_id, shaping.inputs, known, computed=shape.types)
    with_id = event_id is not None
    id_order = IdOrder.of([known[event_id]] if event_id is not None else [])
    aggregates = build_aggregates(texts, {**known, **shape.types}, with_id=with_id, id_order=id_order)
    return aggregates, read, shape
