"""The sessionizer as the engine's operator."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import combined, sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.errors import SessionlakeError, SourceError, first_line
from sessionlake.jobs.sessionizer.control import archived_tombstones, split_corrections
from sessionlake.jobs.sessionizer.files import file_rows, gone_file
from sessionlake.jobs.sessionizer.mapper import Rows, Split, split_events
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.operators.sessions.shard import apply_shard
from sessionlake.operators.sessions.windows import NO_WATERMARK, Bounds
from sessionlake.sources.decoding.decode import Decoded
from sessionlake.sources.decoding.kafka_records import Topic, decode_records, split_tombstones
from sessionlake.sources.decoding.pieces import Piece
from sessionlake.sources.decoding.raw import raw_text
from sessionlake.store.layout import Sessions
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval

WATERMARK = "watermark_us"
CORRECTION = "correction"
PATH, CONTENT, NUMBER, PARTS = "path", "content", "number", "parts"
"""A row of a source of files: a file's path, where workers can't open it its content, and which of so many parts of it is
meant. The latter two are there only in batches with files in parts, or with files that are gone since the batch was planned:
these have 0 parts."""


def watermark_of(state: Mapping[str, Any]) -> int:
    """Return a state's watermark, NO_WATERMARK before the first accepted event."""
    watermark = state.get(WATERMARK)
    return NO_WATERMARK if watermark is None else int(watermark)


def next_state(state: dict[str, Any], stats: dict[str, int]) -> dict[str, Any]:
    """Return the state after a batch: the watermark moves with accepted events (and `advance` corrections), never back."""
    watermark = max(
        watermark_of(state),
        stats.get("max_time", NO_WATERMARK),
        stats.get("max_advance", NO_WATERMARK),
    )
    return {WATERMARK: None if watermark == NO_WATERMARK else watermark}


@dataclass(frozen=True)
class Sessionizer:
    """Sessions from events and corrections; see `engine.operator.Operator` for the methods."""

    spec: SessionizerSpec

    def bounds(self, context: BatchContext) -> Bounds:
        """Return the times that decide about the batch."""
        return self.spec.windows.bounds(watermark_of(context.state))

    def split(self, batches: Iterator[pa.RecordBatch], context: BatchContext) -> Iterable[tuple[int, str, pa.Table]]:
        """Split source rows; a source row is a file, an event, a Kafka record, or a correction."""
        bounds = self.bounds(context)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if CORRECTION in table.column_names:
                is_correction = table[CORRECTION].is_valid()
                corrections = table.filter(is_correction)
                if corrections.num_rows:
                    struct = combined(corrections[CORRECTION])
                    yield from split_corrections(
                        self.spec, bounds, context.clock_us, pa.Table.from_struct_array(struct)
                    )
                table = table.filter(pa.compute.invert(is_correction)).drop_columns([CORRECTION])
            if not table.num_rows:
                continue
            if self.spec.topic is not None:
                yield from self._split_records(self.spec.topic, table, context)
            else:
                for rows in self._rows(table):
                    yield from self._split_events(bounds, context, rows)

    def _split_records(self, topic: Topic, table: pa.Table, context: BatchContext) -> Split:
        bounds = self.bounds(context)
        records, tombstones = split_tombstones(table, topic)
        if tombstones.num_rows:
            yield from split_corrections(self.spec, bounds, context.clock_us, tombstones)
            yield from archived_tombstones(self.spec, tombstones)
        for decoded in decode_records(records, topic, self.spec.columns):
            rows = Rows(decoded.table, decoded.error, decoded.raw, decoded.position)
            yield from self._split_events(bounds, context, rows)

    def _split_events(self, bounds: Bounds, context: BatchContext, rows: Rows) -> Split:
        """Split events; where that fails, which only a fault of ours can cause, the error names their place."""
        try:
            yield from split_events(self.spec, bounds, context.clock_us, rows)
        except (SessionlakeError, MemoryError):
            raise
        except Exception as error:
            place = rows.source(np.zeros(1, np.int64))[0].as_py() if rows.table.num_rows else "an empty part"
            raise SourceError(
                f"source: the {rows.table.num_rows} rows from {place} on can't be processed ({type(error).__name__}: "
                f"{first_line(error)}); move a file that holds them away and start once with `sessionlake run --replan`"
            ) from error

    def _rows(self, table: pa.Table) -> Iterator[Rows]:
        if self.spec.format is None:
            yield rows_of_table(table, self.spec.place)
            return
        for row in table.to_pylist():
            for decoded in self._decoded(**row):
                yield Rows(decoded.table, decoded.error, decoded.raw, decoded.position)

    def _decoded(self, path: str, content: bytes | None = None, number: int = 0, parts: int = 1) -> Iterable[Decoded]:
        if parts == 0:
            return [gone_file(self.spec, path)]
        return file_rows(self.spec, path, content, Piece(number, parts))

    def open_store(self, path: Path) -> SegmentedSessionStore:
        """Open a shard's session store."""
        return SegmentedSessionStore(path, segment_interval(self.spec.windows.kept_us))

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Compute a shard."""
        return apply_shard(self.spec, self.bounds(context), inputs, store, context)

    def commit(
        self, store: SegmentedSessionStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext
    ) -> None:
        """Apply writes; segments below the horizon are dropped, or not made at all."""
        store.apply(writes, meta, self.bounds(context).horizon_us)

    def restored(self, inputs: Inputs, store: SegmentedSessionStore) -> pa.Table:
        """Return writes of the handed-in sessions (columns key, start_us, end_us, event_count, revision, state)."""
        table = inputs["restore"]
        owner, keys = sorted_codes(table["key"])
        start, end, count, revision = (
            table[name].to_numpy() for name in ("start_us", "end_us", "event_count", "revision")
        )
        sessions = Sessions(owner, start, end, count, revision, combined(table["state"]))
        none = np.zeros(0, np.int64)
        return store.writes(keys, sessions, none, none)


def rows_of_table(table: pa.Table, place: str | None) -> Rows:
    """Return rows of a source that is columnar already; their text is a JSON object of the columns read."""
    return Rows(
        table=table,
        error=None,
        raw=lambda at: _json(table.take(pa.array(at))),
        source=lambda at: pa.repeat(pa.scalar(place, pa.string()), len(at)),
    )


def _json(table: pa.Table) -> pa.Array:
    frame = table.to_pandas()
    lines = frame.to_json(orient="records", lines=True, date_format="iso", date_unit="us").splitlines()
    return pa.array([raw_text(line.encode()) for line in lines], pa.string())
