"""One shard's part of a batch of a keyed table: corrections first, then the latest update of each key against what is stored."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, distinct, sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.operators.cleanups.schedule import CLEANUP
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
from sessionlake.operators.keyed.expiry.pattern import Found
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.mapper import UPDATES, packed_of, update_schema, versions_of
from sessionlake.operators.keyed.order import Versions, compared, latest, require_comparable
from sessionlake.operators.keyed.spec import MAX_DELETED, TOMBSTONE, UPDATE, KeyedSpec, changes_schema
from sessionlake.operators.keyed.ttl import LIVE_CHANGE, MAX_PUT, written_us
from sessionlake.operators.windows.control import stale_letters, told_outcomes
from sessionlake.sources.record_columns import EXPIRY, TOMBSTONE_KIND
from sessionlake.store.rows import HEAD, RowStore, Stored, Values
from sessionlake.stream.control import OUTCOMES
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.changelog import CAUSE, INSERTED, TTL, WRITTEN
from sessionlake.warehouse.schemas import TIME

RESTORED = {
    **{name: f"{name}_us" for name in ("time", "written", "inserted")},
    **{name: name for name in ("offset", "partition", "revision")},
}
"""Fields of heads, and the columns of restored rows that they have."""
PLACES = {"time": "time_us", "offset": "offset", "partition": "partition"}
"""Fields of heads, and the columns of updates that they have."""


@dataclass(frozen=True)
class Removed:
    """What becomes of a shard's tombstones."""

    rows: Bools
    """Per stored row: it goes."""
    stale: frozenset[str]
    """The ids of those that delete none."""


@dataclass(frozen=True)
class Known:
    """The keys of a batch's updates, then of its tombstones, and what the store has of them."""

    codes: Ints
    named: pa.Array
    """The distinct keys, bytes, ascending, by their codes."""
    there: Stored
    rows: Stored
    """Those that are not hidden."""
    markers: Stored
    removed: Removed


@dataclass(frozen=True)
class Change:
    """What becomes of some keys, in columns: the rows of the changelog of one kind, and what the store is to have."""

    op: str
    cause: str
    codes: Ints
    head: "np.ndarray[tuple[int], np.dtype[np.void]]"
    ids: pa.Array
    columns: list[pa.Array] | None = None
    """Of upserts."""


@dataclass(frozen=True)
class KeyedShard:
    """Computes shards of one table; a function of its arguments."""

    spec: KeyedSpec

    def computed(self, inputs: Inputs, store: RowStore, context: BatchContext) -> ShardResult:
        """Return what becomes of a shard: the rows that its corrections delete, and those that its updates change."""
        updates = inputs.get(UPDATES, update_schema(self.spec).empty_table())
        removals = inputs.get(REMOVE, REMOVE_SCHEMA.empty_table())
        known = self._known(updates, removals, store, context)
        codes, rows, removed = known.codes, known.rows, known.removed

        news = versions_of(self.spec, updates)
        if self.spec.by_offset:
            seen = np.concatenate([combined(updates["partition"]).to_numpy(), rows["partition"]])
            require_comparable(np.concatenate([codes[: len(updates)], rows.codes]), seen)
        winners = latest(codes[: len(updates)], news, by_offset=self.spec.by_offset)
        outcome = self._against_stored(codes[winners], news.take(winners), rows, known.markers, removed)
        won = winners[outcome > 0]
        put, deletes = (won[news.deleted[won] == which] for which in (False, True))
        gone = np.isin(rows.codes, codes[won]) | removed.rows
        changed = distinct(np.concatenate([codes[won], rows.codes[gone]]))
        held = int(np.isin(known.there.codes, changed).sum())
        since = self._inserted(codes, rows, removed, context)
        new = put_rows(self.spec, updates, put, context, since[put])
        found = taken_away(self.spec, inputs, store, context, new, known.named.take(pa.array(changed)), held)
        upserts, at_once = put[~found.at_once], put[found.at_once]
        if self.spec.by_offset:
            # Nothing that comes later is older, so that no deletion need be known: that of an absent key is none.
            deletes, at_once = (some[np.isin(codes[some], rows.codes)] for some in (deletes, at_once))
        lone = np.flatnonzero(removed.rows & ~np.isin(rows.codes, codes[won]))
        cause = TTL if self.spec.ttl is None else self.spec.ttl.pattern.cause
        changes = [
            self._updated("upsert", updates, codes, upserts, context, inserted=since[upserts]),
            self._updated("delete", updates, codes, deletes, context),
            self._updated("delete", updates, codes, at_once, context, cause),
            self._taken_away(rows, lone, context),
        ]
        told_of = np.flatnonzero(found.rows["written"] > self.spec.hidden_us(context))
        expired = self._taken_away(found.rows, told_of, context, cause)
        side, told = _told(inputs, removals, removed)
        counts = {
            "changed": len(put) + len(deletes),
            "unchanged": int((outcome == 0).sum()) + len(won) - len(put) - len(deletes),
            "superseded": len(updates) - len(winners) + int((outcome < 0).sum()),
            "upserts": len(upserts),
            "deletes": len(deletes) + len(at_once) + len(lone) + len(told_of),
            LIVE_CHANGE: len(upserts) - int(gone.sum()) - len(told_of),
            **told,
            **counts_of(found, len(told_of), self.spec, inputs, new),
            **({MAX_PUT: written_us(context)} if self.spec.row_interval_us is not None and len(upserts) else {}),
        }
        if not self.spec.by_offset:
            times = (news.time[deletes], news.time[at_once], rows["time"][removed.rows], expired.head["time"])
            last = np.concatenate(times)
            counts |= {MAX_DELETED: int(last.max())} if len(last) else {}
        written = [
            self._writes(store, known, updates, upserts, changes),
            self._writes_of_expired(store, found.keys, found.rows, expired),
        ]
        if self.spec.index is not None:
            kept_new = new.take(np.flatnonzero(~found.at_once))
            written.append(self._writes_of_index(store, known, kept_new, changes, found))
        writes = _by_segment(written)
        kept = len(writes) > 0 or (CLEANUP in inputs and bool(store.hidden_segments(self.spec.hidden_us(context))))
        table = pa.concat_tables(
            [*(self._table(known.named, change) for change in changes), self._table(found.keys, expired)]
        )
        return ShardResult(table, writes if kept else None, side, counts, found.cursor)

    def _known(self, updates: pa.Table, removals: pa.Table, store: RowStore, context: BatchContext) -> Known:
        """Return what the store has of a batch's keys, and what becomes of it by tombstones."""
        given = pa.chunked_array([*updates["key"].chunks, *removals["key"].chunks], pa.string())
        codes, keys = sorted_codes(given)
        named = keys.cast(pa.binary())
        there, hidden = store.rows(named), self.spec.hidden_us(context)
        rows = there if hidden == NO_WATERMARK else there.where(there["written"] > hidden)
        markers = store.markers(named, np.delete(np.arange(len(keys)), rows.codes))
        return Known(codes, named, there, rows, markers, _removed(removals, codes[len(updates) :], rows))

    def restored(self, table: pa.Table, store: RowStore) -> pa.Table:
        """Return the writes of handed-in rows and markers of distinct keys, a table of `stored_schema`."""
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

    def _against_stored(self, codes: Ints, news: Versions, rows: Stored, markers: Stored, removed: Removed) -> Ints:
        """Return for the one update of each code 1 where it takes the place of what is there, 0 where it is that, else -1."""
        result = np.ones(len(codes), np.int64)
        for stored, is_row in ((rows, True), (markers, False)):
            at = np.searchsorted(stored.codes, codes)
            there = np.flatnonzero(at < len(stored))
            there = there[stored.codes[at[there]] == codes[there]]
            olds = _versions_of(stored, removed.rows if is_row else np.ones(len(stored), bool)).take(at[there])
            result[there] = compared(news.take(there), olds, by_offset=self.spec.by_offset)
        return result

    @staticmethod
    def _inserted(codes: Ints, rows: Stored, removed: Removed, context: BatchContext) -> Ints:
        """Return for each of some codes when its key got a row: of those that have none, now."""
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
        self, store: RowStore, known: Known, updates: pa.Table, upserts: Ints, changes: list[Change]
    ) -> pa.Table:
        rows, markers, (put, *deleted) = known.there, known.markers, changes
        gone = np.concatenate([change.codes for change in deleted])
        order = np.argsort(gone)
        head = np.concatenate([change.head for change in deleted])[order]
        ids = pa.concat_arrays([change.ids for change in deleted]).take(pa.array(order))
        gone = gone[order]
        kept = _markers(gone, head, ids) if not self.spec.by_offset else _markers(gone[:0], head[:0], ids[:0])
        changed = np.isin(markers.codes, np.concatenate([put.codes, gone]))
        freed = markers.where(changed)
        values = Values(put.codes, put.head, put.ids, packed_of(self.spec, updates, upserts))
        replaced = rows.where(np.isin(rows.codes, np.concatenate([put.codes, gone])))
        return store.writes(known.named, values, replaced, kept, freed)

    def _writes_of_index(
        self, store: RowStore, known: Known, put: TableRows, changes: list[Change], found: Found
    ) -> pa.Table:
        there = known.there
        was = there.where(np.isin(there.codes, np.concatenate([change.codes for change in changes])))
        return indexed(self.spec, store, put, stored_rows(self.spec, known.named.take(pa.array(was.codes)), was), found)

    def _writes_of_expired(self, store: RowStore, keys: pa.Array, rows: Stored, expired: Change) -> pa.Table:
        """Return the writes that remove rows which no update names, and remember that they are gone."""
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


def _told(inputs: Inputs, removals: pa.Table, removed: Removed) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Return the rows of side tables that tell what became of tombstones, and how many took effect."""
    if not removals.num_rows:
        return {}, {}
    expiries = removals["offset"].is_valid()
    side = {
        DEAD: pa.concat_tables(
            stale_letters(removals.filter(which), kind, removed.stale)
            for which, kind in ((pc.invert(expiries), TOMBSTONE_KIND), (expiries, EXPIRY))
        )
    }
    if OUTCOMES in inputs:
        side[OUTCOMES] = told_outcomes(inputs[OUTCOMES], removed.stale)
    return side, {"applied": removals.num_rows - len(removed.stale), "stale": len(removed.stale)}


def _by_segment(writes: list[pa.Table]) -> pa.Table:
    """Return writes, each ascending by segment and of other keys than the others, as one table ascending by segment."""
    some = [table for table in writes if len(table)] or writes[:1]
    table = pa.concat_tables(some)
    segment = table["segment"].to_numpy()
    # Those of an index come after all others, and are as many: in most batches nothing need be moved.
    return (
        table if bool(np.all(segment[1:] >= segment[:-1])) else table.take(pa.array(np.argsort(segment, kind="stable")))
    )


def _markers(codes: Ints, head: "np.ndarray[tuple[int], np.dtype[np.void]]", ids: pa.Array) -> Values:
    return Values(codes, head, ids, pa.array([b""] * len(codes), pa.binary()))


def _versions_of(stored: Stored, deleted: Bools) -> Versions:
    """Return stored values as versions; of those that are deleted nothing is packed."""

    def packed(at: Ints) -> pa.Array:
        return pc.if_else(pa.array(deleted[at]), b"", stored.packed(at))

    return Versions(stored["time"], stored["offset"], deleted, stored.ids, packed)


def _removed(removals: pa.Table, codes: Ints, rows: Stored) -> Removed:
    """Return which rows tombstones delete: those still at the revision; of two that name one, the lower correction_id has it.

    Expiries delete those still of the record's offset. They are stale only where their key has another row.
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
    order = pc.sort_indices(ids).to_numpy().astype(np.int64)
    order = order[fits[order]]
    taken, first = np.unique(place[order], return_index=True)
    gone = np.zeros(len(rows), bool)
    gone[taken] = True
    left = np.ones(len(ids), bool)
    left[order[first]] = False
    left[expiry & (fits | ~there)] = False
    return Removed(gone, frozenset(ids.filter(pa.array(left)).to_pylist()))
