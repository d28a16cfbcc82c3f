"""Tumbling windows as the engine's operator: the workers' half.

A window is a record of its store like a session that never grows: it ends where its grid says. So the segmented store of
sessions holds windows too, by their end.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials, merge_states, values_of
from sessionlake.columnar.arrays import Bools, Groups, Ints, sorted_codes
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.records import Records, concat
from sessionlake.engine.operator import RESTORE, BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.windows.mapper import PARTS, split_events
from sessionlake.operators.windows.spec import Bounds, WindowSpec
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval
from sessionlake.stream.control import Limits, latest_advance_us, split_corrections
from sessionlake.stream.ingest import CORRECTIONS, by_input, naming_rows
from sessionlake.stream.watermark import watermark_of
from sessionlake.warehouse.schemas import TIME


@dataclass(frozen=True)
class Windower:
    """Windows from events; see `engine.operator.Operator` for the methods."""

    spec: WindowSpec
    ticks: bool = False

    def bounds(self, context: BatchContext) -> Bounds:
        """Return the times that decide about the batch."""
        return self.spec.windows.bounds(watermark_of(context.state))

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Split source rows; of corrections only `advance` is known."""
        bounds, events = self.bounds(context), self.spec.events
        for name, part in by_input(rows):
            if name == CORRECTIONS:
                to_close = self.spec.windows.size_us + self.spec.windows.grace_us
                latest = latest_advance_us(events.max_future_skew_us, context.clock_us, bounds.close_us, to_close)
                yield from split_corrections({}, Limits(bounds.expired_us, latest, context.clock_us), part)
                continue
            for decoded in events.decoder.decode(part):
                yield from naming_rows(partial(split_events, self.spec, bounds, context.clock_us), decoded)

    def open_store(self, path: Path) -> SegmentedSessionStore:
        """Open a shard's store."""
        return SegmentedSessionStore(path, segment_interval(self.spec.windows.retention_us))

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Merge the batch's parts into the stored windows; each window that changed is an upsert."""
        if PARTS not in inputs:
            return ShardResult(self.spec.changes_schema.empty_table(), None)
        parts, bounds = Partials.from_table(inputs[PARTS]), self.bounds(context)
        codes, keys = sorted_codes(parts.keys)
        earliest = np.full(len(keys), np.iinfo(np.int64).max)
        np.minimum.at(earliest, codes, parts.start)
        # Ascending keys come as ascending bytes: Arrow sorts text by its UTF-8 bytes.
        stored = store.find_many(keys.cast(pa.binary()), earliest).sessions
        stored = stored.take(np.flatnonzero(stored.start >= bounds.horizon_us))
        changed, states, touched = self._merged(parts, codes, keys, stored, context.batch_id)
        segment, kept = changed.end // store.interval_us, np.flatnonzero(~touched)
        beside = _among(stored.end[kept] // store.interval_us, stored.codes[kept], segment, changed.codes)
        writes = store.writes(keys, concat([stored.take(kept[beside]), changed]), changed.codes, segment)
        return ShardResult(self._changes(keys, changed, states, context), writes, stats={"upserts": len(changed)})

    def commit(
        self, store: SegmentedSessionStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext
    ) -> None:
        """Apply writes; segments below the horizon are dropped."""
        store.apply(writes, meta, self.bounds(context).horizon_us)

    def restored(self, inputs: Inputs, store: SegmentedSessionStore) -> pa.Table:
        """Return writes of the handed-in windows."""
        codes, keys = sorted_codes(inputs[RESTORE]["key"])
        none = np.zeros(0, np.int64)
        return store.writes(keys, Records.from_table(codes, inputs[RESTORE]), none, none)

    def _merged(
        self, parts: Partials, codes: Ints, keys: pa.Array, stored: Records, batch_id: int
    ) -> tuple[Records, States, Bools]:
        """Return the windows that parts lie in, their states unpacked, and which stored ones are among them."""
        aggregates, codec = self.spec.aggregates, StateCodec(self.spec.aggregates)
        touched = _among(stored.start, stored.codes, parts.start, codes)
        old = stored.take(np.flatnonzero(touched))
        codes, start = np.concatenate([codes, old.codes]), np.concatenate([parts.start, old.start])
        order, starts = group_events(codes, start, 0)
        index = pa.array(order)
        columns = zip(parts.states, codec.decode(old.state), strict=True)
        states = [pa.concat_arrays(both).take(index) for both in columns]
        codes, start = codes[order][starts], start[order][starts]
        states = merge_states(aggregates, states, Groups(starts, len(order), lambda: keys.take(pa.array(codes))))
        n = len(starts)
        changed = Records(
            codes,
            start,
            start + self.spec.windows.size_us - 1,
            np.add.reduceat(np.concatenate([parts.count, old.count])[order], starts),
            np.full(n, batch_id),
            codec.encode(states, n),
        )
        return changed, states, touched

    def _changes(self, keys: pa.Array, changed: Records, states: States, context: BatchContext) -> pa.Table:
        n = len(changed)
        early = changed.end >= watermark_of(context.state)
        arrays = [
            pa.repeat("upsert", n),
            keys.take(pa.array(changed.codes)),
            pa.array(changed.start).cast(TIME),
            pa.array(changed.end + 1).cast(TIME),
            pa.array(changed.count),
            pa.array(changed.revision),
            pa.array(np.where(early, "early", "late"), pa.string()),
            pa.array(np.full(n, context.clock_us)).cast(TIME),
            *values_of(self.spec.aggregates, states),
            changed.state,
        ]
        return pa.Table.from_arrays(arrays, schema=self.spec.changes_schema)


def _among(value: Ints, code: Ints, values: Ints, codes: Ints) -> Bools:
    """Say which (value, code) pairs are among others, of which there is one at least."""
    _, ranks = np.unique(np.concatenate([value, values]), return_inverse=True)
    pairs = ranks * (int(max(code.max(initial=0), codes.max())) + 1) + np.concatenate([code, codes])
    return np.isin(pairs[: len(value)], pairs[len(value) :])
