"""One shard's part of a batch of groups: tombstones first, then the batch's parts."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of, written_values
from sessionlake.columnar.arrays import Ints, combined, is_among
from sessionlake.columnar.records import Records
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.operators.groups import store as groups
from sessionlake.operators.groups.changelog import GROUPS
from sessionlake.operators.groups.control import REMOVE, REMOVE_SCHEMA, TOMBSTONE, removed_by
from sessionlake.operators.groups.mapper import COUNT, PARTS, parts_schema
from sessionlake.operators.groups.rules import Merged, merge
from sessionlake.operators.groups.spec import GroupSpec, changes_schema
from sessionlake.operators.shared.corrections.outcomes import with_outcomes
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.warehouse.schemas import TIME


@dataclass(frozen=True)
class GroupShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: GroupSpec

    def computed(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Return the shard's result: the rows that its tombstones delete, and those that its parts change."""
        spec = self.spec
        parts = inputs.get(PARTS, parts_schema(spec).empty_table())
        removals = inputs.get(REMOVE, REMOVE_SCHEMA.empty_table())
        codes, keys = sorted_codes(pa.chunked_array([*parts["key"].chunks, *removals["key"].chunks], pa.string()))
        stored = groups.find(store, keys)
        gone, stale = removed_by(removals, codes[len(parts) :], stored)
        merged = merge(
            spec.aggregates,
            stored.take(np.flatnonzero(~gone)),
            codes[: len(parts)],
            parts[COUNT].to_numpy(),
            [combined(column) for column in parts.columns[2:]],
            keys,
        )
        # A row that a tombstone deletes, and that the batch's events make anew, is an upsert.
        removed = stored.codes[gone]
        deleted = np.sort(np.concatenate([merged.deleted, removed[~is_among(removed, merged.codes)]]))
        writes = self._writes(store, keys, merged, deleted, context)
        changes = pa.concat_tables([self._upserts(keys, merged, context), self._deletes(keys, deleted, context)])
        stats = {"upserts": len(merged.codes), "deletes": len(deleted)}
        replaced = self._replaced(keys, stored, merged, deleted) if context.keeps_replaced else None
        result = ShardResult(changes, writes if len(writes) else None, {}, stats, replaced=replaced)
        if not len(removals):
            return result
        return with_outcomes(result, inputs, {REMOVE: TOMBSTONE}, stale, {"applied": len(removed)})

    def restored(self, rows: pa.Table, store: SegmentedSessionStore) -> pa.Table:
        """Return the writes of a restore's rows, of distinct keys."""
        rows = rows.combine_chunks()
        codes, keys = sorted_codes(rows["key"])
        changed, count, revision = (rows[name].to_numpy() for name in ("changed_us", "event_count", "revision"))
        put = groups.records(codes, changed, count, revision, combined(rows["state"]))
        return groups.writes(store, keys, put, codes[:0])

    def _writes(
        self, store: SegmentedSessionStore, keys: pa.Array, merged: Merged, deleted: Ints, context: BatchContext
    ) -> pa.Table:
        n = len(merged.codes)
        changed, revision = np.full(n, context.clock_us), np.full(n, context.batch_id)
        put = groups.records(merged.codes, changed, merged.count, revision, merged.packed)
        return groups.writes(store, keys, put, deleted)

    def _replaced(self, keys: pa.Array, stored: Records, merged: Merged, deleted: Ints) -> pa.Table:
        """Return the stored rows that the batch changes or deletes."""
        was = stored.take(np.flatnonzero(is_among(stored.codes, np.concatenate([merged.codes, deleted]))))
        values = values_of(self.spec.aggregates, StateCodec(self.spec.aggregates).decode(was.state))
        known = {
            COUNT: pa.array(was.count),
            GROUPS.time: pa.array(was.start).cast(TIME),
            "revision": pa.array(was.revision),
            **{a.name: value for a, value in zip(self.spec.aggregates, values, strict=True)},
        }
        return self._rows("upsert", keys.take(pa.array(was.codes)), known)

    def _upserts(self, keys: pa.Array, merged: Merged, context: BatchContext) -> pa.Table:
        values = written_values(self.spec.aggregates, merged.states)
        known = {
            COUNT: pa.array(merged.count),
            **{a.name: value for a, value in zip(self.spec.aggregates, values, strict=True)},
            "state": merged.packed,
        }
        return self._rows("upsert", keys.take(pa.array(merged.codes)), known | _marks(len(merged.codes), context))

    def _deletes(self, keys: pa.Array, deleted: Ints, context: BatchContext) -> pa.Table:
        none = {COUNT: pa.array(np.zeros(len(deleted), np.int64))}
        return self._rows("delete", keys.take(pa.array(deleted)), none | _marks(len(deleted), context))

    def _rows(self, op: str, keys: pa.Array, known: dict[str, pa.Array]) -> pa.Table:
        schema, n = changes_schema(self.spec, {}, marks=False), len(keys)
        found = {"op": pa.repeat(op, n), GROUPS.key: keys, **known}
        arrays = [found[field.name] if field.name in found else pa.nulls(n, field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)


def _marks(rows: int, context: BatchContext) -> dict[str, pa.Array]:
    """Return the columns of a batch's changes that say when they were made."""
    times = pa.array(np.full(rows, context.clock_us)).cast(TIME)
    return {GROUPS.time: times, "revision": pa.array(np.full(rows, context.batch_id))}
