"""Plain messages, dicts or a table, as a source's rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.column_names import parts_of
from sessionlake.columnar.arrays import Ints
from sessionlake.errors import ConfigError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import wrong_column
from sessionlake.sources.decoding.nested import flattened
from sessionlake.sources.decoding.rows import Origin, Rows, no_text
from sessionlake.stream.outputs import keyed_rows
from sessionlake.warehouse import latest_rows
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.schemas import YEAR_1_US, YEAR_9999_US

Row = Mapping[str, Any]


def event_rows(wanted: EventColumns, events: Sequence[tuple[int, Row]], origin: Origin | None = None) -> Rows:
    """Return messages as a source would, each with a place in the given sequence. The place identifies the message in the outputs."""
    errors: list[str | None] = [None] * len(events)
    columns = {}
    for name in wanted.needed:
        type_, values = wanted.types[name], []
        for at, (_, row) in enumerate(events):
            value, error = _cast(name, value_at(row, name), type_)
            values.append(value)
            errors[at] = errors[at] or error
        columns[name] = pa.array(values, type_)
    error = pa.array(errors, pa.string())
    places = np.array([place for place, _ in events], np.int64)
    return Rows(
        _table(columns, len(events)),
        None if error.null_count == len(errors) else error,
        raw=no_text,
        source=_as_text(places),
        origin=origin,
    )


def value_at(row: Row, name: str) -> Any:
    """Return the value of a column, or of a field in it; null if there is none.

    >>> value_at({"user": {"id": 7}}, "user.id"), value_at({"user": None}, "user.id"), value_at({}, "user")
    (7, None, None)
    """
    value: Any = row
    for part in parts_of(name):
        if value is None:
            return None
        # A value above that has no fields is no value of the field's type.
        value = value.get(part) if isinstance(value, Mapping) else {part: value}
    return value


def table_rows(wanted: EventColumns, table: pa.Table, places: Ints, origin: Origin | None = None) -> Rows:
    """Return a table's rows at some places as a source would; ConfigError for a missing column, or a wrong type."""
    columns = {}
    given = flattened(table, wanted.needed)
    for name in wanted.needed:
        if name not in given.column_names:
            raise ConfigError(f"add_messages: column {name!r} is missing; add it to the table")
        column, type_ = given[name].take(pa.array(places)), wanted.types[name]
        try:
            columns[name] = column.cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConfigError(
                f"add_messages: column {name!r} is {column.type}, which is no {type_}; cast it, or open another directory "
                "with another schema"
            ) from error
    return Rows(_table(columns, len(places)), None, raw=no_text, source=_as_text(places), origin=origin)


def plain_rows(table: pa.Table, of: Changelog | None = None) -> list[dict[str, Any]]:
    """Return a changelog's rows without states, with times in microseconds; with `of`, also the key's columns."""
    if of is not None:
        table = keyed_rows(table, of.key, of.key_columns)
    return latest_rows.plain_rows(table.select([name for name in table.column_names if name != "state"]))


@dataclass(frozen=True)
class Datetimes:
    """The form of datetimes in rows: UTC with a zone, or without a zone."""

    zone: tzinfo | None

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Datetimes | None":
        """Return the form of the first datetime in some rows; None if there is none."""
        values = (value for row in rows for value in row.values() if isinstance(value, datetime))
        first = next(values, None)
        return None if first is None else cls(None if first.tzinfo is None else UTC)

    def shown(self, rows: list[dict[str, Any]], table: pa.Table) -> list[dict[str, Any]]:
        """Return a table's plain rows with datetimes for times. Times outside Python's datetimes stay microseconds."""
        times = {field.name for field in table.schema if pa.types.is_timestamp(field.type)}
        return [{name: self._of(value) if name in times else value for name, value in row.items()} for row in rows]

    def _of(self, us: int | None) -> datetime | int | None:
        if us is None or not YEAR_1_US <= us <= YEAR_9999_US:
            return us
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).replace(tzinfo=self.zone)


def micros_of(time: int | datetime) -> int:
    """Return a time in microseconds since 1970; a datetime without a zone is one of UTC.

    >>> micros_of(datetime(1970, 1, 2)), micros_of(5)
    (86400000000, 5)
    """
    if not isinstance(time, datetime):
        return time
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _table(columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """Return columns as a table. Without columns a table would have no rows."""
    return pa.table(dict(columns) if columns else {"": pa.nulls(rows)})


def _as_text(places: Ints) -> Callable[[Ints], pa.Array]:
    return lambda at: pa.array(places[at]).cast(pa.string())


def _cast(name: str, value: Any, type_: pa.DataType) -> tuple[Any, str | None]:
    try:
        if isinstance(value, str) != pa.types.is_string(type_) and value is not None:
            raise TypeError
        return pa.scalar(value, type_).as_py(), None
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        return None, f"{wrong_column(name)}{value!r} is not {type_}"
