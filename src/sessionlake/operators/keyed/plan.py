"""Which updates of a batch win: the stored rows of its keys, the tombstones that name them, and the latest update of each key against both."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, concatenated, distinct
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext
from sessionlake.operators.keyed.expiring import put_rows
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import written_us
from sessionlake.operators.keyed.mapper import unsaid_of, versions_of
from sessionlake.operators.keyed.order import Versions, compared, latest, require_comparable
from sessionlake.operators.keyed.spec import KeyedSpec
from sessionlake.operators.keyed.unavailable import said
from sessionlake.store.rows import RowStore, Stored
from sessionlake.stream.watermark import NO_WATERMARK


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


def stored_keys(
    spec: KeyedSpec, updates: pa.Table, removals: pa.Table, store: RowStore, context: BatchContext
) -> StoredKeys:
    """Return the stored rows of a batch's keys, and which of them tombstones delete."""
    given = pa.chunked_array([*updates["key"].chunks, *removals["key"].chunks], pa.string())
    codes, keys = sorted_codes(given)
    named = keys.cast(pa.binary())
    there, hidden = store.rows(named), spec.hidden_us(context)
    rows = there if hidden == NO_WATERMARK else there.where(there["written"] > hidden)
    markers = store.markers(named, np.delete(np.arange(len(keys)), rows.codes))
    return StoredKeys(codes, named, there, rows, markers, matched(removals, codes[len(updates) :], rows))


def completed(spec: KeyedSpec, updates: pa.Table, known: StoredKeys) -> tuple[pa.Table, int]:
    """Return updates with the values that they do not say, of the updates before them or of the stored row; and the number that nothing says."""
    missing = unsaid_of(spec, updates)
    if not missing.any():
        return updates, 0
    codes = known.codes[: len(updates)]
    rows = known.rows.where(~known.removed.rows & np.isin(known.rows.codes, codes))
    stored = spec.unpack(rows.packed(np.arange(len(rows))))
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


def planned(spec: KeyedSpec, updates: pa.Table, known: StoredKeys, context: BatchContext) -> Plan:
    """Return which updates win: the latest one of each key, if it is later than the stored row or deletion."""
    rows, removed = known.rows, known.removed
    # Codes of the tombstones' keys come after those of the updates.
    codes, news = known.codes[: len(updates)], versions_of(spec, updates)
    if spec.by_offset:
        seen = np.concatenate([combined(updates["partition"]).to_numpy(), rows["partition"]])
        require_comparable(np.concatenate([codes, rows.codes]), seen)
    winners = latest(codes, news, by_offset=spec.by_offset)
    outcome = against_stored(codes[winners], news.take(winners), rows, known.markers, removed, by_offset=spec.by_offset)
    won = winners[outcome > 0]
    put, deletes = won[~news.deleted[won]], won[news.deleted[won]]
    # A stored row goes if an update of its key has won, or if a tombstone names it.
    replaced = np.isin(rows.codes, codes[won])
    inserted = inserted_since(codes, rows, removed, context)
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
        put_rows(spec, updates, put, context, inserted[put]),
        unchanged=int((outcome == 0).sum()),
        superseded=len(updates) - len(winners) + int((outcome < 0).sum()),
    )


def against_stored(
    codes: Ints, news: Versions, rows: Stored, markers: Stored, removed: TombstoneMatches, *, by_offset: bool
) -> Ints:
    """Return for the one update of each code 1 if it replaces the stored version, 0 if it equals it, -1 if it is older."""
    result = np.ones(len(codes), np.int64)
    for stored, is_row in ((rows, True), (markers, False)):
        # Codes of stored values are ascending and distinct: the place found has the code, or the key is not stored.
        at = np.searchsorted(stored.codes, codes)
        there = np.flatnonzero(at < len(stored))
        there = there[stored.codes[at[there]] == codes[there]]
        olds = _versions_of(stored, removed.rows if is_row else np.ones(len(stored), bool)).take(at[there])
        result[there] = compared(news.take(there), olds, by_offset=by_offset)
    return result


def inserted_since(codes: Ints, rows: Stored, removed: TombstoneMatches, context: BatchContext) -> Ints:
    """Return for each code the clock at which its key got a row; for a key without one, the batch's clock."""
    there = rows.codes[~removed.rows]
    since = np.full(len(codes), written_us(context))
    at = np.searchsorted(there, codes)
    held = np.flatnonzero(at < len(there))
    held = held[there[at[held]] == codes[held]]
    since[held] = rows["inserted"][~removed.rows][at[held]]
    return since


def _versions_of(stored: Stored, deleted: Bools) -> Versions:
    """Return stored values as versions; deleted ones have no packed columns."""

    def packed(at: Ints) -> pa.Array:
        return pc.if_else(pa.array(deleted[at]), b"", stored.packed(at))

    return Versions(stored["time"], stored["offset"], deleted, stored.ids, packed)


def matched(removals: pa.Table, codes: Ints, rows: Stored) -> TombstoneMatches:
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
