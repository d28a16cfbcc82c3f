"""Joins of tables as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.shared.sides.columns import Sides
from sessionlake.operators.shared.sides.kind import SidedKind
from sessionlake.operators.table_joins.changelog import JOINED, SIDE_ROWS
from sessionlake.operators.table_joins.factory import operator_of
from sessionlake.operators.table_joins.operator import TableJoiner
from sessionlake.operators.table_joins.spec import (
    ROWS,
    TableJoinSpec,
    result_schema,
    result_snapshot_schema,
    side_schema,
    side_snapshot_schema,
)
from sessionlake.sources.base import Source
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.batches import last_batch_id
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.schemas import SIDE_FIELD
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions

_LAYOUT = "1"
"""Version of what stores hold."""


class TableJoins(SidedKind):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = JOINED
    changelogs: ClassVar[tuple[Changelog, ...]] = (SIDE_ROWS, JOINED)
    late_columns: ClassVar[tuple[pa.Field, ...]] = (SIDE_FIELD,)
    numbers_messages: ClassVar[bool] = False
    restating: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None

    def __init__(self, config: Config, spec: TableJoinSpec) -> None:
        self._config, self.spec = config, spec

    @property
    def sides(self) -> Sides:
        """Return both sides."""
        return self.spec.both

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "TableJoins":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> TableJoiner:
        """Return the workers' half."""
        return TableJoiner(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshots and the changelogs of the sides' rows and of the results."""
        return (
            TableSpec(SIDE_ROWS.snapshot, side_snapshot_schema(), "Snapshot of both sides' rows, as far as compacted"),
            changelog_table(SIDE_ROWS, side_schema(marks=True)),
            TableSpec(JOINED.snapshot, result_snapshot_schema(self.spec), "Snapshot of results, as far as compacted"),
            changelog_table(JOINED, result_schema(self.spec, marks=True)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the sides' rows, and the results."""
        return (
            changelog_output(SIDE_ROWS, tables, side_schema(marks=True), ROWS, same_rows),
            changelog_output(JOINED, tables, result_schema(self.spec, marks=True), rows=same_rows),
        )

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the rows of both sides as of the last commit."""
        del operator, state
        columns = [F.col(SIDE_ROWS.key).alias("key"), *map(F.col, ("side", "position", "content"))]
        return all_versions(tables, columns, of=SIDE_ROWS, until=last_batch_id(tables, JOINED))

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the layout, on which no setting has an effect."""
        del operator
        return _LAYOUT

    def suite_values(self) -> dict[str, int | bool]:
        """Return whether each side's rows are there alone."""
        return {f"{name}_alone": name in self.spec.outer for name in self.spec.both}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return that no row is too old."""
        del config, state
        return NO_WATERMARK

    @classmethod
    def unneeded(cls, config: Config, state: State) -> Mapping[str, str]:
        """Return nothing: rows trimmed from a changelog are in its snapshot."""
        del config, state
        return {}

    def due_us(self, state: State) -> int | None:
        """Return None: nothing waits for a time."""
        del state
        return None
