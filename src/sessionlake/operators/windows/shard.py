"""One shard's part of a batch of windows: slices merged, windows sent, lists kept. The rules are in `rules.py` and `emission.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.partials import Partials, concat, values_of
from sessionlake.columnar.arrays import Ints, combined, sorted_codes
from sessionlake.engine.operator import RESTORE, TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.windows import emission
from sessionlake.operators.windows.control import (
    NAMED,
    NONE_REMOVED,
    REMOVE,
    RESTATED,
    SENT_SCHEMA,
    Removed,
    delete_rows,
    removed_by,
    with_told,
)
from sessionlake.operators.windows.emission import (
    BATCH,
    FOREVER,
    MAX_BATCH,
    MAX_CLOCK,
    UNSENT_EARLY,
    UNSENT_LATE,
    Firing,
    Progress,
    Ticks,
    after_batch,
    firings,
    ticks_of,
)
from sessionlake.operators.windows.mapper import PARTS
from sessionlake.operators.windows.replace import REPLACED, WITHHELD, replacements
from sessionlake.operators.windows.rules import (
    NO_WINDOWS,
    Merged,
    Pairs,
    SliceAxis,
    Windows,
    are_among,
    blocks_of,
    grid_windows,
    joined,
    listed_times,
    merge_slices,
    read_around,
    sent_windows,
    states_of,
)
from sessionlake.operators.windows.spec import Grid, WindowSpec, slice_schema, window_schema
from sessionlake.store.lists import NONE_LISTED, Listed
from sessionlake.store.segmented import WRITE_SCHEMA
from sessionlake.store.slices import GRID, SLIDING, Blocks, Slices, SliceStore
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK
from sessionlake.warehouse.schemas import TIME

STATE = "slices"
"""Kind of the rows of slice_changelog."""
_WAITING = {"early": "E", "late": "L"}
"""The stores' letters of the lists of slices whose early or full, and whose late changes are not sent yet."""


@dataclass(frozen=True)
class Moment:
    """What a batch is, besides its rows: how far the pipeline was and is, and which policies fire."""

    batch_id: int
    clock_us: int
    before: Progress
    after: Progress
    ticks: Ticks


@dataclass(frozen=True)
class WindowShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: WindowSpec

    def computed(self, inputs: Inputs, store: SliceStore, context: BatchContext) -> ShardResult:
        """Return what becomes of a shard: the batch's parts merged into the stored slices, and the windows that are due."""
        moment, windows = self._moment(inputs, context), self.spec.windows
        firing = firings(self.spec.emit, moment.before, moment.after, moment.ticks, moment.batch_id)
        if NAMED in inputs or REPLACED in inputs:
            closed = moment.before.close_us
            firing.append(Firing(emission.RESTATE, -FOREVER, closed, moment.batch_id - 1, listed=False))
        replaced = replacements(self.spec, inputs, store, moment.before.horizon_us(windows.span_us))
        new = replaced.parts(self.spec)
        parts = concat([Partials.empty(self.spec.aggregates), *_parts_of(inputs), new])
        changed = [Listed(parts.start, parts.keys), Listed(new.start, new.keys), replaced.touched(windows)]
        named = [_named(inputs, kind) for kind in (NAMED, REMOVE, WITHHELD, REPLACED)]
        listed = [self._listed(store, one, moment.after.watermark_us) for one in firing]
        keys, (given, come, touched, again, removable, withheld, _, *waiting) = _coded([*changed, *named, *listed])
        replaced = replaced.among(keys)
        given_or_touched, again = joined([given, touched]), joined([again, come, touched])
        candidates = [
            (again if one.trigger == emission.RESTATE else joined([given_or_touched, more])).distinct()
            for one, more in zip(firing, waiting, strict=True)
        ]
        if isinstance(windows, Grid):
            candidates = [grid_windows(windows, some, one) for some, one in zip(candidates, firing, strict=True)]
        changing = joined([given_or_touched, removable]) if self.spec.slices_are_windows else given_or_touched
        asked = [replaced.blocks, self._blocks(changing, candidates, firing)]
        stored = replaced.onto(self._stored(store, keys, joined(asked).distinct(), moment))
        merged = merge_slices(
            self.spec.aggregates,
            stored,
            given,
            parts.count,
            parts.states,
            keys,
            batch_id=moment.batch_id,
            reach_us=moment.before.full_us,
            touched=touched,
        )
        sent = self._sent(merged.slices, candidates, firing, withheld)
        lists, unsent = self._lists(store, keys, merged, moment)
        emptied = self._windows_at(keys, replaced.emptied(windows, merged.slices))
        rows = self._with_deletes(self._window_rows(keys, merged.slices, sent, moment), emptied, context)
        removed = removed_by(inputs, rows, moment.before.close_us) if REMOVE in inputs else NONE_REMOVED
        rows = self._with_deletes(rows, removed.rows, context)
        gone, went = self._gone(merged.slices, keys, removed), replaced.gone_from(merged.slices)
        writes = pa.concat_tables([self._writes(store, keys, merged, gone, replaced.blocks_of_gone(windows)), *lists])
        stats = {"upserts": len(sent), MAX_CLOCK: moment.clock_us, MAX_BATCH: moment.batch_id, **unsent}
        result = ShardResult(
            rows,
            writes if len(writes) else None,
            self._slice_changes(keys, merged, gone, went, moment),
            stats,
        )
        if REMOVE not in inputs and REPLACED not in inputs:
            return result
        told = {"applied": removed.rows.num_rows + replaced.number - len(replaced.stale)}
        told |= {"deletes": removed.rows.num_rows + emptied.num_rows}
        return with_told(result, inputs, removed.stale | replaced.stale, told)

    def restored(self, inputs: Inputs, store: SliceStore) -> pa.Table:
        """Return the writes of handed-in slices; all of them are listed, since what is sent is told from the slices."""
        rows = inputs[RESTORE].combine_chunks()
        codes, keys = sorted_codes(rows["key"])
        head = np.zeros(len(rows), SLIDING if self.spec.is_sliding else GRID)
        for name in head.dtype.names or ():
            if name in rows.column_names:
                head[name] = rows[name].to_numpy()
        order = np.lexsort((head["start"], codes))
        slices = Slices(codes, head, combined(rows["state"])).take(order)
        kinds = [] if self.spec.emit.updates else list(_WAITING.values())
        named = keys.take(pa.array(slices.codes))
        lists = [store.list_writes(kind, 0, slices["start"], named) for kind in sorted(kinds)]
        return pa.concat_tables([store.writes(keys, slices), *lists])

    def _moment(self, inputs: Inputs, context: BatchContext) -> Moment:
        """Return the batch's moment; of map tasks' numbers the greatest times count."""
        spec, before = self.spec, Progress.of(context.state)
        told = inputs.get(TICK, pa.table({}))
        frontier = max(_greatest(told, MAX_TIME), _greatest(told, MAX_ADVANCE))
        after = after_batch(spec.emit, spec.grace_us, spec.retention_us, before, frontier, context.clock_us)
        flush = _greatest(told, MAX_FLUSH) > NO_WATERMARK
        return Moment(
            context.batch_id,
            context.clock_us,
            before,
            after,
            ticks_of(spec.emit, before, context.clock_us, flush=flush),
        )

    def _listed(self, store: SliceStore, firing: Firing, frontier_us: int) -> Listed:
        """Return the slices that lists name and that windows of a firing have or are made by."""
        times = listed_times(self.spec.windows, firing, frontier_us) if firing.listed else None
        if times is None:
            return NONE_LISTED
        low, high = times
        found = store.lists(_WAITING["late" if firing.reached else "early"], low, high)
        return found.take(np.flatnonzero((found.start >= low) & (found.start < high)))

    def _blocks(self, given: Pairs, candidates: Sequence[Pairs], firing: Sequence[Firing]) -> Pairs:
        """Return the blocks, (code, number), of slices that the batch changes, or that windows which it may send are made of."""
        windows, block_us = self.spec.windows, self.spec.windows.block_us
        asked = [Pairs(given.codes, given.time // block_us)]
        for some, one in zip(candidates, firing, strict=True):
            if isinstance(windows, Grid):
                asked.append(blocks_of(some, windows.span_us, block_us))
            else:
                asked.append(read_around(windows, some, one))
        return joined(asked)

    def _stored(self, store: SliceStore, keys: pa.Array, blocks: Pairs, moment: Moment) -> Slices:
        """Return the slices that are stored in blocks."""
        found = store.find(keys, blocks.codes, blocks.time)
        there = found["start"] >= moment.before.horizon_us(self.spec.windows.span_us)
        return found if there.all() else found.take(np.flatnonzero(there))

    def _sent(self, slices: Slices, candidates: Sequence[Pairs], firing: Sequence[Firing], withheld: Pairs) -> Windows:
        """Return the windows that go out, by key and start; of the closed ones not those that are withheld."""
        if not firing:
            return NO_WINDOWS
        axis = SliceAxis(slices)
        found = [
            sent_windows(self.spec.windows, slices, axis, some, one)
            for some, one in zip(candidates, firing, strict=True)
        ]
        none = np.zeros(0, np.int64)
        codes, start, end, low, high = (
            np.concatenate([none, *(getattr(part, name) for part in found)])
            for name in ("codes", "start", "end", "low", "high")
        )
        triggers = pa.concat_arrays([pa.array([], pa.string()), *(part.trigger for part in found)])
        windows = Windows(codes, start, end, low, high, triggers)
        if len(withheld):
            again = pc.equal(triggers, emission.RESTATE).to_numpy(zero_copy_only=False)
            windows = windows.take(np.flatnonzero(~again | ~are_among(Pairs(codes, start), withheld)))
        return windows.take(np.lexsort((windows.start, windows.codes)))

    def _windows_at(self, keys: pa.Array, windows: Pairs) -> pa.Table:
        """Return windows as they are named to be deleted (SENT_SCHEMA)."""
        n, end = len(windows), windows.time + self.spec.windows.span_us
        arrays = [keys.take(pa.array(windows.codes)), pa.array(windows.time), pa.array(end), pa.nulls(n, pa.int64())]
        return pa.Table.from_arrays(arrays, schema=SENT_SCHEMA)

    def _with_deletes(self, rows: pa.Table, windows: pa.Table, context: BatchContext) -> pa.Table:
        """Add to the rows of windows those that delete some (SENT_SCHEMA)."""
        if not len(windows):
            return rows
        return pa.concat_tables([rows, delete_rows(rows.schema, windows, context, end_inclusive=self.spec.is_sliding)])

    def _gone(self, slices: Slices, keys: pa.Array, removed: Removed) -> Ints:
        """Return the rows of the slices that go with their windows' rows: where a window is one slice."""
        if not removed.rows.num_rows or not self.spec.slices_are_windows:
            return np.zeros(0, np.int64)
        codes = pc.index_in(combined(removed.rows["key"]), keys).to_numpy().astype(np.int64)
        return SliceAxis(slices).rows_of(Pairs(codes, removed.rows["start_us"].to_numpy()))

    def _writes(self, store: SliceStore, keys: pa.Array, merged: Merged, gone: Ints, lost: Pairs) -> pa.Table:
        """Return the writes of all blocks that have a slice which changed or is gone, and of those that have lost one."""
        codes, block = merged.slices.codes, merged.slices["start"] // self.spec.windows.block_us
        starts = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0))
        if not len(starts) and not len(lost):
            return WRITE_SCHEMA.empty_table()
        stays = np.ones(len(codes), bool)
        stays[gone] = False
        there = Pairs(codes[starts], block[starts])
        touched, left = are_among(there, lost), np.zeros(len(there), bool)
        if len(starts):
            touched |= np.logical_or.reduceat(merged.changed | ~stays, starts)
            left = np.logical_or.reduceat(stays, starts)
        kept = np.repeat(touched, np.diff(starts, append=len(codes))) & stays
        emptied = joined([there.take(touched & ~left), lost.take(~are_among(lost, there))])
        return store.writes(keys, merged.slices.take(np.flatnonzero(kept)), Blocks(emptied.codes, emptied.time))

    def _lists(
        self, store: SliceStore, keys: pa.Array, merged: Merged, moment: Moment
    ) -> tuple[list[pa.Table], dict[str, int]]:
        """Return the writes that keep the lists, and how many changes wait to be sent."""
        emit, windows, after, before = self.spec.emit, self.spec.windows, moment.after, moment.before
        if emit.updates:
            return [], {}
        start = merged.slices["start"][merged.changed]
        old, reach = merged.before["revision"], merged.before["reach"]
        first, done = windows.first_end(start), windows.done_at(start)
        waits = {
            "early": (emit.early != BATCH and not moment.ticks.early) & (done > after.full_us),
            "late": (emit.late != BATCH and not moment.ticks.late)
            & (first <= before.full_us)
            & (done > after.close_us),
        }
        listed = {
            "early": old > before.early_batch,
            "late": (old > before.late_batch) & (reach >= first),
        }
        ended = {"early": after.full_us, "late": after.close_us}
        ticked = {"early": moment.ticks.early, "late": moment.ticks.late}
        tables = []
        for name, letter in sorted(_WAITING.items(), key=lambda item: item[1]):
            until = FOREVER if ticked[name] else ended[name] - windows.span_us - 1
            deletes = store.ended_lists(letter, until)
            new = np.flatnonzero(waits[name] & ~listed[name])
            if deletes:
                tables.append(store.list_deletes(deletes))
            if len(new):
                named = keys.take(pa.array(merged.slices.codes[merged.changed][new]))
                tables.append(store.list_writes(letter, moment.batch_id, start[new], named))
        return tables, {UNSENT_EARLY: int(waits["early"].sum()), UNSENT_LATE: int(waits["late"].sum())}

    def _slice_changes(
        self, keys: pa.Array, merged: Merged, gone: Ints, went: Slices, moment: Moment
    ) -> dict[str, pa.Table]:
        """Return the rows of slice_changelog, where the windows' rows are not the state."""
        changed = merged.slices.take(np.flatnonzero(merged.changed))
        if self.spec.rows_are_state or not len(changed) + len(gone) + len(went):
            return {}
        tables = [self._slice_rows(keys, changed, "upsert")]
        for deleted in (merged.slices.take(gone), went):
            if len(deleted):
                deleted.head["revision"] = moment.batch_id
                tables.append(self._slice_rows(keys, deleted, "delete"))
        return {STATE: pa.concat_tables(tables)}

    def _slice_rows(self, keys: pa.Array, slices: Slices, op: str) -> pa.Table:
        start = slices["start"]
        columns: Mapping[str, pa.Array] = {
            "op": pa.repeat(op, len(slices)),
            "slice_key": keys.take(pa.array(slices.codes)),
            "slice_start": pa.array(start).cast(TIME),
            "slice_end": pa.array(start + self.spec.windows.slice_us).cast(TIME),
            "event_count": pa.array(slices["count"]),
            "state": slices.state,
            **{name: pa.array(slices[name]) for name in ("revision", "reach")},
            **({name: pa.array(slices[name]) for name in ("born", "born_reach")} if self.spec.is_sliding else {}),
        }
        schema = slice_schema(self.spec, marks=False)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _window_rows(self, keys: pa.Array, slices: Slices, windows: Windows, moment: Moment) -> pa.Table:
        n, schema = len(windows), window_schema(self.spec, {}, marks=False)
        if not n:
            return schema.empty_table()
        count, states = states_of(self.spec.aggregates, slices, windows, keys)
        shown = windows.end - 1 if self.spec.is_sliding else windows.end
        columns: dict[str, pa.Array] = {
            "op": pa.repeat("upsert", n),
            "window_key": keys.take(pa.array(windows.codes)),
            "window_start": pa.array(windows.start).cast(TIME),
            "window_end": pa.array(shown).cast(TIME),
            "event_count": pa.array(count),
            "revision": pa.array(np.full(n, moment.batch_id)),
            "trigger": windows.trigger,
            "emitted_at": pa.array(np.full(n, moment.clock_us)).cast(TIME),
        }
        columns |= {
            a.name: values
            for a, values in zip(self.spec.aggregates, values_of(self.spec.aggregates, states), strict=True)
        }
        if self.spec.is_sliding:
            columns["at_event"] = pa.array(slices["start"][windows.high - 1] == windows.end - 1)
        if self.spec.rows_are_state:
            columns["state"] = slices.state.take(pa.array(windows.low))
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _parts_of(inputs: Inputs) -> list[Partials]:
    return [Partials.from_table(inputs[kind]) for kind in (PARTS, RESTATED) if kind in inputs]


def _named(inputs: Inputs, kind: str) -> Listed:
    """Return the slices that rows of a kind name."""
    rows = inputs.get(kind)
    return NONE_LISTED if rows is None else Listed(rows["start_us"].to_numpy(), combined(rows["key"]))


def _coded(named: Sequence[Listed]) -> tuple[pa.Array, list[Pairs]]:
    """Return all keys that slices are named by, ascending, and the slices by their keys' places among these."""
    codes, keys = sorted_codes(pa.chunked_array([one.keys for one in named]))
    parts = np.split(codes, np.cumsum([len(one) for one in named])[:-1])
    return keys, [Pairs(part, one.start) for part, one in zip(parts, named, strict=True)]


def _greatest(told: pa.Table, name: str) -> int:
    """Return the greatest of a number that map tasks told of; NO_WATERMARK where none did."""
    found = pc.max(told[name]).as_py() if name in told.column_names else None
    return NO_WATERMARK if found is None else int(found)
