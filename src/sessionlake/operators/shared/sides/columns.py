"""The columns of both inputs in tables: `<name>_<column>`."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import from_state, state_type, to_state
from sessionlake.errors import ConfigError
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas


class Side(Protocol):
    """One of the two inputs, as workers know it."""

    @property
    def name(self) -> str:
        """As the tables' columns are called: `<name>_<column>`."""

    @property
    def events(self) -> EventSpec:
        """The input."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The columns that results have, with their types."""


AnySide = TypeVar("AnySide", bound=Side)
Sides = Mapping[str, Side]
"""Both inputs, LEFT first."""


def packed(side: Side, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the columns that results have as one byte string for each row: equal rows have equal ones."""
    return _codec(side).encode([to_state(column) for column in columns], rows)


def unpacked(side: Side, content: pa.Array) -> list[pa.Array]:
    """Invert `packed`."""
    return [from_state(column, t) for column, t in zip(_codec(side).decode(content), side.types.values(), strict=True)]


def _codec(side: Side) -> StateCodec:
    return StateCodec((), [state_type(type_, name) for name, type_ in side.types.items()])


def check_types(at: str, sides: Sides) -> None:
    """Refuse columns of types that stores can't hold; ConfigError. `at` is the operator's section."""
    for place, side in sides.items():
        for column, type_ in side.types.items():
            try:
                state_type(type_, column)
            except ConfigError as error:
                raise ConfigError(
                    f"{at}.{place}.columns: {column!r} is of type {type_}, which can't be kept; "
                    "leave it out, or make it a number, text or a timestamp in the source"
                ) from error


def event_types(sides: Sides) -> dict[str, pa.DataType]:
    """Return the fields of the struct `event` of late_events and of the archive: `<name>_<column>`, what is read of both sources."""
    return {f"{side.name}_{name}": type_ for side in sides.values() for name, type_ in side.events.stored_types.items()}


def column_names(sides: Sides) -> list[str]:
    """Return the names of the columns that results have."""
    return [f"{side.name}_{name}" for side in sides.values() for name in side.types]


def column_fields(sides: Sides) -> list[pa.Field]:
    """Return the columns that results have."""
    return [
        schemas.commented(f"{side.name}_{name}", type_, f"Column {name} of {side.name}")
        for side in sides.values()
        for name, type_ in side.types.items()
    ]
