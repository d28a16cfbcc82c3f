"""Sessions as the engine's operator: the workers' half."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.columnar.records import Records
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.sessions.control import archived_tombstones, kinds_of, limits_of
from sessionlake.operators.sessions.gap_by import parsed_gap, source_columns, typed_gap
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.marks import split_marks, with_marks
from sessionlake.operators.sessions.shard import apply_shard
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.table import tables_of
from sessionlake.operators.sessions.ttl import next_state
from sessionlake.operators.sessions.windows import Bounds, SessionWindows, bounds_after
from sessionlake.operators.shared.windowing import emission
from sessionlake.operators.shared.windowing.emission import LISTS, Progress
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.lists import ListedSessionStore, restored_list
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval
from sessionlake.stream.control import CorrectionKind, Limits
from sessionlake.stream.described import Described
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.watermark import advanced
from sessionlake.warehouse.row_table import RowTable
from sessionlake.warehouse.schemas import OPEN_UNTIL

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.operators.sessions.section import SessionSection
    from sessionlake.stream.pinned import Pinned

_BUCKETS, _LEAST_BUCKET_US = 8, 1_000_000
"""Lists of a gap: with fewer, a batch reads more that is not due; with more, it writes more lists."""


@dataclass(frozen=True)
class Sessionizer(Described):
    """Sessions from events and corrections; see `Described` and `engine.operator.Operator` for the methods."""

    TABLES: ClassVar = tables_of(until=False, sent=False)
    BOUND: ClassVar = {"state layout": STATE_LAYOUT}
    spec: SessionizerSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.operators.sessions.ttl_rule import session_ttl  # noqa: PLC0415 (workers do without the config)
        from sessionlake.stream.events import aggregated_events  # noqa: PLC0415 (as above)

        windows, section = SessionWindows.of(config), cast("SessionSection", config.section)
        sql = parsed_gap(windows.gap_by)
        aggregates, events = aggregated_events(config, sources[EVENTS], pinned, more=source_columns(sql))
        spec = SessionizerSpec(
            events,
            aggregates,
            windows,
            typed_gap(sql, events.types),
            None if section.quarantine is None else section.quarantine.thresholds,
            emit=section.policies,
            retention_count=section.retention_count,
        )
        return cls(replace(spec, ttl=session_ttl(spec, section.ttl)))

    @classmethod
    def tables_in(cls, config: "Config") -> tuple[RowTable, ...]:
        """Return the tables by the config's section."""
        sent = cast("SessionSection", config.section).policies is not None
        return tables_of(until=SessionWindows.of(config).keeps_until, sent=sent)

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables of the spec."""
        return self.spec.tables

    @property
    def corrections(self) -> Mapping[str, CorrectionKind]:
        """Restates, replacements and tombstones."""
        return kinds_of(self.spec)

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

    def limits(self, context: BatchContext) -> Limits:
        """Return the times that corrections of a batch are held against."""
        return limits_of(self.spec, self.bounds(context), context.clock_us)

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

    @classmethod
    def expired_in(cls, config: "Config", state: Mapping[str, Any]) -> int:
        """Return the end of the retention."""
        by_policy = cast("SessionSection", config.section).policies is not None
        return bounds_after(SessionWindows.of(config), state, by_policy=by_policy).expired_us

    def layout(self) -> str:
        """Return the retention, which cuts sessions into segments, their fields, and the policies and gaps of earlier times, which lists depend on."""
        windows, emit = self.spec.windows, self.spec.emit
        kept = f"{windows.kept_us} {OPEN_UNTIL}" if windows.keeps_until else str(windows.kept_us)
        if emit is None:
            return kept
        limits = [*map(astuple, windows.before), (windows.gap_us, windows.max_length_us, windows.offset_us)]
        return f"{kept}/{emit.early}/{emit.full}/{emit.late}{f'/{limits}' if windows.before else ''}"

    def due_us(self, state: Mapping[str, Any]) -> int | None:
        """Return when the next cleanup is due that may find something, or the next period that has something to send."""
        cleanup = None if self.spec.ttl is None else self.spec.ttl.due_us(state)
        tick = None if self.spec.emit is None else emission.due_us(self.spec.emit, state)
        return min((at for at in (cleanup, tick) if at is not None), default=None)
