"""Groups as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.groups.changelog import GROUPS
from sessionlake.operators.groups.factory import operator_of
from sessionlake.operators.groups.operator import Grouper
from sessionlake.operators.groups.spec import GroupSpec, changes_schema, snapshot_schema
from sessionlake.sources.base import Source
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions

_LAYOUT = "1"
"""Version of what stores hold."""


class Groups(EventKind[GroupSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = GROUPS
    restating: ClassVar[None] = None
    redeeming: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None
    lookups: ClassVar[None] = None

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "Groups":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> Grouper:
        """Return the workers' half."""
        return Grouper(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshot and the changelog."""
        texts = self._config.aggregates
        return (
            TableSpec(GROUPS.snapshot, snapshot_schema(self.spec, texts), "Snapshot of groups, as far as compacted"),
            changelog_table(GROUPS, changes_schema(self.spec, texts, marks=True)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelog."""
        schema = changes_schema(self.spec, self._config.aggregates, marks=True)
        return (changelog_output(GROUPS, tables, schema, rows=same_rows),)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the rows."""
        del operator, state
        key, changed = F.col(GROUPS.key).alias("key"), F.unix_micros(GROUPS.time).alias("changed_us")
        return all_versions(tables, [key, changed, *map(F.col, ("event_count", "revision", "state"))])

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the layout, on which no setting has an effect."""
        del operator
        return _LAYOUT

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
