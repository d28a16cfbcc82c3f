"""The columns of both inputs in tables: `<name>_<column>`."""

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

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


Sides = Mapping[str, Side]
"""Both inputs, LEFT first."""


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
