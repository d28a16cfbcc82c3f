"""The columns of messages to read, and the column types: declared, or by the first values."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from sessionlake.aggregates import Aggregate, build_aggregates
from sessionlake.aggregates.spec import build_custom, hidden_columns, parse_aggregates
from sessionlake.columnar.column_types import type_named
from sessionlake.columnar.equality import IdOrder
from sessionlake.errors import ConfigError
from sessionlake.local.rows import Row
from sessionlake.sources.columns import EventColumns, normal_type
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
    values = [part[name] for part in parts if part.get(name) is not None]
    if values and all(type(value) in (int, float) for value in values):
        return pa.array(values).type
    inferred = pa.array(values[:1]).type if values else pa.int64()
    return TIME if pa.types.is_timestamp(inferred) else inferred


def types_in(message: Row) -> dict[str, pa.DataType]:
    """Return the types of a message's values, except values without an Arrow type."""
    found: dict[str, pa.DataType] = {}
    for name, value in message.items():
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            found |= {} if value is None else {name: type_of(name, [message])}
    return found


def types_of(table: pa.Table) -> dict[str, pa.DataType]:
    """Return the types as which a table's columns are read."""
    return {field.name: _plain(field.type) for field in table.schema if field.type != pa.null()}


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
