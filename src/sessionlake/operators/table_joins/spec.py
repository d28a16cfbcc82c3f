"""The specification of a join of tables that workers get: its sides, and the columns of its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.column_names import title_of
from sessionlake.operators.shared.sides.columns import check_types, column_fields, event_types
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES
from sessionlake.operators.table_joins.table import JOINED
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas
from sessionlake.warehouse.row_table import RowTable


@dataclass(frozen=True)
class TableSide:
    """One of the two inputs."""

    name: str
    """As the tables' columns are called: `<name>_<column>`."""
    on: tuple[str, ...]
    """Its equal fields, which are among the columns that are read."""
    columns: tuple[str, ...]
    """The columns that results have."""
    events: EventSpec
    """Its decoder's columns have no key: a row may have none (rule 323)."""

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of `columns`."""
        return {title_of(name): self.events.types[name] for name in self.columns}


@dataclass(frozen=True)
class TableJoinSpec:
    """A pipeline's join of tables."""

    left: TableSide
    right: TableSide
    outer: tuple[str, ...] = ()
    """The sides whose rows make a result without a partner."""

    def __post_init__(self) -> None:
        """Refuse columns of types that stores can't hold; ConfigError."""
        check_types("table_join", self.both)

    @property
    def both(self) -> dict[str, TableSide]:
        """Both sides, LEFT first."""
        return {LEFT: self.left, RIGHT: self.right}

    @property
    def inputs(self) -> dict[str, EventSpec]:
        """The events of both."""
        return {name: side.events for name, side in self.both.items()}

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """None: rows are paired, and not aggregated."""
        return ()

    @property
    def event_types(self) -> dict[str, pa.DataType]:
        """The columns of both sides, called as in a result."""
        return event_types(self.both)

    @property
    def suite_values(self) -> dict[str, int | bool]:
        """Whether each side's rows are there alone."""
        return {f"{name}_alone": name in self.outer for name in self.both}

    def fields(self, table: RowTable, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return positions and columns of a result; rows of sides have no columns of their own."""
        del texts
        if table is not JOINED:
            return []
        positions = (
            schemas.commented(f"{side}_position", pa.int64(), f"The row of {self.both[side].name}; 0 for none")
            for side in SIDES
        )
        return [*positions, *column_fields(self.both)]

    def under(self, live: Mapping[str, Any]) -> "TableJoinSpec":
        """Return the spec under other settings of classification (`Config.live_settings`); each side has its own under its name."""
        sides = {
            name: replace(side, events=ingest.with_live_settings(side.events, {**live, **live[name]}))
            for name, side in self.both.items()
        }
        return replace(self, left=sides[LEFT], right=sides[RIGHT])
