"""Windows by time as the engine's operator: the workers' half."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.shared.windowing.tombstones import ASKED_SCHEMA, REMOVE
from sessionlake.operators.windows.control import kinds_of
from sessionlake.operators.windows.mapper import split_events
from sessionlake.operators.windows.replace import REPLACED
from sessionlake.operators.windows.shard import WindowShard
from sessionlake.operators.windows.spec import WindowSpec, window_schema
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.slices import GRID, SLIDING, SliceStore
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import OneInputOperator


@dataclass(frozen=True)
class Windower(OneInputOperator):
    """Windows from events; see `engine.operator.Operator` for the methods."""

    spec: WindowSpec

    @property
    def ticks(self) -> bool:
        """Whether shards need the frontier, or run without rows: some policy lets changes wait to be sent."""
        return not self.spec.emit.updates

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Merge events to parts of slices."""
        del name, number
        return split_events(self.spec, Progress.of(context.state), context.clock_us, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split restates, replacements and tombstones."""
        spec, at = self.spec, Progress.of(context.state)
        to_close = spec.windows.span_us + spec.grace_us
        latest = latest_advance_us(spec.events.max_future_skew_us, context.clock_us, at.close_us, to_close)
        return split_corrections(kinds_of(spec), Limits(at.expired_us, latest, context.clock_us), table)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SliceStore:
        """Open a shard's store, by default in a separate database."""
        windows = self.spec.windows
        return SliceStore(
            path,
            block_us=windows.block_us,
            bucket_us=windows.span_us,
            retention_us=self.spec.retention_us,
            head=SLIDING if self.spec.is_sliding else GRID,
            opened=opened,
        )

    def apply(self, inputs: Inputs, store: SliceStore, context: BatchContext) -> ShardResult:
        """Compute a shard, and delete the rows that tombstones name.

        It asks for these rows as they were sent, and for the windows that replacements name and that the store has dropped.
        """
        needs = ASKED_SCHEMA.empty_table() if context.handed_in else self._needs(inputs, context)
        if len(needs):
            return ShardResult(window_schema(self.spec, {}, marks=False).empty_table(), None, needs=needs)
        return WindowShard(self.spec).computed(inputs, store, context)

    def _needs(self, inputs: Inputs, context: BatchContext) -> pa.Table:
        below = Progress.of(context.state).horizon_us(self.spec.windows.span_us)
        asked = [ASKED_SCHEMA.empty_table()]
        if REMOVE in inputs:
            asked.append(inputs[REMOVE].select(ASKED_SCHEMA.names).cast(ASKED_SCHEMA))
        if REPLACED in inputs:
            cold = inputs[REPLACED].filter(pc.field("start_us") < below)
            asked.append(cold.select(ASKED_SCHEMA.names).cast(ASKED_SCHEMA))
        return pa.concat_tables(asked)

    def commit(self, store: SliceStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes; segments below the horizon are dropped."""
        store.apply(writes, meta, Progress.of(context.state).horizon_us(self.spec.windows.span_us))

    def restored(self, rows: pa.Table, store: SliceStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of handed-in slices."""
        yield WindowShard(self.spec).restored(rows, store, part)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the windows are."""
        return self.spec.next_progress(Progress.of(state), stats).state()

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return Progress.of(state).expired_us
