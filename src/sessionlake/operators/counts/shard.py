"""One shard's part of a batch of windows by count: messages numbered, slices merged, windows sent, lists kept."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.partials import written_values
from sessionlake.columnar.arrays import Bools, Ints, combined, distinct, picked, within_group
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.counts.batch import Batch, messages_of, numbers_by_key, numbers_by_partition
from sessionlake.operators.counts.rules import Merged, Messages, is_kept, merge, sent_windows
from sessionlake.operators.counts.series import partitions_of, series_of
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.operators.counts.table import SLICES, WINDOWS
from sessionlake.operators.counts.unsent_lists import UnsentLists
from sessionlake.operators.shared.windowing.emission import MAX_BATCH, MAX_CLOCK, Progress, ticks_of
from sessionlake.operators.shared.windowing.slices import Windows, states_of
from sessionlake.store.series import COUNTED, SeriesStore
from sessionlake.store.slices import Slices
from sessionlake.stream.control import MAX_FLUSH
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.positions import PARTITION, Numbering


@dataclass(frozen=True)
class CountShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: CountSpec

    def computed(self, inputs: Inputs, store: SeriesStore, context: BatchContext) -> ShardResult:
        """Return the shard's result: the batch's messages merged into its slices, and the windows that are due."""
        spec = self.spec
        numbering = Numbering.of(inputs, context.state, EVENTS)
        batch = self._batch(inputs, store, context, numbering)
        merged = merge(
            spec.windows,
            spec.aggregates,
            batch.stored,
            batch.messages,
            batch.numbers,
            batch.newest,
            batch.keys,
            batch.batch_id,
        )
        sent = sent_windows(
            spec.windows,
            merged,
            batch.listed,
            batch.messages,
            batch.numbers,
            batch.since,
            early=batch.early,
        )
        kept = is_kept(spec.windows, merged.slices, batch.numbers, per_key=spec.per_key)
        touched = distinct(merged.slices.codes[merged.changed | ~kept])
        of_touched = np.zeros(len(batch.series), bool)
        of_touched[touched] = True
        left = merged.slices.take(np.flatnonzero(kept & of_touched[merged.slices.codes]))
        lists, unsent = UnsentLists(spec, store).kept(batch, merged, numbering)
        writes = pa.concat_tables([store.writes(batch.series, touched, left, batch.place), *lists])
        stats = {"upserts": len(sent), MAX_CLOCK: batch.clock_us, MAX_BATCH: batch.batch_id, **unsent}
        rows = self._slice_rows(batch, merged, kept)
        side = {SLICES.output: rows} if rows.num_rows else {}
        return ShardResult(self._window_rows(batch, merged.slices, sent), writes if len(writes) else None, side, stats)

    def restored(self, rows: pa.Table, store: SeriesStore, part: int) -> pa.Table:
        """Return the writes of a restore's slices. All slices are listed; whether a change was sent follows from the slices."""
        spec, rows = self.spec, rows.combine_chunks()
        start = rows["start"].to_numpy()
        partition = start * 0 if spec.per_key else start // PARTITION
        codes, series = sorted_codes(series_of(combined(rows["key"]), partition))
        head = np.zeros(len(rows), COUNTED)
        for name in ("start", "last", "count", "revision", "first", "newest"):
            head[name] = rows[name].to_numpy()
        # Positions in the tables become numbers of the partition again.
        for name in ("start", "last"):
            head[name] -= partition * PARTITION
        # A series that was forgotten began again with a greater first number: older slices are not its own.
        since = np.full(len(series), -(1 << 60))
        np.maximum.at(since, codes, head["first"])
        order = np.lexsort((head["start"], codes))
        # The changelog does not say which slices were forgotten, so it may still have such slices.
        order = order[head["first"][order] == since[codes[order]]]
        slices = Slices(codes, head, combined(rows["state"])).take(order)
        writes = store.writes(series, np.arange(len(series)), slices, np.full(len(series), -(1 << 62)))
        return pa.concat_tables([writes, *UnsentLists(spec, store).restored(series, slices, since, part)])

    def _batch(self, inputs: Inputs, store: SeriesStore, context: BatchContext, numbering: Numbering) -> Batch:
        spec, at = self.spec, Progress.of(context.state)
        flush = MAX_FLUSH in inputs.get(TICK, pa.table({})).column_names
        early = ticks_of(spec.emit, at, context.clock_us, flush=flush).early
        parts, chunk, row = messages_of(spec, inputs)
        position, arrival = numbering.positions(chunk, row), numbering.arrivals(chunk, row)
        partition = position * 0 if spec.per_key else position // PARTITION
        given = series_of(parts.keys, partition)
        asked = [given, *UnsentLists(spec, store).named(numbering, early=early)]
        codes, series = sorted_codes(pa.chunked_array(asked, pa.binary()))
        # The messages' series come first in what was coded, then those of the lists.
        listed = np.zeros(len(series), bool)
        listed[codes[len(given) :]] = True
        codes = codes[: len(given)]
        stored, place = store.find(series)
        newest = np.full(len(series), at.expired_us - 1)
        np.maximum.at(newest, stored.codes, stored["newest"])
        # A series without a message for the retention counts as missing, also if it is still stored.
        stored = stored.take(np.flatnonzero(newest[stored.codes] >= at.expired_us))
        np.maximum.at(newest, codes, parts.start)
        order = np.lexsort((arrival, codes))
        codes = codes[order]
        counts = np.bincount(codes, minlength=len(series))
        if spec.per_key:
            numbers = numbers_by_key(stored, counts, arrival[order])
            number = numbers.before[codes] + 1 + within_group(counts)
        else:
            number = (position - partition * PARTITION)[order]
            numbers = numbers_by_partition(stored, counts, number, series, numbering)
        states = [picked(column, pa.array(order)) for column in parts.states]
        return Batch(
            context.batch_id,
            context.clock_us,
            early,
            at.early_batch,
            series,
            numbers,
            Messages(codes, number, states),
            newest,
            stored,
            place,
            listed,
        )

    def _slice_rows(self, batch: Batch, merged: Merged, kept: Bools) -> pa.Table:
        """Return the changes of slice_changelog: upserts of changed slices that stay, and deletes of stored ones that go."""
        slices = merged.slices
        was_stored = slices["count"] > merged.given
        rows = np.flatnonzero((merged.changed & kept) | (was_stored & ~kept))
        some, stays = slices.take(rows), kept[rows]
        base = self._base(batch.series)[some.codes]
        known = {
            "slice_start": pa.array(some["start"] + base),
            "slice_end": pa.array(some["last"] + base),
            "event_count": pa.array(some["count"]),
            "revision": pa.array(np.where(stays, some["revision"], batch.batch_id)),
            "first": pa.array(some["first"]),
            "newest": pa.array(some["newest"]),
            "state": pc.if_else(pa.array(stays), some.state, pa.scalar(None, pa.binary())),
        }
        ops = pa.array(np.where(stays, "upsert", "delete"), pa.string())
        keys = batch.keys.take(pa.array(some.codes))
        return SLICES.changes(self.spec.output_schema(SLICES), ops, keys, known, batch)

    def _window_rows(self, batch: Batch, slices: Slices, windows: Windows) -> pa.Table:
        count, states = states_of(self.spec.aggregates, slices, windows, batch.keys)
        base = self._base(batch.series)[windows.codes]
        known = {
            "window_start": pa.array(windows.start + base),
            "window_end": pa.array(windows.end + base),
            "event_count": pa.array(count),
            "trigger": windows.trigger,
            **self.spec.named(written_values(self.spec.aggregates, states)),
        }
        keys = batch.keys.take(pa.array(windows.codes))
        return WINDOWS.changes(self.spec.output_schema(WINDOWS), "upsert", keys, known, batch)

    def _base(self, series: pa.Array) -> Ints:
        """Return the offsets that turn numbers of series into positions: 0 if a key's messages are numbered."""
        return np.zeros(len(series), np.int64) if self.spec.per_key else partitions_of(series) * PARTITION
