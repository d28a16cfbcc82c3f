"""Joins of tables as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.table_joins.control import KINDS
from sessionlake.operators.table_joins.mapper import split_rows
from sessionlake.operators.table_joins.shard import TableJoinShard
from sessionlake.operators.table_joins.spec import TableJoinSpec
from sessionlake.operators.table_joins.store import SideStore
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of


@dataclass(frozen=True)
class TableJoiner(EventOperator):
    """Pairs of rows that follow both inputs; see `engine.operator.Operator` for the methods."""

    spec: TableJoinSpec
    ticks: bool = False

    def events(self, name: str) -> EventSpec:
        """Return the settings of a side."""
        return self.spec.both[name].events

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Return the rows of a side with their keys."""
        del number
        return split_rows(self.spec, context, name, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split tombstones."""
        skews = [side.events.max_future_skew_us for side in self.spec.both.values()]
        skew = min((one for one in skews if one is not None), default=None)
        latest = latest_advance_us(skew, context.clock_us, watermark_of(context.state), 1)
        return split_corrections(KINDS, Limits(NO_WATERMARK, latest, context.clock_us), table)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SideStore:
        """Open a shard's store, by default in a database of its own."""
        return SideStore(path, opened)

    def apply(self, inputs: Inputs, store: SideStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return TableJoinShard(self.spec).computed(inputs, store, context)

    def commit(self, store: SideStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes."""
        del context
        store.apply(writes, meta)

    def restored(self, rows: pa.Table, store: SideStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of the given rows of both sides."""
        del part
        yield from TableJoinShard(self.spec).restored(rows, store)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the watermark of each side, and the lesser one."""
        return advanced(state, stats, SIDES)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return that no row is too old."""
        del state
        return NO_WATERMARK
