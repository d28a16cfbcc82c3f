"""Windows and sessions by count as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.counts.mapper import split_events
from sessionlake.operators.counts.shard import CountShard
from sessionlake.operators.counts.spec import CountSpec, Sessions
from sessionlake.operators.counts.table import BY_PARTITION, SLICES, WINDOWS
from sessionlake.operators.shared.windowing import emission
from sessionlake.operators.shared.windowing.emission import FULL, Progress, next_progress
from sessionlake.operators.shared.windowing.tombstones import (
    ASKED_SCHEMA,
    NUMBERED_TOMBSTONE,
    REMOVE,
    removed_by,
    with_removed,
)
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.series import SeriesStore
from sessionlake.stream.control import Limits
from sessionlake.stream.described import Described
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.positions import PARTITION, POSITIONS, chunk_of, counted
from sessionlake.warehouse.row_table import RowTable

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.operators.counts.section import CountSection
    from sessionlake.stream.pinned import Pinned


@dataclass(frozen=True)
class CountedWindows(Described):
    """Windows by count from events; see `Described` and `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = (SLICES, WINDOWS)
    CORRECTIONS: ClassVar = {"tombstone": NUMBERED_TOMBSTONE}
    BOUND: ClassVar = {"state layout": STATE_LAYOUT}
    ASKS: ClassVar = True
    NUMBERED: ClassVar = True
    spec: CountSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.stream.events import aggregated_events  # noqa: PLC0415 (workers do without the config)

        section = cast("CountSection", config.section)
        aggregates, events = aggregated_events(config, sources[EVENTS], pinned, ordered=True)
        policies = section.emit.policies
        return cls(CountSpec(events, aggregates, section.windows, section.numbered, policies, section.retention_us))

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables, whose comments say how messages are numbered."""
        return self.TABLES if self.spec.per_key else (SLICES, BY_PARTITION)

    @property
    def ticks(self) -> bool:
        """Whether every shard runs in every batch: changes wait for a tick. Otherwise the rows that describe chunks make shards run."""
        return isinstance(self.spec.emit.early, int)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the messages, and the rows that number them."""
        del name
        return split_events(self.spec, context, chunk_of(context, number), rows)

    def limits(self, context: BatchContext) -> Limits:
        """Return the end of the retention: no correction moves the watermark."""
        return Limits(Progress.of(context.state).expired_us, None, context.clock_us)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SeriesStore:
        """Open a shard's store, by default in a separate database."""
        spec = self.spec
        return SeriesStore(path, retention_us=spec.retention_us, bucket=spec.windows.bucket, opened=opened)

    def apply(self, inputs: Inputs, store: SeriesStore, context: BatchContext) -> ShardResult:
        """Compute a shard, and delete the rows that tombstones name; it asks for these rows as they were sent."""
        if REMOVE not in inputs:
            return CountShard(self.spec).computed(inputs, store, context)
        if not context.handed_in:
            none = self.spec.output_schema(WINDOWS).empty_table()
            return ShardResult(none, None, needs=inputs[REMOVE].select(ASKED_SCHEMA.names).cast(ASKED_SCHEMA))
        result = CountShard(self.spec).computed(inputs, store, context)
        removed = removed_by(inputs, result.changes, lambda rows: self._are_full(rows, context.state))
        return with_removed(WINDOWS, result, inputs, removed, context)

    def _are_full(self, rows: pa.Table, state: Mapping[str, Any]) -> Bools:
        """Return which rows are of full windows, as `CountSection.final_sql` does: the row or the partition's progress says so."""
        full: Bools = pc.equal(combined(rows["trigger"]), FULL).to_numpy(zero_copy_only=False)
        if self.spec.per_key:
            return full
        windows, accepted = self.spec.windows, state.get(POSITIONS, {}).get(EVENTS, {})
        further = windows.gap if isinstance(windows, Sessions) else 0
        partition, number = np.divmod(rows["end_us"].to_numpy(), PARTITION)
        reached = np.array([int(accepted.get(str(each), 0)) for each in partition.tolist()], np.int64)
        return full | ((number > 0) & (number <= reached - further))

    def commit(self, store: SeriesStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; series without a message for the retention are dropped."""
        store.apply(writes, meta, Progress.of(context.state).expired_us)

    def restored(self, rows: pa.Table, store: SeriesStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of a restore's slices."""
        yield CountShard(self.spec).restored(rows, store, part)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the windows' progress, and the number of messages in each partition."""
        spec = self.spec
        after = next_progress(spec.emit, spec.retention_us, spec.retention_us, Progress.of(state), stats)
        return {**after.state(), **counted(state, stats)}

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return Progress.of(state).expired_us

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        del config
        return Progress.of(state).expired_us

    def layout(self) -> str:
        """Return the retention, which cuts series into segments, and the policy, which lists depend on."""
        return f"{self.spec.retention_us}/{self.spec.emit.early}"

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when the next period has something to send."""
        return emission.due_us(self.spec.emit, state)
