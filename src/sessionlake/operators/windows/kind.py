"""Windows as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.shared.windowing import emission
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.windows.changelog import SLICES, WINDOWS
from sessionlake.operators.windows.factory import operator_of
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.restate import merged_late
from sessionlake.operators.windows.section import WindowSection
from sessionlake.operators.windows.shard import STATE
from sessionlake.operators.windows.spec import (
    Grid,
    WindowSpec,
    rows_are_state,
    slice_schema,
    snapshot_schema,
    window_schema,
)
from sessionlake.sources.base import Source
from sessionlake.stream.capabilities import Merge, Redeeming, Restating
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse import schemas
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import last_batch_id
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions
from sessionlake.warehouse.views import merged_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Windows(EventKind[WindowSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = WINDOWS
    late_columns: ClassVar[tuple[pa.Field, ...]] = (
        schemas.commented(schemas.PARTLY, pa.bool_(), "Whether the event is in those of its windows that were open"),
    )

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return them by the config's section."""
        section = cast("WindowSection", config.section)
        return (WINDOWS,) if rows_are_state(section.windows, section.emit.policies) else (SLICES, WINDOWS)

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "Windows":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> Windower:
        """Return the windower."""
        return Windower(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshots and the changelogs."""
        found = []
        for of, schema in self._schemas().items():
            snapshot = snapshot_schema(of, schema)
            found.append(TableSpec(of.snapshot, snapshot, f"Snapshot of {of.snapshot}, as far as compacted"))
            found.append(changelog_table(of, schema))
        return tuple(found)

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelogs, the windows' last."""
        found = self._schemas()
        windows = changelog_output(WINDOWS, tables, found.pop(WINDOWS))
        slices = (changelog_output(of, tables, schema, STATE) for of, schema in found.items())
        return (*slices, windows)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the slices that are not below the horizon."""
        spec = cast("Windower", operator).spec
        of = self.changelogs[0]
        start = F.unix_micros(of.start)
        kept = start >= Progress.of(state).horizon_us(spec.windows.span_us)
        numbers = ["revision"] if spec.rows_are_state else ["revision", "reach"]
        columns = [
            F.col(of.key).alias("key"),
            start.alias("start"),
            F.col("event_count").alias("count"),
            *map(F.col, (*numbers, *(["born", "born_reach"] if spec.is_sliding else []), "state")),
        ]
        until = last_batch_id(tables, WINDOWS)
        return all_versions(tables, columns, of=of, until=until, narrowed=lambda rows: rows.where(kept))

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: "DataFrame") -> "DataFrame":
        """Return the rows that tombstones name, as they were sent last (`control.ASKED_SCHEMA`)."""
        del operator, state
        last = 1 if self.spec.is_sliding else 0
        keys = F.broadcast(asked.select(F.col("key").alias("window_key")).distinct())
        live = merged_rows(tables, narrowed=lambda rows: rows.join(keys, "window_key", "left_semi"))
        rows = live.select(
            F.col("window_key").alias("key"),
            F.unix_micros("window_start").alias("start_us"),
            (F.unix_micros("window_end") + last).alias("end_us"),
            "revision",
        )
        return rows.join(asked, ["key", "start_us"], "left_semi")

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention, which decides how slices are cut into segments, and the policies, on which lists depend."""
        spec = cast("Windower", operator).spec
        return f"{spec.retention_us}/{spec.emit.early}/{spec.emit.full}/{spec.emit.late}"

    def suite_values(self) -> dict[str, int | bool]:
        """Return how windows lie, and whether their rows carry states."""
        windows = self.spec.windows
        grid = (windows.advance_us, windows.offset_us) if isinstance(windows, Grid) else (1, 0)
        lie = {"size_us": windows.size_us, "advance_us": grid[0], "offset_us": grid[1]}
        return {**lie, "with_state": self.spec.rows_are_state}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which events are beyond retention."""
        del config
        return Progress.of(state).expired_us

    @property
    def restating(self) -> Restating:
        """Return the merge of the events of a slice."""
        return Restating(self._slice_start_us, self._merge, partial(merged_late, self.spec, alone=True))

    @property
    def redeeming(self) -> Redeeming:
        """Return the reading of events."""
        return Redeeming(self.spec.aggregates, self.spec.events)

    def due_us(self, state: State) -> int | None:
        """Return when the next period has something to send."""
        return emission.due_us(self.spec.emit, state)

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the watermark at which the last window closes."""
        of = self.changelogs[0]
        latest = merged_rows(tables, of=of).agg(F.max(F.unix_micros(of.start))).head()
        if latest is None or latest[0] is None:
            return None
        # One more: sliding windows have one that begins right after an event.
        return int(latest[0]) + 1 + self.spec.windows.span_us + self.spec.grace_us

    def _slice_start_us(self) -> "Column":
        windows, time = self.spec.windows, F.unix_micros("event_time")
        if not isinstance(windows, Grid):
            return time
        return time - F.pmod(time - F.lit(windows.offset_us), F.lit(windows.slice_us))

    def _merge(self, watermark_us: int) -> Merge:
        del watermark_us
        return Merge(self.spec.windows.slices_of, partial(merged_late, self.spec))

    def _schemas(self) -> dict[Changelog, pa.Schema]:
        """Return the changelogs' schemas, in the order of their commits."""
        texts = dict(self._config.aggregates)
        windows = window_schema(self.spec, texts, marks=True)
        if self.spec.rows_are_state:
            return {WINDOWS: windows}
        return {SLICES: slice_schema(self.spec, marks=True), WINDOWS: windows}
