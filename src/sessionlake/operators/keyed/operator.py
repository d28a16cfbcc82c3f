"""Keyed tables as the engine's operator: the workers' half."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from sessionlake.engine.operator import RESTORE, BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.keyed.control import KINDS
from sessionlake.operators.keyed.mapper import split_updates
from sessionlake.operators.keyed.shard import KeyedShard
from sessionlake.operators.keyed.spec import KeyedSpec, Progress
from sessionlake.operators.keyed.ttl import hidden_us
from sessionlake.store.rows import RowStore
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.ingest import CORRECTIONS, by_input, naming_rows

_RESTORED_AT_A_TIME = 500_000
"""Rows; to make their writes takes some 700 bytes each. A key has one, so that they may be cut anywhere."""


@dataclass(frozen=True)
class TableKeeper:
    """The latest row of each key, from events and corrections; see `engine.operator.Operator` for the methods."""

    spec: KeyedSpec
    ticks: bool = False

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Split source rows and corrections; where a cleanup is due every shard is told."""
        if self.spec.ttl is not None:
            yield from self.spec.ttl.split(context)
        for name, part in by_input(rows):
            if name == CORRECTIONS:
                yield from split_corrections(KINDS, self.limits(context), part)
                continue
            events, sent = self.spec.events.decoder.part(part)
            if sent is not None:
                yield from split_corrections(KINDS, self.limits(context), sent)
            for decoded in self.spec.events.decoder.decode(events):
                yield from naming_rows(partial(split_updates, self.spec, context), decoded)

    def limits(self, context: BatchContext) -> Limits:
        """Return the times that corrections of a batch are held against."""
        at = Progress.of(context.state)
        latest = latest_advance_us(self.spec.events.max_future_skew_us, context.clock_us, at.watermark_us, 1)
        return Limits(at.expired_us, latest, context.clock_us)

    def open_store(self, path: Path) -> RowStore:
        """Open a shard's store."""
        return RowStore(path, retention_us=self.spec.retention_us, row_interval_us=self.spec.row_interval_us)

    def apply(self, inputs: Inputs, store: RowStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return KeyedShard(self.spec).computed(inputs, store, context)

    def commit(self, store: RowStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; markers that nothing can meet any more are dropped, and rows that the last commit hides."""
        store.apply(writes, meta, Progress.of(context.state).horizon_us, hidden_us(context.state))

    def restored(self, inputs: Inputs, store: RowStore) -> Iterator[pa.Table]:
        """Yield the writes of handed-in rows and markers, of so many at a time."""
        table = inputs[RESTORE]
        for first in range(0, max(len(table), 1), _RESTORED_AT_A_TIME):
            yield KeyedShard(self.spec).restored(table.slice(first, _RESTORED_AT_A_TIME), store)
