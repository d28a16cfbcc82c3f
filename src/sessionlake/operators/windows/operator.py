"""Windows by time as the engine's operator: the workers' half."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.windows.control import ASKED_SCHEMA, REMOVE, kinds_of
from sessionlake.operators.windows.emission import Progress
from sessionlake.operators.windows.mapper import split_events
from sessionlake.operators.windows.replace import REPLACED
from sessionlake.operators.windows.shard import WindowShard
from sessionlake.operators.windows.spec import WindowSpec, window_schema
from sessionlake.store.api import OpenSegments
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.slices import GRID, SLIDING, SliceStore
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.ingest import CORRECTIONS, by_input, naming_rows


@dataclass(frozen=True)
class Windower:
    """Windows from events; see `engine.operator.Operator` for the methods."""

    spec: WindowSpec

    @property
    def ticks(self) -> bool:
        """Whether shards must know how far the frontier has come, or act without rows: where anything waits to be sent."""
        return not self.spec.emit.updates

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Split source rows and corrections."""
        spec, at = self.spec, Progress.of(context.state)
        for name, part in by_input(rows):
            if name == CORRECTIONS:
                to_close = spec.windows.span_us + spec.grace_us
                skew = spec.events.max_future_skew_us
                latest = latest_advance_us(skew, context.clock_us, at.close_us, to_close)
                limits = Limits(at.expired_us, latest, context.clock_us)
                yield from split_corrections(kinds_of(spec), limits, part)
                continue
            for decoded in spec.events.decoder.decode(part):
                yield from naming_rows(partial(split_events, spec, at, context.clock_us), decoded)

    def open_store(self, path: Path, opened: OpenSegments = RocksSegments) -> SliceStore:
        """Open a shard's store, by default in a database of its own."""
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

        Of these it asks for what was sent, and of the windows that replacements name which the store has no more.
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

    def restored(self, inputs: Inputs, store: SliceStore) -> Iterator[pa.Table]:
        """Yield the writes of handed-in slices."""
        yield WindowShard(self.spec).restored(inputs, store)
