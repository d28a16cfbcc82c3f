"""Keyed tables as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.keyed.changelog import TABLE
from sessionlake.operators.keyed.expiry.ttl import hidden_us
from sessionlake.operators.keyed.factory import operator_of
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.section import TableSection
from sessionlake.operators.keyed.spec import (
    EVENT_TIME,
    KeyedSpec,
    Progress,
    changes_schema,
    snapshot_schema,
    stored_schema,
)
from sessionlake.operators.keyed.ttl_section import ttl_section
from sessionlake.sources.base import Source
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.kind import ALLOW_EXPIRY, State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.changelog import DELETED, WRITTEN, Changelog
from sessionlake.warehouse.spark_columns import column
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KeyedTable(EventKind[KeyedSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = TABLE
    restating: ClassVar[None] = None
    redeeming: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None
    lookups: ClassVar[None] = None

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "KeyedTable":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> TableKeeper:
        """Return the workers' half."""
        if live is None:
            return TableKeeper(self.spec)
        ttl = live.get("ttl")
        shards, allowed = self._config.pipeline.shards, bool(live.get(ALLOW_EXPIRY))
        made = None if ttl is None else ttl_section(ttl).build(self.spec.types_in_sql, shards, allowed=allowed)
        return TableKeeper(replace(self.spec.under(live), ttl=made))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshot and the changelog."""
        comment = f"Snapshot of {TABLE.snapshot}, as far as compacted, and deletions"
        return (
            TableSpec(TABLE.snapshot, snapshot_schema(self.spec), comment),
            changelog_table(TABLE, changes_schema(self.spec, marks=True)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelog."""
        return (changelog_output(TABLE, tables, changes_schema(self.spec, marks=True), rows=same_rows),)

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return nothing: the config's own settings say all."""
        return {}

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Refuse a batch that takes too many rows away."""
        ttl = cast("TableKeeper", operator).spec.ttl
        return () if ttl is None else ttl.checked(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the rows, and the deletions that something can still meet."""
        spec = cast("TableKeeper", operator).spec
        time_us = F.unix_micros(EVENT_TIME)
        remembered = F.lit(False) if spec.by_offset else time_us >= Progress.of(state).horizon_us
        known = {
            "key": F.col(TABLE.key),
            "time_us": time_us,
            **{
                n: F.col(f"event_{n}") if spec.has_offsets else F.lit(0).cast("bigint") for n in ("offset", "partition")
            },
            "revision": F.col("revision"),
            **{f"{name}_us": F.coalesce(F.unix_micros(f"{name}_at"), F.lit(0)) for name in ("written", "inserted")},
            "id": F.col("event_id") if spec.has_ids else F.lit(""),
            "deleted": F.col(DELETED),
            **{f"column_{i}": column(name) for i, name in enumerate(spec.columns)},
        }
        columns = [known[name].alias(name) for name in stored_schema(spec).names]
        return all_versions(tables, columns, deleted=True, live=~F.col(DELETED) | remembered)

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return how markers are cut into segments, how columns are packed, and the layout of the index of rows."""
        spec = cast("TableKeeper", operator).spec
        index = None if spec.ttl is None else spec.ttl.pattern.layout
        return f"{spec.retention_us}/{STATE_LAYOUT}{f'/{index}' if index else ''}"

    def suite_values(self) -> dict[str, int | bool]:
        """Return whether deletions are remembered."""
        return {"by_offset": self.spec.by_offset}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which updates are beyond retention."""
        del config
        return Progress.of(state).expired_us

    @classmethod
    def unneeded(cls, config: Config, state: State) -> dict[str, str]:
        """Return the snapshot's deletions that nothing can meet any more, and its hidden rows."""
        horizon, hidden = Progress.of(state).horizon_us, hidden_us(state)
        over = [f"not {DELETED} and {WRITTEN} <= timestamp_micros({hidden})"] if hidden != NO_WATERMARK else []
        if cast("TableSection", config.section).by_offset:
            over.append(DELETED)
        elif horizon != NO_WATERMARK:
            over.append(f"{DELETED} and {EVENT_TIME} < timestamp_micros({horizon})")
        return {TABLE.snapshot: " or ".join(f"({some})" for some in over)} if over else {}

    def due_us(self, state: State) -> int | None:
        """Return when the next cleanup is due that may find something."""
        return None if self.spec.ttl is None else self.spec.ttl.due_us(state)
