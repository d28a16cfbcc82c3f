"""Windows and sessions by count as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.counts.mapper import split_events
from sessionlake.operators.counts.shard import CountShard
from sessionlake.operators.counts.spec import CountSpec, window_schema
from sessionlake.operators.shared.windowing.emission import FOREVER, Progress, next_progress
from sessionlake.operators.shared.windowing.tombstones import (
    ASKED_SCHEMA,
    NUMBERED_TOMBSTONE,
    REMOVE,
    removed_by,
    with_removed,
)
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.series import SeriesStore
from sessionlake.stream.control import Limits, split_corrections
from sessionlake.stream.event_operator import OneInputOperator
from sessionlake.stream.positions import chunk_of, counted

_ASKED = pa.schema([*ASKED_SCHEMA, ("any", pa.bool_())])


@dataclass(frozen=True)
class Counter(OneInputOperator):
    """Windows by count from events; see `engine.operator.Operator` for the methods."""

    spec: CountSpec

    @property
    def ticks(self) -> bool:
        """Whether every shard must run in each batch: changes wait for a tick. Otherwise the rows that describe chunks make shards run."""
        return isinstance(self.spec.emit.early, int)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the messages, and the rows that number them."""
        del name
        return split_events(self.spec, context, chunk_of(context, number), rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split tombstones."""
        limits = Limits(Progress.of(context.state).expired_us, None, context.clock_us)
        return split_corrections({"tombstone": NUMBERED_TOMBSTONE}, limits, table)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SeriesStore:
        """Open a shard's store, by default in a separate database."""
        spec = self.spec
        return SeriesStore(path, retention_us=spec.retention_us, bucket=spec.windows.bucket, opened=opened)

    def apply(self, inputs: Inputs, store: SeriesStore, context: BatchContext) -> ShardResult:
        """Compute a shard, and delete the rows that tombstones name; it asks for these rows as they were sent, if they are final."""
        if REMOVE not in inputs:
            return CountShard(self.spec).computed(inputs, store, context)
        if not context.handed_in:
            none = window_schema(self.spec, {}, marks=False).empty_table()
            return ShardResult(none, None, needs=inputs[REMOVE].select(_ASKED.names).cast(_ASKED))
        result = CountShard(self.spec).computed(inputs, store, context)
        removed = removed_by(inputs, result.changes, FOREVER)
        return with_removed(result, inputs, removed, context, end_inclusive=False)

    def commit(self, store: SeriesStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; series that have had no message for the retention are dropped."""
        store.apply(writes, meta, Progress.of(context.state).expired_us)

    def restored(self, rows: pa.Table, store: SeriesStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of handed-in slices."""
        yield CountShard(self.spec).restored(rows, store, part)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the windows are, and the number of messages that each partition had."""
        spec = self.spec
        after = next_progress(spec.emit, spec.retention_us, spec.retention_us, Progress.of(state), stats)
        return {**after.state(), **counted(state, stats)}

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return Progress.of(state).expired_us
