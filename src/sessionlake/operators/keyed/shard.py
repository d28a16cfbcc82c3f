"""One shard's part of a batch of a keyed table: corrections first, then the latest update of each key against the stored row."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.operators.keyed.control import REMOVE, REMOVE_SCHEMA
from sessionlake.operators.keyed.expiring import (
    NO_ROWS,
    counts_of,
    indexed,
    indexed_anew,
    stored_rows,
    taken_away,
)
from sessionlake.operators.keyed.expiry.pattern import Expirations
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import LIVE_CHANGE, MAX_PUT, written_us
from sessionlake.operators.keyed.mapper import NET, UNKNOWN, UPDATES, packed_of, update_schema
from sessionlake.operators.keyed.order import require_one_row
from sessionlake.operators.keyed.plan import Plan, StoredKeys, TombstoneMatches, completed, planned, stored_keys
from sessionlake.operators.keyed.spec import MAX_DELETED, TOMBSTONE, KeyedSpec
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.operators.shared.cleanups.schedule import CLEANUP
from sessionlake.operators.shared.corrections.outcomes import outcomes_of, stale_letters
from sessionlake.sources.record_columns import EXPIRY, TOMBSTONE_KIND
from sessionlake.store.rows import HEAD, RowStore, Stored, Values
from sessionlake.stream.control import OUTCOMES
from sessionlake.stream.ingest import DEAD
from sessionlake.warehouse.changelog import CAUSE, INSERTED, UPDATE, WRITTEN
from sessionlake.warehouse.schemas import TIME

RESTORED = {
    **{name: f"{name}_us" for name in ("time", "written", "inserted")},
    **{name: name for name in ("offset", "partition", "revision")},
}
"""Fields of heads, and the columns of restored rows that they have."""
PLACES = {"time": "time_us", "offset": "offset", "partition": "partition"}
"""Fields of heads, and the columns of updates that they have."""


@dataclass(frozen=True)
class Change:
    """Changes of some keys, in columns: the rows of the changelog of one kind, and the values that the store gets."""

    op: str
    cause: str
    codes: Ints
    head: "np.ndarray[tuple[int], np.dtype[np.void]]"
    ids: pa.Array
    columns: list[pa.Array] | None = None
    """Of upserts."""


@dataclass(frozen=True)
class Changes:
    """The rows of the changelog, by their causes."""

    put: Ints
    """Rows of the updates that are stored."""
    upserted: Change
    deleted: Change
    expired_at_once: Change
    """Updates whose rows have expired as they come."""
    removed: Change
    """Rows that tombstones delete."""
    expired: Change
    """Expired stored rows that no update names; their codes are places among `Expirations.keys`."""

    @property
    def named(self) -> list[Change]:
        """The changes of keys that the batch names: upserts, then deletes."""
        return [self.upserted, self.deleted, self.expired_at_once, self.removed]


@dataclass(frozen=True)
class KeyedShard:
    """Computes shards of one table; a function of its arguments."""

    spec: KeyedSpec

    def computed(self, inputs: Inputs, store: RowStore, context: BatchContext) -> ShardResult:
        """Return the shard's result: the rows that its corrections delete, and those that its updates change."""
        updates = inputs.get(UPDATES, update_schema(self.spec).empty_table())
        removals = inputs.get(REMOVE, REMOVE_SCHEMA.empty_table())
        known = stored_keys(self.spec, updates, removals, store, context)
        updates, unknown = completed(self.spec, updates, known) if self.spec.unsaid else (updates, 0)
        plan = planned(self.spec, updates, known, context)
        if (told := self.spec.not_one) is not None:
            require_one_row(
                plan.codes, combined(updates[NET]).to_numpy(), known.rows.codes, plan.codes[plan.deletes], told
            )
        changed = known.named.take(pa.array(plan.changed))
        held = int(np.isin(known.there.codes, plan.changed).sum())
        found = taken_away(self.spec, inputs, store, context, plan.new, changed, held)
        changes = self._changes(plan, found, context)
        side, corrected = ({}, {}) if not removals.num_rows else _outcomes(inputs, removals, known.removed)
        counts = {**self._counts(plan, found, changes, inputs, context), **corrected}
        counts |= {UNKNOWN: unknown} if unknown else {}
        writes = self._written(store, plan, found, changes)
        kept = len(writes) > 0 or (CLEANUP in inputs and bool(store.hidden_segments(self.spec.hidden_us(context))))
        table = pa.concat_tables(
            [*(self._table(known.named, change) for change in changes.named), self._table(found.keys, changes.expired)]
        )
        replaced = self._replaced(known, plan, found, context) if context.keeps_replaced else None
        return ShardResult(table, writes if kept else None, side, counts, found.cursor, replaced=replaced)

    def _replaced(self, known: StoredKeys, plan: Plan, found: Expirations, context: BatchContext) -> pa.Table:
        """Return the stored rows that the batch replaces or deletes."""
        expired = found.rows.where(self._shown(found, context))
        return pa.concat_tables(
            [self._stored(known.named, known.rows.where(plan.gone)), self._stored(found.keys, expired)]
        )

    def _stored(self, keys: pa.Array, rows: Stored) -> pa.Table:
        """Return stored rows as the changelog has them, but for their causes."""
        every = np.arange(len(rows))
        columns = self.spec.unpack(rows.packed(every))
        return self._table(keys, Change("upsert", UPDATE, rows.codes, rows.head, rows.ids(every), columns))

    def _shown(self, found: Expirations, context: BatchContext) -> Bools:
        """Say which expired rows readers see up to now. Hidden rows have no delete in the changelog: readers already leave them out."""
        shown: Bools = found.rows["written"] > self.spec.hidden_us(context)
        return shown

    def _changes(self, plan: Plan, found: Expirations, context: BatchContext) -> Changes:
        """Return the changes of the changelog, given the rows that expire with the batch."""
        updates, codes, rows = plan.updates, plan.codes, plan.known.rows
        deletes, upserts, at_once = plan.deletes, plan.put[~found.at_once], plan.put[found.at_once]
        if self.spec.by_offset:
            # No later update is older, so deletions need not be remembered: the deletion of a missing key changes nothing.
            deletes, at_once = (some[np.isin(codes[some], rows.codes)] for some in (deletes, at_once))
        cause = TTL if self.spec.ttl is None else self.spec.ttl.pattern.cause
        shown = np.flatnonzero(self._shown(found, context))
        return Changes(
            upserts,
            self._updated("upsert", updates, codes, upserts, context, inserted=plan.inserted[upserts]),
            self._updated("delete", updates, codes, deletes, context),
            self._updated("delete", updates, codes, at_once, context, cause),
            self._taken_away(rows, plan.removed, context),
            self._taken_away(found.rows, shown, context, cause),
        )

    def _counts(
        self, plan: Plan, found: Expirations, changes: Changes, inputs: Inputs, context: BatchContext
    ) -> dict[str, int]:
        """Return the numbers of the batch."""
        spec, upserts, expired = self.spec, len(changes.put), len(changes.expired.codes)
        # Deletions of missing keys change nothing.
        deletes = len(changes.deleted.codes)
        counts: dict[str, int] = {
            "changed": len(plan.put) + deletes,
            "unchanged": plan.unchanged + len(plan.deletes) - deletes,
            "superseded": plan.superseded,
            "upserts": upserts,
            "deletes": sum(len(change.codes) for change in changes.named[1:]) + expired,
            LIVE_CHANGE: upserts - int(plan.gone.sum()) - expired,
            **counts_of(found, expired, spec, inputs, plan.new),
            **({MAX_PUT: written_us(context)} if spec.row_interval_us is not None and upserts else {}),
        }
        if not spec.by_offset:
            heads = (changes.deleted, changes.expired_at_once, changes.expired)
            removed = plan.known.rows["time"][plan.known.removed.rows]
            last = np.concatenate([*(change.head["time"] for change in heads), removed])
            counts |= {MAX_DELETED: int(last.max())} if len(last) else {}
        return counts

    def _written(self, store: RowStore, plan: Plan, found: Expirations, changes: Changes) -> pa.Table:
        """Return the store's writes, ascending by segment."""
        written = [
            self._writes(store, plan.known, plan.updates, changes.put, changes.named),
            self._writes_of_expired(store, found.keys, found.rows, changes.expired),
        ]
        if self.spec.index is not None:
            kept_new = plan.new.take(np.flatnonzero(~found.at_once))
            written.append(self._writes_of_index(store, plan.known, kept_new, changes.named, found))
        return _by_segment(written)

    def restored(self, table: pa.Table, store: RowStore) -> pa.Table:
        """Return the writes of a restore's rows and markers of distinct keys, a table of `stored_schema`."""
        table = table.combine_chunks()
        codes, keys = sorted_codes(table["key"])
        head = np.zeros(len(table), HEAD)
        for field, name in RESTORED.items():
            head[field] = combined(table[name]).to_numpy()
        ids = combined(table["id"])
        head["id"] = pc.binary_length(ids).to_numpy()
        deleted = combined(table["deleted"]).to_numpy(zero_copy_only=False)
        kept, gone = np.flatnonzero(~deleted), np.flatnonzero(deleted)
        columns = [combined(table[f"column_{i}"]).take(pa.array(kept)) for i in range(len(self.spec.columns))]
        rows = Values(codes[kept], head[kept], ids.take(pa.array(kept)), self.spec.pack(columns, len(kept)))
        named = keys.cast(pa.binary())
        writes = store.writes(
            named, rows, NO_ROWS, _markers(codes[gone], head[gone], ids.take(pa.array(gone))), NO_ROWS
        )

        if self.spec.index is None:
            return writes

        def unpacked() -> Mapping[str, pa.Array]:
            return dict(zip(self.spec.columns, columns, strict=True))

        fields = {name: head[name][kept].astype(np.int64) for name in ("time", "revision", "written", "inserted")}
        put = TableRows(keys=keys.take(pa.array(codes[kept])), columns=unpacked, **fields)
        return _by_segment([writes, indexed_anew(self.spec, store, put)])

    def _updated(
        self,
        op: str,
        updates: pa.Table,
        codes: Ints,
        at: Ints,
        context: BatchContext,
        cause: str = UPDATE,
        inserted: Ints | int = 0,
    ) -> Change:
        index = pa.array(at)
        ids = combined(updates["id"]).take(index)
        head = np.zeros(len(at), HEAD)
        for field, name in PLACES.items():
            head[field] = combined(updates[name]).to_numpy()[at]
        head["revision"], head["id"] = context.batch_id, pc.binary_length(ids).to_numpy()
        head["written"], head["inserted"] = written_us(context), inserted
        columns = [combined(updates[f"column_{i}"]).take(index) for i in range(len(self.spec.columns))]
        return Change(op, cause, codes[at], head, ids, columns if op == "upsert" else None)

    @staticmethod
    def _taken_away(rows: Stored, at: Ints, context: BatchContext, cause: str = TOMBSTONE) -> Change:
        head = rows.head[at]
        head["revision"], head["written"], head["inserted"] = context.batch_id, written_us(context), 0
        return Change("delete", cause, rows.codes[at], head, rows.ids(at))

    def _writes(
        self, store: RowStore, known: StoredKeys, updates: pa.Table, upserts: Ints, changes: list[Change]
    ) -> pa.Table:
        rows, markers, (put, *deleted) = known.there, known.markers, changes
        gone = np.concatenate([change.codes for change in deleted])
        order = np.argsort(gone)
        head = np.concatenate([change.head for change in deleted])[order]
        ids = pa.concat_arrays([change.ids for change in deleted]).take(pa.array(order))
        gone = gone[order]
        # By time, an older update may still come: a marker remembers the deletion.
        kept = _markers(gone, head, ids) if not self.spec.by_offset else _markers(gone[:0], head[:0], ids[:0])
        changed = np.isin(markers.codes, np.concatenate([put.codes, gone]))
        freed = markers.where(changed)
        values = Values(put.codes, put.head, put.ids, packed_of(self.spec, updates, upserts))
        replaced = rows.where(np.isin(rows.codes, np.concatenate([put.codes, gone])))
        return store.writes(known.named, values, replaced, kept, freed)

    def _writes_of_index(
        self, store: RowStore, known: StoredKeys, put: TableRows, changes: list[Change], found: Expirations
    ) -> pa.Table:
        there = known.there
        was = there.where(np.isin(there.codes, np.concatenate([change.codes for change in changes])))
        return indexed(self.spec, store, put, stored_rows(self.spec, known.named.take(pa.array(was.codes)), was), found)

    def _writes_of_expired(self, store: RowStore, keys: pa.Array, rows: Stored, expired: Change) -> pa.Table:
        """Return the writes that remove rows which no update names, with markers that remember the deletions."""
        none = _markers(expired.codes[:0], expired.head[:0], expired.ids[:0])
        markers = none if self.spec.by_offset else _markers(expired.codes, expired.head, expired.ids)
        return store.writes(keys, none, rows, markers, NO_ROWS)

    def _table(self, keys: pa.Array, change: Change) -> pa.Table:
        spec, table, head = self.spec, self.spec.table, change.head
        known: dict[str, pa.Array] = {
            "event_time": pa.array(head["time"].astype(np.int64)).cast(TIME),
            "revision": pa.array(head["revision"].astype(np.int64)),
            WRITTEN: pa.array(head["written"].astype(np.int64)).cast(TIME),
            CAUSE: pa.repeat(change.cause, len(head)),
        }
        if change.op == "upsert":
            known[INSERTED] = pa.array(head["inserted"].astype(np.int64)).cast(TIME)
        if spec.has_offsets:
            known |= {f"event_{name}": pa.array(head[name].astype(np.int64)) for name in ("partition", "offset")}
        if spec.has_ids:
            known["event_id"] = change.ids
        if change.columns is not None:
            known |= dict(zip(spec.columns, change.columns, strict=True))
        schema = table.changes_schema(spec.fields(table, {}), marks=False)
        return table.changes(schema, change.op, keys.take(pa.array(change.codes)).cast(pa.string()), known, None)


def _outcomes(
    inputs: Inputs, removals: pa.Table, removed: TombstoneMatches
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Return dead letters and outcomes of tombstones and expiries, and how many took effect."""
    expiries = removals["offset"].is_valid()
    side = {
        DEAD: pa.concat_tables(
            stale_letters(removals.filter(which), kind, removed.stale)
            for which, kind in ((pc.invert(expiries), TOMBSTONE_KIND), (expiries, EXPIRY))
        )
    }
    if OUTCOMES in inputs:
        side[OUTCOMES] = outcomes_of(inputs[OUTCOMES], removed.stale)
    return side, {"applied": removals.num_rows - len(removed.stale), "stale": len(removed.stale)}


def _by_segment(writes: list[pa.Table]) -> pa.Table:
    """Return writes, each ascending by segment and of other keys than the others, as one table ascending by segment."""
    some = [table for table in writes if len(table)] or writes[:1]
    table = pa.concat_tables(some)
    segment = table["segment"].to_numpy()
    # The index's writes come last and lie in the last segment, so most batches are sorted already.
    return (
        table if bool(np.all(segment[1:] >= segment[:-1])) else table.take(pa.array(np.argsort(segment, kind="stable")))
    )


def _markers(codes: Ints, head: "np.ndarray[tuple[int], np.dtype[np.void]]", ids: pa.Array) -> Values:
    return Values(codes, head, ids, pa.array([b""] * len(codes), pa.binary()))
