"""Windows and sessions by count as the engine's operator: the workers' half."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.counts.mapper import split_rows
from sessionlake.operators.counts.shard import CountShard
from sessionlake.operators.counts.spec import CountSpec, window_schema
from sessionlake.operators.windows.control import ASKED_SCHEMA, REMOVE, TOMBSTONE, removed_by, with_removed
from sessionlake.operators.windows.emission import FOREVER, Progress
from sessionlake.store.api import OpenSegments
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.series import SeriesStore
from sessionlake.stream.control import Limits, split_corrections
from sessionlake.stream.ingest import CORRECTIONS, by_input

_ASKED = pa.schema([*ASKED_SCHEMA, ("any", pa.bool_())])


@dataclass(frozen=True)
class Counter:
    """Windows by count from events; see `engine.operator.Operator` for the methods."""

    spec: CountSpec

    @property
    def ticks(self) -> bool:
        """Whether every shard must run in each batch: where changes wait for a tick. What tells of chunks makes the others run."""
        return isinstance(self.spec.emit.early, int)

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Split source rows and corrections."""
        for name, part in by_input(rows):
            if name == CORRECTIONS:
                limits = Limits(Progress.of(context.state).expired_us, None, context.clock_us)
                yield from split_corrections({"tombstone": TOMBSTONE}, limits, part)
            else:
                yield from split_rows(self.spec, context, part)

    def open_store(self, path: Path, opened: OpenSegments = RocksSegments) -> SeriesStore:
        """Open a shard's store, by default in a database of its own."""
        spec = self.spec
        return SeriesStore(path, retention_us=spec.retention_us, bucket=spec.windows.bucket, opened=opened)

    def apply(self, inputs: Inputs, store: SeriesStore, context: BatchContext) -> ShardResult:
        """Compute a shard, and delete the rows that tombstones name; of these it asks for what was sent, where that is final."""
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

    def restored(self, inputs: Inputs, store: SeriesStore) -> Iterator[pa.Table]:
        """Yield the writes of handed-in slices."""
        yield CountShard(self.spec).restored(inputs, store)
