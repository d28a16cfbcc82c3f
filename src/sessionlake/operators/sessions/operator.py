"""Sessions as the engine's operator: the workers' half."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import sorted_codes
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import RESTORE, BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.sessions.control import archived_tombstones, kinds_of, limits_of
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.shard import apply_shard
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.store.api import OpenSegments
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval
from sessionlake.stream.control import split_corrections
from sessionlake.stream.ingest import CORRECTIONS, by_input, naming_rows
from sessionlake.stream.watermark import watermark_of


@dataclass(frozen=True)
class Sessionizer:
    """Sessions from events and corrections; see `engine.operator.Operator` for the methods."""

    spec: SessionizerSpec
    ticks: bool = False

    def bounds(self, context: BatchContext) -> Bounds:
        """Return the times that decide about the batch."""
        return self.spec.windows.bounds(watermark_of(context.state))

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Split source rows, each a file, an event, a record of a topic or a correction; where a cleanup is due every shard is told."""
        bounds = self.bounds(context)
        if self.spec.ttl is not None:
            yield from self.spec.ttl.schedule.split(context)
        for name, part in by_input(rows):
            if name == CORRECTIONS:
                yield from self._corrections(bounds, context, part)
                continue
            decoder = self.spec.events.decoder
            events, sent = decoder.part(part)
            if sent is not None:
                yield from self._corrections(bounds, context, sent)
                if self.spec.events.archive:
                    yield archived_tombstones(sent)
            for decoded in decoder.decode(events):
                yield from naming_rows(partial(split_events, self.spec, bounds, context.clock_us), decoded)

    def _corrections(self, bounds: Bounds, context: BatchContext, table: pa.Table) -> Split:
        return split_corrections(kinds_of(self.spec), limits_of(self.spec, bounds, context.clock_us), table)

    def open_store(self, path: Path, opened: OpenSegments = RocksSegments) -> SegmentedSessionStore:
        """Open a shard's store, by default in a database of its own."""
        windows = self.spec.windows
        interval_us = segment_interval(windows.kept_us)
        return SegmentedSessionStore(path, interval_us, opened, with_until=windows.keeps_until)

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return apply_shard(self.spec, self.bounds(context), inputs, store, context)

    def commit(
        self, store: SegmentedSessionStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext
    ) -> None:
        """Apply writes; segments in which all is cold are dropped, or not made at all."""
        store.apply(writes, meta, self.bounds(context).oldest_end_us)

    def restored(self, inputs: Inputs, store: SegmentedSessionStore) -> Iterator[pa.Table]:
        """Yield the writes of the handed-in sessions (columns key, start_us, end_us, event_count, revision, state, and until_us where it is kept)."""
        table = inputs[RESTORE]
        owner, keys = sorted_codes(table["key"])
        sessions = Records.from_table(owner, table)
        none = np.zeros(0, np.int64)
        yield store.writes(keys, sessions, none, none)
