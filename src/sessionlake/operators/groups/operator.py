"""Groups as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.groups.control import KINDS
from sessionlake.operators.groups.mapper import split_events
from sessionlake.operators.groups.shard import GroupShard
from sessionlake.operators.groups.spec import GroupSpec
from sessionlake.operators.groups.store import INTERVAL_US, OLDEST_US
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import OneInputOperator
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of

_RESTORED_AT_A_TIME = 500_000
"""Rows; a key has one, so that they may be cut anywhere."""


@dataclass(frozen=True)
class Grouper(OneInputOperator):
    """Groups from events; see `engine.operator.Operator` for the methods."""

    spec: GroupSpec
    ticks: bool = False

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Merge the events of each key."""
        del name, number
        return split_events(self.spec, context, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split tombstones."""
        skew = self.spec.events.max_future_skew_us
        latest = latest_advance_us(skew, context.clock_us, watermark_of(context.state), 1)
        return split_corrections(KINDS, Limits(NO_WATERMARK, latest, context.clock_us), table)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SegmentedSessionStore:
        """Open a shard's store, by default in a separate database."""
        return SegmentedSessionStore(path, INTERVAL_US, opened)

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return GroupShard(self.spec).computed(inputs, store, context)

    def commit(
        self, store: SegmentedSessionStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext
    ) -> None:
        """Apply writes."""
        del context
        store.apply(writes, meta, OLDEST_US)

    def restored(self, rows: pa.Table, store: SegmentedSessionStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of a restore's rows, in pieces."""
        del part
        for first in range(0, len(rows), _RESTORED_AT_A_TIME):
            yield GroupShard(self.spec).restored(rows.slice(first, _RESTORED_AT_A_TIME), store)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the watermark, which says how far events have come, and closes nothing."""
        return advanced(state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return that no event is too old."""
        del state
        return NO_WATERMARK
