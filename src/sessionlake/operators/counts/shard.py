"""One shard's part of a batch of windows by count: messages numbered, slices merged, windows sent, lists kept."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.partials import Partials, values_of
from sessionlake.columnar.arrays import Bools, Ints, binary_array, combined, offsets_of, sorted_codes, within_group
from sessionlake.engine.operator import RESTORE, TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.counts.mapper import MESSAGES
from sessionlake.operators.counts.rules import (
    Merged,
    Messages,
    Numbers,
    all_windows,
    is_kept,
    is_waiting,
    merge,
    new_windows,
    sent_windows,
)
from sessionlake.operators.counts.spec import CountSpec, Grid, Sessions, Sliding, slice_schema, window_schema
from sessionlake.operators.windows.emission import (
    BATCH,
    MAX_BATCH,
    MAX_CLOCK,
    UNSENT_EARLY,
    Progress,
    ticks_of,
)
from sessionlake.operators.windows.rules import Windows, states_of
from sessionlake.store.series import COUNTED, SeriesStore
from sessionlake.store.slices import Slices
from sessionlake.stream.control import MAX_FLUSH
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.positions import CHUNK, PARTITION, ROW, Numbering
from sessionlake.warehouse.schemas import TIME

STATE = "slices"
"""Kind of the rows of slice_changelog."""
_EARLY, _DUE = "E", "F"
"""The stores' letters of the lists of series whose changes wait for an early tick, and of what gets full with others' messages."""
_SUFFIX = 8


@dataclass(frozen=True)
class Batch:
    """What a shard computes with: the series of the batch, by code, and their messages."""

    batch_id: int
    clock_us: int
    early: bool
    """Whether current windows are sent."""
    since: int
    """The last batch with an early tick: later changes are not sent yet."""
    series: pa.Array
    """Distinct series, ascending, as bytes: the key's, and the number of the partition where partitions are numbered."""
    numbers: Numbers
    messages: Messages
    newest: Ints
    """Of each series the newest event time."""
    stored: Slices
    place: Ints
    listed: Bools
    """Of each series whether a list names it."""

    @property
    def keys(self) -> pa.Array:
        """The key of each series."""
        return keys_of(self.series)


@dataclass(frozen=True)
class CountShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: CountSpec

    def computed(self, inputs: Inputs, store: SeriesStore, context: BatchContext) -> ShardResult:
        """Return what becomes of a shard: the batch's messages merged into its slices, and the windows that are due."""
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
        touched = np.unique(merged.slices.codes[merged.changed | ~kept])
        of_touched = np.zeros(len(batch.series), bool)
        of_touched[touched] = True
        left = merged.slices.take(np.flatnonzero(kept & of_touched[merged.slices.codes]))
        lists, unsent = self._lists(store, batch, merged, numbering)
        writes = pa.concat_tables([store.writes(batch.series, touched, left, batch.place), *lists])
        stats = {"upserts": len(sent), MAX_CLOCK: batch.clock_us, MAX_BATCH: batch.batch_id, **unsent}
        rows = self._slice_rows(batch, merged, kept)
        side = {STATE: rows} if rows.num_rows else {}
        return ShardResult(self._window_rows(batch, merged.slices, sent), writes if len(writes) else None, side, stats)

    def restored(self, inputs: Inputs, store: SeriesStore) -> pa.Table:
        """Return the writes of handed-in slices; all of them are listed, since what is sent is told from the slices."""
        spec, rows = self.spec, inputs[RESTORE].combine_chunks()
        start = rows["start"].to_numpy()
        partition = start * 0 if spec.per_key else start // PARTITION
        codes, series = sorted_codes(series_of(combined(rows["key"]), partition))
        head = np.zeros(len(rows), COUNTED)
        for name in ("start", "last", "count", "revision", "first", "newest"):
            head[name] = rows[name].to_numpy()
        for name in ("start", "last"):
            head[name] -= partition * PARTITION
        since = np.full(len(series), -(1 << 60))
        np.maximum.at(since, codes, head["first"])
        order = np.lexsort((head["start"], codes))
        # What was forgotten is not told in the changelog, which may have slices of before.
        order = order[head["first"][order] == since[codes[order]]]
        slices = Slices(codes, head, combined(rows["state"])).take(order)
        writes = store.writes(series, np.arange(len(series)), slices, np.full(len(series), -(1 << 62)))
        # Whatever the frontiers are: lists of what is full are found to be so, and removed.
        never = np.full(len(series), -(1 << 60))
        lists = self._due_writes(store, series, slices, Numbers(since * 0 + 1, since, never, never), 0)
        if isinstance(spec.emit.early, int):
            lists.insert(0, store.list_writes(_EARLY, 0, np.zeros(len(series), np.int64), series))
        return pa.concat_tables([writes, *lists])

    def _batch(self, inputs: Inputs, store: SeriesStore, context: BatchContext, numbering: Numbering) -> Batch:
        spec, at = self.spec, Progress.of(context.state)
        flush = MAX_FLUSH in inputs.get(TICK, pa.table({})).column_names
        early = ticks_of(spec.emit, at, context.clock_us, flush=flush).early
        parts, chunk, row = _messages_of(spec, inputs)
        position, arrival = numbering.positions(chunk, row), numbering.arrivals(chunk, row)
        partition = position * 0 if spec.per_key else position // PARTITION
        given = series_of(parts.keys, partition)
        asked = [given, *self._listed(store, numbering, early=early)]
        codes, series = sorted_codes(pa.chunked_array(asked, pa.binary()))
        listed = np.zeros(len(series), bool)
        listed[codes[len(given) :]] = True
        codes = codes[: len(given)]
        stored, place = store.find(series)
        newest = np.full(len(series), at.expired_us - 1)
        np.maximum.at(newest, stored.codes, stored["newest"])
        # A series without a message for the retention is absent, even while it is there.
        stored = stored.take(np.flatnonzero(newest[stored.codes] >= at.expired_us))
        np.maximum.at(newest, codes, parts.start)
        order = np.lexsort((arrival, codes))
        codes = codes[order]
        counts = np.bincount(codes, minlength=len(series))
        if spec.per_key:
            numbers = _by_key(stored, counts, arrival[order])
            number = numbers.before[codes] + 1 + within_group(counts)
        else:
            number = (position - partition * PARTITION)[order]
            numbers = _by_partition(stored, counts, number, series, numbering)
        states = [column.take(pa.array(order)) for column in parts.states]
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

    def _listed(self, store: SeriesStore, numbering: Numbering, *, early: bool) -> list[pa.Array]:
        """Return the series that the due lists name."""
        found = []
        if early and isinstance(self.spec.emit.early, int):
            found.append(store.lists(_EARLY, 0, 1).keys.cast(pa.binary()))
        for partition, after in sorted(numbering.after.items()):
            before = numbering.before.get(partition, 0)
            if after > before and self._lists_dues:
                low, high = self._due(before), self._due(after)
                found.append(store.lists(_letter(partition), low, high).keys.cast(pa.binary()))
        return found

    @property
    def _lists_dues(self) -> bool:
        """Whether windows get full that have changes which were not sent, while none of their key's messages comes."""
        spec = self.spec
        return not spec.per_key and spec.emit.early != BATCH and not isinstance(spec.windows, Sliding)

    def _due(self, frontier: int) -> int:
        """Return what starts of lists lie below, of windows and sessions that are full at a frontier of the partition.

        Of a window that is its distance from the first window's start, of a session its last number.
        """
        windows = self.spec.windows
        if isinstance(windows, Sessions):
            return frontier - windows.gap + 1
        assert isinstance(windows, Grid)  # noqa: S101 (nothing else is listed)
        return frontier - windows.size - windows.offset + 1

    def _due_writes(
        self,
        store: SeriesStore,
        series: pa.Array,
        slices: Slices,
        numbers: Numbers,
        batch_id: int,
        merged: Merged | None = None,
    ) -> list[pa.Table]:
        """Return the writes of lists of the windows or sessions that get full later: all that slices have, or a batch's new ones."""
        windows = self.spec.windows
        if not self._lists_dues or not len(series):
            return []
        if isinstance(windows, Sessions):
            rows = np.flatnonzero(
                is_waiting(windows, slices, numbers.first, numbers.after) & (True if merged is None else merged.changed)
            )
            codes, start = slices.codes[rows], slices["last"][rows]
        else:
            assert isinstance(windows, Grid)  # noqa: S101 (nothing else is listed)
            found = all_windows(windows, slices, numbers) if merged is None else new_windows(windows, merged, numbers)
            codes, start = found.codes, found.time - 1 - windows.offset
        partition = partitions_of(series)[codes]
        return [
            store.list_writes(_letter(p), batch_id, start[partition == p], series.take(pa.array(codes[partition == p])))
            for p in np.unique(partition).tolist()
        ]

    def _lists(
        self, store: SeriesStore, batch: Batch, merged: Merged, numbering: Numbering
    ) -> tuple[list[pa.Table], dict[str, int]]:
        """Return the writes that keep the lists, and how many changes wait to be sent."""
        windows, numbers, tables = self.spec.windows, batch.numbers, []
        unsent: dict[str, int] = {}
        if isinstance(self.spec.emit.early, int):
            waits = merged.changed & is_waiting(windows, merged.slices, numbers.first, numbers.after)
            if batch.early:
                tables.append(store.list_deletes(store.ended_lists(_EARLY, store.bucket)))
            else:
                known = is_waiting(windows, batch.stored, numbers.first, numbers.before) & (
                    batch.stored["revision"] > batch.since
                )
                new = np.setdiff1d(merged.slices.codes[waits], batch.stored.codes[known])
                named = batch.series.take(pa.array(new))
                tables.append(store.list_writes(_EARLY, batch.batch_id, new * 0, named))
                unsent[UNSENT_EARLY] = int(waits.sum())
        if self._lists_dues:
            for partition, after in sorted(numbering.after.items()):
                until = self._due(after)
                if isinstance(windows, Grid):
                    until += windows.advance - 1  # a list is of one start
                tables.append(store.list_deletes(store.ended_lists(_letter(partition), until)))
            tables += self._due_writes(store, batch.series, merged.slices, numbers, batch.batch_id, merged)
        return tables, unsent

    def _slice_rows(self, batch: Batch, merged: Merged, kept: Bools) -> pa.Table:
        """Return the changes of slice_changelog: changed slices that stay, and stored ones that go."""
        slices = merged.slices
        was_stored = slices["count"] > merged.given
        rows = np.flatnonzero((merged.changed & kept) | (was_stored & ~kept))
        some, stays = slices.take(rows), kept[rows]
        base = self._base(batch.series)[some.codes]
        columns = {
            "op": pa.array(np.where(stays, "upsert", "delete"), pa.string()),
            "slice_key": batch.keys.take(pa.array(some.codes)),
            "slice_start": pa.array(some["start"] + base),
            "slice_end": pa.array(some["last"] + base),
            "event_count": pa.array(some["count"]),
            "revision": pa.array(np.where(stays, some["revision"], batch.batch_id)),
            "first": pa.array(some["first"]),
            "newest": pa.array(some["newest"]),
            "state": pc.if_else(pa.array(stays), some.state, pa.scalar(None, pa.binary())),
        }
        schema = slice_schema(marks=False)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _window_rows(self, batch: Batch, slices: Slices, windows: Windows) -> pa.Table:
        n, keys = len(windows), batch.keys
        count, states = states_of(self.spec.aggregates, slices, windows, keys)
        base = self._base(batch.series)[windows.codes]
        columns: dict[str, pa.Array] = {
            "op": pa.repeat("upsert", n),
            "window_key": keys.take(pa.array(windows.codes)),
            "window_start": pa.array(windows.start + base),
            "window_end": pa.array(windows.end + base),
            "event_count": pa.array(count),
            "revision": pa.array(np.full(n, batch.batch_id)),
            "trigger": windows.trigger,
            "emitted_at": pa.array(np.full(n, batch.clock_us)).cast(TIME),
        }
        values = values_of(self.spec.aggregates, states)
        columns |= {a.name: v for a, v in zip(self.spec.aggregates, values, strict=True)}
        schema = window_schema(self.spec, {}, marks=False)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _base(self, series: pa.Array) -> Ints:
        """Return what makes positions of the numbers of series: 0 where a key's messages are numbered."""
        return np.zeros(len(series), np.int64) if self.spec.per_key else partitions_of(series) * PARTITION


def series_of(keys: pa.Array, partition: Ints) -> pa.Array:
    """Return series as bytes: the key's, then the number of the partition in 8 bytes."""
    suffix = binary_array(partition.astype(">i8"), np.arange(len(partition) + 1) * _SUFFIX)
    return pc.binary_join_element_wise(keys.cast(pa.binary()), suffix, b"")


def keys_of(series: pa.Array) -> pa.Array:
    """Return the keys of series."""
    return pc.binary_slice(series, 0, -_SUFFIX).cast(pa.string())


def partitions_of(series: pa.Array) -> Ints:
    """Return the partitions of series."""
    return offsets_of(pc.binary_slice(series, -_SUFFIX))[1].view(">i8").astype(np.int64)


def _messages_of(spec: CountSpec, inputs: Inputs) -> tuple[Partials, Ints, Ints]:
    """Return a batch's messages, and the chunk and row of each."""
    none = np.zeros(0, np.int64)
    if MESSAGES not in inputs:
        return Partials.empty(spec.aggregates), none, none
    table = inputs[MESSAGES].combine_chunks()
    chunk, row = (combined(table[name]).to_numpy() for name in (CHUNK, ROW))
    return Partials.from_table(table.drop_columns([CHUNK, ROW])), chunk, row


def _by_key(stored: Slices, counts: Ints, arrival: Ints) -> Numbers:
    """Return the numbers of series by key: a new one begins with its first message's number among all that were accepted.

    `arrival` is by series, and within that ascending. So no number below is used by the key again, whatever was forgotten.
    """
    first = _since(stored, counts, arrival)
    before = first - 1
    # A series' slices are ascending: its last one is written last.
    before[stored.codes] = stored["last"]
    return Numbers(first, first, before, before + counts)


def _since(stored: Slices, counts: Ints, number: Ints) -> Ints:
    """Return the number of the first message of each series since it is known; `number` is by series, and within that ascending."""
    since = np.zeros(len(counts), np.int64)
    some = counts > 0
    since[some] = number[(np.cumsum(counts) - counts)[some]]
    since[stored.codes] = stored["first"]
    return since


def _by_partition(stored: Slices, counts: Ints, number: Ints, series: pa.Array, numbering: Numbering) -> Numbers:
    known, place = np.unique(partitions_of(series), return_inverse=True)
    before, after = (
        np.array([counts.get(p, 0) for p in known.tolist()], np.int64)[place.reshape(-1)]
        for counts in (numbering.before, numbering.after)
    )
    return Numbers(np.ones(len(series), np.int64), _since(stored, counts, number), before, after)


def _letter(partition: int) -> str:
    """Return the kind of the lists of a partition; of one width, so that none is another's beginning."""
    return f"{_DUE}{partition:08x}"
