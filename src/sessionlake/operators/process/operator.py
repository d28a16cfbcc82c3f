"""Processors as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.process.control import KINDS
from sessionlake.operators.process.mapper import split_rows
from sessionlake.operators.process.shard import ProcessShard
from sessionlake.operators.process.spec import ProcessSpec, expired_us, next_state
from sessionlake.operators.process.store import StateStore
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import OneInputOperator
from sessionlake.stream.watermark import watermark_of


@dataclass(frozen=True)
class Process(OneInputOperator):
    """A user's processor on shards; see `engine.operator.Operator` for the methods."""

    spec: ProcessSpec

    @property
    def ticks(self) -> bool:
        """True: rows are numbered, and timers are due in shards without rows."""
        return True

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the accepted rows, and the numbers of their order."""
        del name
        return split_rows(self.spec, context, number, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split resets and tombstones."""
        return split_corrections(KINDS, self.limits(context), table)

    def limits(self, context: BatchContext) -> Limits:
        """Return the times that corrections of a batch are held against."""
        spec, state = self.spec, context.state
        skew, grace = spec.events.max_future_skew_us, spec.grace_us
        latest = latest_advance_us(skew, context.clock_us, watermark_of(state), grace + 1)
        return Limits(expired_us(spec.retention_us, state), latest, context.clock_us)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> StateStore:
        """Open a shard's store, by default in a database of its own."""
        return StateStore(path, opened)

    def apply(self, inputs: Inputs, store: StateStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return ProcessShard(self.spec).computed(inputs, store, context)

    def commit(self, store: StateStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes."""
        del context
        store.apply(writes, meta)

    def restored(self, rows: pa.Table, store: StateStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of the given states."""
        del store, part
        yield from ProcessShard(self.spec).restored(rows)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the progress of the rows and timers."""
        return next_state(self.spec, state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return expired_us(self.spec.retention_us, state)
