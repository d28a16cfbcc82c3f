"""One shard's part of a batch of a keyed table: corrections first, then the latest update of each key against the stored row."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, concatenated, distinct
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.operators.keyed.control import REMOVE, REMOVE_SCHEMA
from sessionlake.operators.keyed.expiring import (
    NO_ROWS,
    counts_of,
    indexed,
    indexed_anew,
    put_rows,
    stored_rows,
    taken_away,
)
from sessionlake.operators.keyed.expiry.pattern import Expirations
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import LIVE_CHANGE, MAX_PUT, written_us
from sessionlake.operators.keyed.mapper import NET, UNKNOWN, UPDATES, packed_of, unsaid_of, update_schema, versions_of
from sessionlake.operators.keyed.order import Versions, compared, latest, require_comparable, require_one_row
from sessionlake.operators.keyed.spec import MAX_DELETED, TOMBSTONE, KeyedSpec, changes_schema
from sessionlake.operators.keyed.unavailable import said
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.operators.shared.cleanups.schedule import CLEANUP
from sessionlake.operators.shared.corrections.outcomes import outcomes_of, stale_letters
from sessionlake.sources.record_columns import EXPIRY, TOMBSTONE_KIND
from sessionlake.store.rows import HEAD, RowStore, Stored, Values
from sessionlake.stream.control import OUTCOMES
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.watermark import NO_WATERMARK
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
class TombstoneMatches:
    """The stored rows that a shard's tombstones delete, and the tombstones that delete none."""

    rows: Bools
    """For each stored row whether a tombstone deletes it."""
    stale: frozenset[str]
    """The ids of the tombstones that delete no row."""


@dataclass(frozen=True)
class StoredKeys:
    """The keys of a batch's updates, then of its tombstones, and their stored rows and markers."""

    codes: Ints
    named: pa.Array
    """The distinct keys, bytes, ascending, by their codes."""
    there: Stored
    rows: Stored
    """The stored rows that are not hidden."""
    markers: Stored
    removed: TombstoneMatches


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
class Plan:
    """The effects of a batch's updates on a shard. Numbers are rows of `updates`, unless a field says otherwise."""

    updates: pa.Table
    known: StoredKeys
    codes: Ints
    """The code of each update's key."""
    news: Versions
    put: Ints
    """Updates that become rows."""
    deletes: Ints
    """Updates that delete their keys' rows, or keep older updates from making one."""
    gone: Bools
    """Per stored row: it is replaced or deleted."""
    removed: Ints
    """Stored rows that tombstones delete, and that no update replaces."""
    inserted: Ints
    """When the key of each update got a row, microseconds."""
    new: TableRows
    """The rows of `put`."""
    unchanged: int
    """Updates that are equal to the stored row."""
    superseded: int
    """Updates that are older than the stored row or than another update of the batch."""

    @property
    def changed(self) -> Ints:
        """The codes of the keys that updates and tombstones change, ascending."""
        return distinct(
            np.concatenate([self.codes[self.put], self.codes[self.deletes], self.known.rows.codes[self.gone]])
        )


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
        known = self._known(updates, removals, store, context)
        updates, unknown = self._said(updates, known) if self.spec.unsaid else (updates, 0)
        plan = self._planned(updates, known, context)
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

    def _said(self, updates: pa.Table, known: StoredKeys) -> tuple[pa.Table, int]:
        """Return updates with the values that they do not say, of the updates before them or of the stored row; and the number that nothing says."""
        missing = unsaid_of(self.spec, updates)
        if not missing.any():
            return updates, 0
        codes = known.codes[: len(updates)]
        rows = known.rows.where(~known.removed.rows & np.isin(known.rows.codes, codes))
        stored = self.spec.unpack(rows.packed(np.arange(len(rows))))
        own = [combined(updates[f"column_{i}"]) for i in range(len(stored))]
        deleted = combined(updates["deleted"]).to_numpy(zero_copy_only=False)
        found = said(
            [concatenated([old, new]) for old, new in zip(stored, own, strict=True)],
            np.concatenate([np.zeros((len(rows), len(own)), bool), missing]),
            np.concatenate([rows.codes, codes]),
            np.concatenate([np.full(len(rows), NO_WATERMARK), combined(updates["offset"]).to_numpy()]),
            np.concatenate([np.zeros(len(rows), bool), deleted]),
        )
        for number, column in enumerate(found.columns):
            at = updates.column_names.index(f"column_{number}")
            updates = updates.set_column(at, f"column_{number}", column.slice(len(rows)))
        return updates, int((found.still | found.gone).sum())

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

    def _planned(self, updates: pa.Table, known: StoredKeys, context: BatchContext) -> Plan:
        """Return which updates win: the latest one of each key, if it is later than the stored row or deletion."""
        rows, removed = known.rows, known.removed
        # Codes of the tombstones' keys come after those of the updates.
        codes, news = known.codes[: len(updates)], versions_of(self.spec, updates)
        if self.spec.by_offset:
            seen = np.concatenate([combined(updates["partition"]).to_numpy(), rows["partition"]])
            require_comparable(np.concatenate([codes, rows.codes]), seen)
        winners = latest(codes, news, by_offset=self.spec.by_offset)
        outcome = self._against_stored(codes[winners], news.take(winners), rows, known.markers, removed)
        won = winners[outcome > 0]
        put, deletes = won[~news.deleted[won]], won[news.deleted[won]]
        # A stored row goes if an update of its key has won, or if a tombstone names it.
        replaced = np.isin(rows.codes, codes[won])
        inserted = self._inserted(codes, rows, removed, context)
        return Plan(
            updates,
            known,
            codes,
            news,
            put,
            deletes,
            replaced | removed.rows,
            np.flatnonzero(removed.rows & ~replaced),
            inserted,
            put_rows(self.spec, updates, put, context, inserted[put]),
            unchanged=int((outcome == 0).sum()),
            superseded=len(updates) - len(winners) + int((outcome < 0).sum()),
        )

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

    def _known(self, updates: pa.Table, removals: pa.Table, store: RowStore, context: BatchContext) -> StoredKeys:
        """Return the stored rows of a batch's keys, and which of them tombstones delete."""
        given = pa.chunked_array([*updates["key"].chunks, *removals["key"].chunks], pa.string())
        codes, keys = sorted_codes(given)
        named = keys.cast(pa.binary())
        there, hidden = store.rows(named), self.spec.hidden_us(context)
        rows = there if hidden == NO_WATERMARK else there.where(there["written"] > hidden)
        markers = store.markers(named, np.delete(np.arange(len(keys)), rows.codes))
        return StoredKeys(codes, named, there, rows, markers, _removed(removals, codes[len(updates) :], rows))

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

    def _against_stored(
        self, codes: Ints, news: Versions, rows: Stored, markers: Stored, removed: TombstoneMatches
    ) -> Ints:
        """Return for the one update of each code 1 if it replaces the stored version, 0 if it equals it, -1 if it is older."""
        result = np.ones(len(codes), np.int64)
        for stored, is_row in ((rows, True), (markers, False)):
            # Codes of stored values are ascending and distinct: the place found has the code, or the key is not stored.
            at = np.searchsorted(stored.codes, codes)
            there = np.flatnonzero(at < len(stored))
            there = there[stored.codes[at[there]] == codes[there]]
            olds = _versions_of(stored, removed.rows if is_row else np.ones(len(stored), bool)).take(at[there])
            result[there] = compared(news.take(there), olds, by_offset=self.spec.by_offset)
        return result

    @staticmethod
    def _inserted(codes: Ints, rows: Stored, removed: TombstoneMatches, context: BatchContext) -> Ints:
        """Return for each code the clock at which its key got a row; for a key without one, the batch's clock."""
        there = rows.codes[~removed.rows]
        since = np.full(len(codes), written_us(context))
        at = np.searchsorted(there, codes)
        held = np.flatnonzero(at < len(there))
        held = held[there[at[held]] == codes[held]]
        since[held] = rows["inserted"][~removed.rows][at[held]]
        return since

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
        schema, n = changes_schema(self.spec, marks=False), len(change.codes)
        found: Mapping[str, pa.Array] = {
            "op": pa.repeat(change.op, n),
            "table_key": keys.take(pa.array(change.codes)).cast(pa.string()),
            "event_time": pa.array(change.head["time"].astype(np.int64)).cast(TIME),
            "revision": pa.array(change.head["revision"].astype(np.int64)),
            WRITTEN: pa.array(change.head["written"].astype(np.int64)).cast(TIME),
            **(
                {INSERTED: pa.array(change.head["inserted"].astype(np.int64)).cast(TIME)}
                if change.op == "upsert"
                else {}
            ),
            **{f"event_{name}": pa.array(change.head[name].astype(np.int64)) for name in ("partition", "offset")},
            "event_id": change.ids,
            CAUSE: pa.repeat(change.cause, n),
            **(dict(zip(self.spec.columns, change.columns, strict=True)) if change.columns is not None else {}),
        }
        arrays = [found[field.name] if field.name in found else pa.nulls(n, field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)


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


def _versions_of(stored: Stored, deleted: Bools) -> Versions:
    """Return stored values as versions; deleted ones have no packed columns."""

    def packed(at: Ints) -> pa.Array:
        return pc.if_else(pa.array(deleted[at]), b"", stored.packed(at))

    return Versions(stored["time"], stored["offset"], deleted, stored.ids, packed)


def _removed(removals: pa.Table, codes: Ints, rows: Stored) -> TombstoneMatches:
    """Return which rows tombstones delete: rows that are still at the named revision. If two name a row, the lower correction_id wins.

    An expiry deletes a row that still has the record's offset. It is stale only if its key has another row.
    """
    ids = combined(removals["correction_id"])
    revision, offset, partition = (
        pc.fill_null(combined(removals[name]), -1).to_numpy() for name in ("revision", "offset", "partition")
    )
    expiry = removals["offset"].is_valid().to_numpy()
    place = np.searchsorted(rows.codes, codes)
    there = place < len(rows)
    there[there] = rows.codes[place[there]] == codes[there]
    at = place[there]
    of_record = (rows["offset"][at] == offset[there]) & (rows["partition"][at] == partition[there])
    fits = there.copy()
    fits[there] = np.where(expiry[there], of_record, rows["revision"][at] == revision[there])
    # In order of the ids, np.unique's first index of a row is the lowest id that names it.
    order = pc.sort_indices(ids).to_numpy().astype(np.int64)
    order = order[fits[order]]
    taken, first = np.unique(place[order], return_index=True)
    gone = np.zeros(len(rows), bool)
    gone[taken] = True
    left = np.ones(len(ids), bool)
    left[order[first]] = False
    left[expiry & (fits | ~there)] = False
    return TombstoneMatches(gone, frozenset(ids.filter(pa.array(left)).to_pylist()))
