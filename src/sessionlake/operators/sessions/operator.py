"""Sessions as the engine's operator: the workers' half."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.records import Records
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.sessions.control import archived_tombstones, kinds_of, limits_of
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.marks import split_marks, with_marks
from sessionlake.operators.sessions.shard import apply_shard
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import next_state
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.operators.shared.windowing.emission import LISTS, Progress
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.lists import ListedSessionStore, restored_list
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval
from sessionlake.stream.control import split_corrections
from sessionlake.stream.event_operator import OneInputOperator
from sessionlake.stream.watermark import advanced

_BUCKETS, _LEAST_BUCKET_US = 8, 1_000_000
"""Lists of a gap: with fewer, a batch reads more that is not due; with more, it writes more lists."""


@dataclass(frozen=True)
class Sessionizer(OneInputOperator):
    """Sessions from events and corrections; see `engine.operator.Operator` for the methods."""

    spec: SessionizerSpec

    @property
    def ticks(self) -> bool:
        """Whether shards need the frontier, and run without rows: if changes wait to be sent."""
        return self.spec.emit is not None

    def bounds(self, context: BatchContext) -> Bounds:
        """Return the times that decide about the batch."""
        return self.spec.bounds(context.state)

    def scheduled(self, context: BatchContext) -> Split:
        """Yield the rows that make every shard run if a cleanup is due."""
        if self.spec.ttl is not None:
            yield from self.spec.ttl.schedule.split(context)

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Merge events to parts of sessions."""
        del name, number
        return split_events(self.spec, self.bounds(context), context.clock_us, rows)

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split restates, replacements and tombstones."""
        limits = limits_of(self.spec, self.bounds(context), context.clock_us)
        return split_corrections(kinds_of(self.spec), limits, table)

    def split_sent(self, context: BatchContext, table: pa.Table) -> Split:
        """Split tombstones of the source, and archive them."""
        yield from self.split_corrections(context, table)
        if self.spec.events.archive:
            yield archived_tombstones(table)

    def with_states(self, packed: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """Return states with their marks, if sessions are sent by policy."""
        if self.spec.emit is None:
            return change(packed)
        marks, states = split_marks(packed)
        return with_marks(marks, change(states))

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SegmentedSessionStore:
        """Open a shard's store, by default in a separate database."""
        windows = self.spec.windows
        interval_us = segment_interval(windows.kept_us)
        if self.spec.emit is not None:
            bucket_us = max(windows.widest_us // _BUCKETS, _LEAST_BUCKET_US)
            return ListedSessionStore(path, interval_us, bucket_us, opened, with_until=windows.keeps_until)
        return SegmentedSessionStore(path, interval_us, opened, with_until=windows.keeps_until)

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return apply_shard(self.spec, self.bounds(context), inputs, store, context)

    def commit(
        self, store: SegmentedSessionStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext
    ) -> None:
        """Apply writes; segments in which all is cold are dropped, or not made at all."""
        store.apply(writes, meta, self.bounds(context).oldest_end_us)

    def restored(self, rows: pa.Table, store: SegmentedSessionStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of a restore's sessions (columns key, start_us, end_us, event_count, revision, state, and until_us if it is kept)."""
        owner, keys = sorted_codes(rows["key"])
        sessions = Records.from_table(owner, rows)
        none = np.zeros(0, np.int64)
        writes = [store.writes(keys, sessions, none, none)]
        if isinstance(store, ListedSessionStore) and len(sessions):
            # All are listed: whether a change was sent follows from the session.
            names, until = keys.take(pa.array(owner)).cast(pa.string()), until_of(self.spec.windows, sessions)
            number = restored_list(part)
            writes += [store.list_writes(letter, number, until, names) for letter in LISTS]
        yield pa.concat_tables(writes)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return how far the pipeline is, and the progress of cleanups."""
        spec = self.spec
        if spec.emit is None and spec.keeping is None:
            return next_state(state, stats, advanced(state, stats))
        return next_state(state, stats, spec.next_progress(Progress.of(state), stats).state())

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        return self.spec.bounds(state).expired_us
