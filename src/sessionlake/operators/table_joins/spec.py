"""The specification of a join of tables that workers get: its sides, and the columns of its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from sessionlake.column_names import title_of
from sessionlake.operators.shared.sides.columns import check_types, column_fields
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.shared.sides.spec import SidedSpec
from sessionlake.operators.table_joins.table import JOINED
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
class TableJoinSpec(SidedSpec[TableSide]):
    """A pipeline's join of tables."""

    outer: tuple[str, ...] = ()
    """The sides whose rows make a result without a partner."""

    def __post_init__(self) -> None:
        """Refuse columns of types that stores can't hold; ConfigError."""
        check_types("table_join", self.both)

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
