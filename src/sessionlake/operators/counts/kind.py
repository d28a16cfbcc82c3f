"""Windows and sessions by count as everything above the engine sees them: their tables, and how their state is read back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.counts.changelog import SLICES, WINDOWS
from sessionlake.operators.counts.factory import operator_of
from sessionlake.operators.counts.operator import Counter
from sessionlake.operators.counts.section import CountSection
from sessionlake.operators.counts.shard import STATE
from sessionlake.operators.counts.spec import CountSpec, Grid, Sessions, slice_schema, window_schema
from sessionlake.operators.shared.windowing import emission
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.sources.base import Source
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
    from pyspark.sql import DataFrame


class CountedWindows(EventKind[CountSpec]):
    """See `Kind` for the methods."""

    numbers_messages: ClassVar[bool] = True
    changelog: ClassVar[Changelog] = WINDOWS
    restating: ClassVar[None] = None
    redeeming: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return them."""
        del config
        return SLICES, WINDOWS

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "CountedWindows":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    def operator(self, live: Mapping[str, Any] | None = None) -> Counter:
        """Return the workers' half."""
        return Counter(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshots and the changelogs."""
        found = []
        for of, schema in self._schemas().items():
            found.append(
                TableSpec(of.snapshot, _snapshot(of, schema), f"Snapshot of {of.snapshot}, as far as compacted")
            )
            found.append(changelog_table(of, schema))
        return tuple(found)

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelogs, the windows' last."""
        found = self._schemas()
        return (
            changelog_output(SLICES, tables, found[SLICES], STATE),
            changelog_output(WINDOWS, tables, found[WINDOWS]),
        )

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the slices. A shard recognises forgotten ones by their times."""
        del operator, state
        columns = [
            F.col(SLICES.key).alias("key"),
            F.col(SLICES.start).alias("start"),
            F.col(SLICES.end).alias("last"),
            F.col("event_count").alias("count"),
            *map(F.col, ("revision", "first", "newest", "state")),
        ]
        return all_versions(tables, columns, of=SLICES, until=last_batch_id(tables, WINDOWS))

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: "DataFrame") -> "DataFrame":
        """Return the rows that tombstones name, as they were sent last, but those of windows that are not full.

        A tombstone of `forget` (`any`) names each window of its key that was sent.
        """
        del operator
        named = F.broadcast(asked.withColumnRenamed("key", "window_key").withColumnRenamed("start_us", "window_start"))
        live = merged_rows(
            tables, narrowed=lambda rows: rows.join(named.select("window_key").distinct(), "window_key", "left_semi")
        )
        final = F.expr(cast("CountSection", self._config.section).final_sql("window_end", state))
        rows = live.join(named, ["window_key", "window_start"]).where(final | F.col("any"))
        return rows.select(
            F.col("window_key").alias("key"),
            F.col("window_start").alias("start_us"),
            F.col("window_end").alias("end_us"),
            "revision",
        ).distinct()

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention, which decides how series are cut into segments, and the policy on which lists depend."""
        spec = cast("Counter", operator).spec
        return f"{spec.retention_us}/{spec.emit.early}"

    def suite_values(self) -> dict[str, int | bool]:
        """Return how windows lie."""
        windows = self.spec.windows
        grid = (windows.advance, windows.offset) if isinstance(windows, Grid) else (1, 0)
        return {
            "size": 0 if isinstance(windows, Sessions) else windows.size,
            "advance": grid[0],
            "offset": grid[1],
            "per_partition": not self.spec.per_key,
            "whole": self.spec.per_key and isinstance(windows, Grid),
        }

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which events are beyond retention."""
        del config
        return Progress.of(state).expired_us

    def due_us(self, state: State) -> int | None:
        """Return when the next period has something to send."""
        return emission.due_us(self.spec.emit, state)

    def _schemas(self) -> dict[Changelog, pa.Schema]:
        """Return the changelogs' schemas, in the order of their commits."""
        texts = dict(self._config.aggregates)
        return {SLICES: slice_schema(marks=True), WINDOWS: window_schema(self.spec, texts, marks=True)}


def _snapshot(of: Changelog, changes: pa.Schema) -> pa.Schema:
    """Return the schema of a snapshot, given that of its changelog."""
    part = schemas.commented(of.date, pa.int64(), f"{of.start} / 10,000,000, rounded down: files hold whole parts")
    marks = {"op", *(field.name for field in schemas.BATCH_MARKS)}
    return pa.schema([*(field for field in changes if field.name not in marks), part])
