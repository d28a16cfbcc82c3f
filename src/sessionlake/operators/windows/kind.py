"""Windows as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.section import WindowSection
from sessionlake.operators.windows.spec import TumblingWindows, WindowSpec, changelog_schema, snapshot_schema
from sessionlake.sources.base import Source
from sessionlake.stream import watermark
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.ingest import EVENTS, EventSpec
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows


class Windows:
    """See `Kind` for the methods."""

    ranks_files: ClassVar[bool] = False
    changelog: ClassVar[Changelog] = Changelog("window")

    def __init__(self, config: Config, spec: WindowSpec) -> None:
        self._config, self.spec = config, spec

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """Return the one input, of events."""
        return {EVENTS: self.spec.events}

    @classmethod
    def make(cls, config: Config, source: Source, pinned: Mapping[str, str] | None) -> "Windows":
        """Make it of a config."""
        section = cast("WindowSection", config.section)
        windows = TumblingWindows(section.size_us, section.offset_us, section.grace_us, section.retention_us)
        aggregates, events = aggregated_events(config, source, pinned)
        return cls(config, WindowSpec(windows, aggregates, events))

    def operator(self, live: Mapping[str, Any] | None = None) -> Windower:
        """Return the windower."""
        return Windower(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshot and the changelog."""
        aggregates, texts = self.spec.aggregates, dict(self._config.aggregates)
        return (
            TableSpec("windows", snapshot_schema(aggregates, texts), "Snapshot of windows, as far as compacted"),
            changelog_table(self.changelog, changelog_schema(aggregates, texts, marks=True)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelog."""
        return (changelog_output(self.changelog, tables, changelog_schema(self.spec.aggregates, {}, marks=True)),)

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return the version of the states' bytes."""
        return {"state layout": STATE_LAYOUT}

    def next_state(self, state: State, stats: dict[str, int]) -> State:
        """Move the watermark."""
        return watermark.advanced(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the windows that are not below the horizon."""
        horizon = cast("Windower", operator).spec.windows.bounds(watermark.watermark_of(state)).horizon_us
        kept = merged_rows(tables).where(F.unix_micros("window_start") >= horizon)
        return kept.select(
            F.col("window_key").alias("key"),
            F.unix_micros("window_start").alias("start_us"),
            (F.unix_micros("window_end") - 1).alias("end_us"),
            "event_count",
            "revision",
            "state",
        )

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
        """Raise NotImplementedError: what windows need is in their stores."""
        raise NotImplementedError

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention: it decides how windows are cut into segments and which of them are kept."""
        return str(cast("Windower", operator).spec.windows.retention_us)

    def due_us(self, state: State) -> None:
        """Return None: windows change by events only."""

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the watermark at which the last window closes."""
        latest = merged_rows(tables).agg(F.max(F.unix_micros("window_end"))).head()
        return None if latest is None or latest[0] is None else int(latest[0]) + self.spec.windows.grace_us
