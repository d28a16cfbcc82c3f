"""One shard's part of a batch of windows: planned, slices merged, windows sent, corrections decided.

The plan is in `plan.py`, the rules are in `rules.py` and in `shared/windowing/emission.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.operators.shared.corrections.outcomes import with_outcomes
from sessionlake.operators.shared.windowing.batch_times import BatchTimes, batch_times
from sessionlake.operators.shared.windowing.emission import LISTS, MAX_BATCH, MAX_CLOCK, RESTATE, Progress
from sessionlake.operators.shared.windowing.slices import (
    NO_PAIRS,
    NO_WINDOWS,
    Pairs,
    SliceAxis,
    Windows,
    are_among,
    joined,
    together,
)
from sessionlake.operators.shared.windowing.tables import SLICES
from sessionlake.operators.shared.windowing.tombstones import (
    NONE_REMOVED,
    REMOVE,
    TombstoneMatches,
    delete_rows,
    removed_by,
)
from sessionlake.operators.windows.control import DECIDED
from sessionlake.operators.windows.plan import Plan, planned
from sessionlake.operators.windows.replace import REPLACED
from sessionlake.operators.windows.rows import slice_rows, window_rows
from sessionlake.operators.windows.rules import Merged, merge_slices, sent_windows
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.operators.windows.unsent_lists import list_writes
from sessionlake.store.lists import restored_list
from sessionlake.store.segmented import WRITE_SCHEMA
from sessionlake.store.slices import GRID, SLIDING, Blocks, Slices, SliceStore


@dataclass(frozen=True)
class Corrected:
    """The effects of a batch's tombstones and replacements on its slices and on the rows that it sends."""

    deletes: Sequence[pa.Table]
    """Rows of the changelog that delete windows."""
    gone: Ints
    """Rows of the slices that go with their windows' rows."""
    removed: Slices | None
    """Slices that replacements have removed from the stored ones."""
    blocks: Pairs
    """The blocks, (code, number), that have lost a slice."""
    stale: frozenset[str]
    """The ids of corrections that do nothing."""
    numbers: Mapping[str, int]


NOT_CORRECTED = Corrected((), np.zeros(0, np.int64), None, NO_PAIRS, frozenset(), {})
"""The value for a batch without tombstones and replacements, as almost every batch is."""


@dataclass(frozen=True)
class WindowShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: WindowSpec

    def computed(self, inputs: Inputs, store: SliceStore, context: BatchContext) -> ShardResult:
        """Return the shard's result: the batch's parts merged into the stored slices, and the windows that are due."""
        spec, decides = self.spec, REMOVE in inputs or REPLACED in inputs
        times = batch_times(spec.emit, spec.grace_us, spec.retention_us, inputs, context)
        plan = planned(self.spec, inputs, store, times)
        merged = self._merged(plan, store, times)
        sent = self._sent(plan, merged.slices)
        rows = window_rows(self.spec, plan.keys, merged.slices, sent, times)
        corrected = self._corrected(plan, merged.slices, rows, inputs, context) if decides else NOT_CORRECTED
        lists, unsent = list_writes(self.spec, store, plan.keys, merged, times)
        writes = pa.concat_tables([self._writes(store, plan.keys, merged, corrected), *lists])
        result = ShardResult(
            pa.concat_tables([rows, *corrected.deletes]),
            writes if len(writes) else None,
            self._slice_changes(plan.keys, merged, corrected, times.batch_id),
            {"upserts": len(sent), MAX_CLOCK: times.clock_us, MAX_BATCH: times.batch_id, **unsent},
        )
        return with_outcomes(result, inputs, DECIDED, corrected.stale, corrected.numbers) if decides else result

    def restored(self, rows: pa.Table, store: SliceStore, part: int) -> pa.Table:
        """Return the writes of a restore's slices. All slices are listed; whether a change was sent follows from the slices."""
        rows = rows.combine_chunks()
        codes, keys = sorted_codes(rows["key"])
        head = np.zeros(len(rows), SLIDING if self.spec.is_sliding else GRID)
        for name in head.dtype.names or ():
            if name in rows.column_names:
                head[name] = rows[name].to_numpy()
        order = np.lexsort((head["start"], codes))
        slices = Slices(codes, head, combined(rows["state"])).take(order)
        kinds = () if self.spec.emit.updates else LISTS
        named, number = keys.take(pa.array(slices.codes)), restored_list(part)
        lists = [store.list_writes(kind, number, slices["start"], named) for kind in kinds]
        return pa.concat_tables([store.writes(keys, slices), *lists])

    def _merged(self, plan: Plan, store: SliceStore, times: BatchTimes) -> Merged:
        """Return the slices of the plan's blocks, with its parts merged into them."""
        stored = store.find(plan.keys, plan.blocks.codes, plan.blocks.time)
        # Slices below the horizon may still be stored, since only whole segments are dropped. No open window has them.
        there = stored["start"] >= times.before.horizon_us(self.spec.windows.span_us)
        stored = stored if there.all() else stored.take(np.flatnonzero(there))
        return merge_slices(
            self.spec.aggregates,
            stored if plan.replaced is None else plan.replaced.onto(stored),
            plan.slices,
            plan.parts.count,
            plan.parts.states,
            plan.keys,
            batch_id=times.batch_id,
            reach_us=times.before.full_us,
            touched=plan.touched,
        )

    def _sent(self, plan: Plan, slices: Slices) -> Windows:
        """Return the windows that are sent, by key and start, without the closed windows that are withheld."""
        if not plan.firings:
            return NO_WINDOWS
        axis = SliceAxis(slices)
        windows = together(
            [
                sent_windows(self.spec.windows, slices, axis, some, one)
                for some, one in zip(plan.candidates, plan.firings, strict=True)
            ]
        )
        if len(plan.withheld):
            again = pc.equal(windows.trigger, RESTATE).to_numpy(zero_copy_only=False)
            withheld = are_among(Pairs(windows.codes, windows.start), plan.withheld)
            windows = windows.take(np.flatnonzero(~again | ~withheld))
        return windows.take(np.lexsort((windows.start, windows.codes)))

    def _corrected(
        self, plan: Plan, slices: Slices, rows: pa.Table, inputs: Inputs, context: BatchContext
    ) -> Corrected:
        """Return the effects of tombstones and replacements, given the merged slices and the rows of windows that are sent."""
        spec, replaced, table = self.spec, plan.replaced, self.spec.tables[-1]
        emptied = NO_PAIRS if replaced is None else replaced.emptied(spec.windows, slices)
        keys, end = plan.keys.take(pa.array(emptied.codes)), emptied.time + spec.windows.span_us - spec.inclusive_us
        deletes = delete_rows(table, rows.schema, keys, pa.array(emptied.time), pa.array(end), context)
        removed, stale, numbers = NONE_REMOVED, frozenset[str](), {"applied": 0, "deletes": len(emptied)}
        if REMOVE in inputs:
            # A tombstone of a window that this batch sends or deletes is stale.
            changes = pa.concat_tables([rows, deletes])
            close_us, last = Progress.of(context.state).close_us, spec.inclusive_us
            removed = removed_by(inputs, changes, lambda rows: rows["end_us"].to_numpy() + last <= close_us)
            stale = removed.stale
            numbers = {name: number + removed.rows.num_rows for name, number in numbers.items()}
        if replaced is not None:
            stale |= replaced.stale
            numbers["applied"] += replaced.number - len(replaced.stale)
        return Corrected(
            [deletes, removed.deletes(table, rows.schema, context)],
            self._gone(slices, plan.keys, removed),
            None if replaced is None else replaced.gone_from(slices),
            NO_PAIRS if replaced is None else replaced.blocks_of_gone(spec.windows),
            stale,
            numbers,
        )

    def _gone(self, slices: Slices, keys: pa.Array, removed: TombstoneMatches) -> Ints:
        """Return the rows of the slices that go with their windows' rows, if a window is one slice."""
        if not removed.rows.num_rows or not self.spec.slices_are_windows:
            return np.zeros(0, np.int64)
        codes = pc.index_in(combined(removed.rows["key"]), keys).to_numpy().astype(np.int64)
        return SliceAxis(slices).rows_of(Pairs(codes, removed.rows["start_us"].to_numpy()))

    def _writes(self, store: SliceStore, keys: pa.Array, merged: Merged, corrected: Corrected) -> pa.Table:
        """Return the writes of all blocks that have a changed slice or have lost one."""
        gone, lost = corrected.gone, corrected.blocks
        codes, block = merged.slices.codes, merged.slices["start"] // self.spec.windows.block_us
        # A block begins at each change of the key or of the block's number.
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
        # A block without slices is deleted: one of which all slices went here, or one that replacements emptied.
        emptied = joined([there.take(touched & ~left), lost.take(~are_among(lost, there))])
        return store.writes(keys, merged.slices.take(np.flatnonzero(kept)), Blocks(emptied.codes, emptied.time))

    def _slice_changes(
        self, keys: pa.Array, merged: Merged, corrected: Corrected, batch_id: int
    ) -> dict[str, pa.Table]:
        """Return the rows of slice_changelog, unless the windows' rows are the state."""
        if self.spec.rows_are_state:
            return {}
        deleted = [merged.slices.take(corrected.gone), *([] if corrected.removed is None else [corrected.removed])]
        tables = [slice_rows(self.spec, keys, merged.slices.take(np.flatnonzero(merged.changed)), "upsert")]
        for slices in deleted:
            slices.head["revision"] = batch_id
            tables.append(slice_rows(self.spec, keys, slices, "delete"))
        changes = pa.concat_tables([table for table in tables if table.num_rows] or tables[:1])
        return {SLICES: changes} if changes.num_rows else {}
