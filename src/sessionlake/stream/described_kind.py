"""The driver's half of any operator that is data: its tables, and how its state is read back from these."""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Self, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.sources.base import Source
from sessionlake.stream.described import Described, DescribedSpec
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of
from sessionlake.warehouse import row_table
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions


class DescribedKind(EventKind[DescribedSpec]):
    """See `Kind` for the methods."""

    described: ClassVar[type[Described]]
    restating: ClassVar[None] = None
    redeeming: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None
    lookups: ClassVar[None] = None

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> Self:
        """Make it of a config."""
        return cls(config, cls.described.of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> Operator[Any]:
        """Return the workers' half."""
        made: Any = self.described(self.spec if live is None else self.spec.under(live))
        return cast(Operator[Any], made)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshot and the changelog."""
        of, comment = self.changelog, f"Snapshot of {self.changelog.snapshot}, as far as compacted"
        snapshot = self.described.TABLE.snapshot_schema(self.spec.fields(self._config.aggregates))
        return TableSpec(of.snapshot, snapshot, comment), changelog_table(of, self._schema())

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelog."""
        return (changelog_output(self.changelog, tables, self._schema(), rows=same_rows),)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the rows."""
        del operator, state
        return all_versions(tables, [_restored(column) for column in self.described.TABLE.restored])

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the version of the records; no setting has an effect."""
        del operator
        return self.described.LAYOUT

    def suite_values(self) -> dict[str, int | bool]:
        """Return nothing."""
        return {}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return that no event is too old; with `unique_for` the time before which events are refused and so identities are not needed."""
        unique_us = config.event.unique_us
        return NO_WATERMARK if unique_us is None else watermark_of(state) - unique_us

    def due_us(self, state: State) -> int | None:
        """Return None: nothing waits for a time."""
        del state
        return None

    def _schema(self) -> pa.Schema:
        return self.described.TABLE.changes_schema(self.spec.fields(self._config.aggregates), marks=True)


def _restored(column: row_table.Column) -> Column:
    value = F.unix_micros(column.name) if pa.types.is_timestamp(column.type) else F.col(column.name)
    return value.alias(str(column.restored_as))


@cache
def described_kind(described: type[Described]) -> type[DescribedKind]:
    """Return the kind of an operator."""
    known = {"described": described, "changelog": described.TABLE.changelog}
    return type(described.__name__, (DescribedKind,), known)
