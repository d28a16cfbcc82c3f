"""After the shuffle: one shard's rows against its store (docs/rules.md, rules 2 to 7 and 260 to 265), as the engine's function of rows and store."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials, written_values
from sessionlake.columnar.arrays import Bools, Ints, combined, is_among
from sessionlake.columnar.records import UNTIL, Records, concat
from sessionlake.engine.operator import LOOKUP, BatchContext, Inputs, ShardResult
from sessionlake.operators.sessions.arrivals import Parts, bring_together, earliest_ends
from sessionlake.operators.sessions.by_policy import ByPolicy, unmarked
from sessionlake.operators.sessions.control import REMOVE, TOMBSTONES
from sessionlake.operators.sessions.expiring import expired_sessions, expired_tombstones
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.mapper import EMITTED
from sessionlake.operators.sessions.quarantine import crossing
from sessionlake.operators.sessions.rows import deleted_rows, rows_of, session_rows, stored_deletes
from sessionlake.operators.sessions.rules import EVENT, PUT, RESTATED, Verdict, apply_batch
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.table import STORED_ROWS
from sessionlake.operators.sessions.windows import Bounds, SessionWindows
from sessionlake.operators.shared.cleanups.schedule import clock_of
from sessionlake.operators.shared.corrections.outcomes import outcomes_of, stale_letters
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.stream.control import OUTCOMES
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK
from sessionlake.warehouse.schemas import QUARANTINED

COLD_SCHEMA = pa.schema([("key", pa.string()), ("from_us", pa.int64()), ("to_us", pa.int64())])
"""Which cold sessions a shard needs: of a key, those with end >= from_us and start <= to_us."""


def apply_shard(
    spec: SessionizerSpec, bounds: Bounds, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext
) -> ShardResult:
    """Compute a shard's changes, late events and store writes; the store is only read."""
    result, clock_us = _of_batch(spec, bounds, inputs, store, context), clock_of(inputs)
    if spec.ttl is None or clock_us is None or result.needs is not None:
        return result
    found = expired_sessions(spec, spec.ttl, bounds, clock_us, store, result.writes, context)
    n = len(found.sessions)
    told = {**result.stats, **found.stats, "deletes": result.stats.get("deletes", 0) + n}
    if not n:
        return replace(result, stats=told, cursor=found.cursor)
    # A session that has closed was sent by then: its row has its start.
    changes = pa.concat_tables([result.changes, deleted_rows(spec, found.keys, found.sessions, context)])
    side = {**result.side, TOMBSTONES: expired_tombstones(found.keys, found.sessions)}
    if spec.emit is not None:
        gone = stored_deletes(spec, found.keys, found.sessions, context.batch_id)
        side[STORED_ROWS] = pa.concat_tables([*([side[STORED_ROWS]] if STORED_ROWS in side else []), gone])
    replaced = result.replaced
    if replaced is not None:
        replaced = pa.concat_tables([replaced, rows_of(spec, found.keys, found.sessions, context)])
    return ShardResult(changes, found.writes, side, told, found.cursor, replaced=replaced)


def _of_batch(
    spec: SessionizerSpec, bounds: Bounds, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext
) -> ShardResult:
    """Compute the changes by events and corrections."""
    emitted = _emitted(spec, inputs, context)
    policy = None if spec.emit is None else ByPolicy.of(spec, spec.emit, inputs, store, context)
    parts = bring_together(spec, inputs, None if policy is None else policy.due.entries)
    if parts is None:
        none = spec.changes_schema.empty_table() if context.keeps_replaced else None
        return ShardResult(emitted, None, stats={"emitted": emitted.num_rows}, replaced=none)

    found, found_segment, physical = _stored(spec, bounds, parts, inputs, store)
    needs = None if context.handed_in else _cold_needs(spec, bounds, parts)
    if needs is not None and needs.num_rows:
        return ShardResult(emitted, None, needs=needs)
    marks, stored = (None, found) if policy is None else unmarked(found)
    verdict = apply_batch(
        spec.aggregates,
        spec.windows,
        bounds,
        context.batch_id,
        parts.arrivals,
        stored,
        parts.removals,
        finals_last=spec.finals_last,
    )
    side, stats = _sides(spec, bounds, inputs, parts, stored, verdict)
    stats = {"emitted": emitted.num_rows, **stats}
    if policy is None or marks is None:
        changes = _changes(spec, parts.keys, verdict, stored, context)
        writes = _writes(spec.windows, parts, bounds, found, found_segment, physical, verdict, store)
    else:
        sent = policy.sent(parts, stored, marks, verdict)
        changes, stored_rows = sent.changes, sent.stored
        if stored_rows.num_rows:
            side[STORED_ROWS] = stored_rows
        stats |= sent.stats
        writes = _writes(spec.windows, parts, bounds, found, found_segment, physical, sent.verdict, store)
        writes = pa.concat_tables([writes, *sent.lists])
    replaced = None
    if context.keeps_replaced:
        replaced = rows_of(spec, parts.keys, stored.take(np.flatnonzero(verdict.gone)), context)
    return ShardResult(pa.concat_tables([emitted, changes]), writes, side, stats, replaced=replaced)


def _sides(
    spec: SessionizerSpec, bounds: Bounds, inputs: Inputs, parts: Parts, stored: Records, verdict: Verdict
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Return a batch's late events, dead letters and outcomes, and its numbers."""
    side: dict[str, pa.Table] = {}
    # Arrivals are merged parts, then corrections, then the events that travel alone: only these can be late.
    alone_until = parts.alone_from + (0 if parts.alone is None else parts.alone.num_rows)
    late = verdict.late[parts.alone_from : alone_until]
    if parts.alone is not None and late.any():
        too_late = parts.alone.filter(pa.array(late))
        too_late = too_late.select([name for name in too_late.column_names if name != UNTIL])
        side[LATE] = too_late.append_column("close_us", pa.array(np.full(too_late.num_rows, bounds.close_us)))
    if verdict.stale:
        side[DEAD] = _stale(inputs[REMOVE], verdict.stale)
    if OUTCOMES in inputs:
        side[OUTCOMES] = outcomes_of(inputs[OUTCOMES], verdict.stale)
    is_event = parts.arrivals.kind == EVENT
    accepted = is_event & ~verdict.late
    stats = {
        "accepted": int(parts.arrivals.count[accepted].sum()),
        "late": int(late.sum()),
        "applied": len(verdict.applied) + int((parts.arrivals.kind == RESTATED).sum()),
        "stale": len(verdict.stale),
        "upserts": len(verdict.changed),
        "deletes": len(verdict.deleted),
        MAX_TIME: int(parts.arrivals.end[accepted].max(initial=NO_WATERMARK)),
    }
    if spec.keeping is not None:
        stats |= spec.keeping.counted(parts.arrivals.start[accepted], parts.arrivals.count[accepted])
    if spec.quarantine is not None:
        stats[QUARANTINED] = crossing(spec.quarantine, verdict.changed, stored.take(np.flatnonzero(verdict.gone)))
    return side, stats


def _stale(removals: pa.Table, stale: frozenset[str]) -> pa.Table:
    """Return dead letters of stale corrections, one each: a replacement may remove several sessions."""
    # By several threads the rows come in another order each time, and a batch that is run again must give the same.
    named = removals.group_by("correction_id", use_threads=False).aggregate([("key", "min"), ("start_us", "min")])
    return stale_letters(named.rename_columns({"key_min": "key", "start_us_min": "start_us"}), "replace", stale)


def _stored(
    spec: SessionizerSpec, bounds: Bounds, parts: Parts, inputs: Inputs, store: SegmentedSessionStore
) -> tuple[Records, Ints, Bools]:
    """Return warm stored sessions and handed-in cold ones, each one's segment, and whether it is in the store."""
    # Ascending keys come as ascending bytes: Arrow sorts text by its UTF-8 bytes.
    found = store.find_many(parts.keys.cast(pa.binary()), earliest_ends(spec, parts))
    stored = found.sessions
    segment = found.segment
    warm = until_of(spec.windows, stored) >= bounds.expired_us
    if not warm.all():
        stored, segment = stored.take(np.flatnonzero(warm)), segment[warm]
    physical = len(stored)
    if LOOKUP in inputs:
        cold = _cold(inputs[LOOKUP], parts.keys)
        stored = concat([stored, cold])
        segment = np.concatenate([segment, cold.end // store.interval_us])
    return stored, segment, np.arange(len(stored)) < physical


def _cold(table: pa.Table, keys: pa.Array) -> Records:
    codes = pc.index_in(combined(table["key"]), value_set=keys).to_numpy().astype(np.int64)
    return Records.from_table(codes, table)


def _cold_needs(spec: SessionizerSpec, bounds: Bounds, parts: Parts) -> pa.Table:
    """Return the stored sessions below the horizon that replacements need: those that they name, and neighbours of those that they put."""
    gap = spec.windows.widest_us
    put = parts.arrivals.kind == PUT
    codes = np.concatenate([parts.removals.codes, parts.arrivals.codes[put]])
    low = np.concatenate([parts.removals.start, parts.arrivals.start[put] - gap])
    high = np.concatenate([parts.removals.start, parts.arrivals.until[put]])
    # A session with a gap below the widest, or one that is cut, may be cold though it ends after the oldest end.
    below = low < (bounds.expired_us if spec.windows.limited else bounds.oldest_end_us)
    return pa.Table.from_arrays(
        [parts.keys.take(pa.array(codes[below])), pa.array(low[below]), pa.array(high[below])], schema=COLD_SCHEMA
    )


def _emitted(spec: SessionizerSpec, inputs: Inputs, context: BatchContext) -> pa.Table:
    if EMITTED not in inputs:
        return spec.changes_schema.empty_table()
    p = Partials.from_table(inputs[EMITTED])
    state = StateCodec(spec.aggregates).encode(p.states, len(p))
    rows = Records(np.arange(len(p)), p.start, p.end, p.count, np.full(len(p), context.batch_id), state)
    return session_rows(spec, "emit", p.keys, rows, context, written_values(spec.aggregates, p.states))


def _changes(
    spec: SessionizerSpec, keys: pa.Array, verdict: Verdict, stored: Records, context: BatchContext
) -> pa.Table:
    values = written_values(spec.aggregates, verdict.states)
    upserts = session_rows(spec, "upsert", keys, verdict.changed, context, values)
    if not len(verdict.deleted):
        return upserts
    return pa.concat_tables([upserts, deleted_rows(spec, keys, stored.take(verdict.deleted), context)])


def _writes(
    windows: SessionWindows,
    parts: Parts,
    bounds: Bounds,
    stored: Records,
    segment: Ints,
    physical: Bools,
    verdict: Verdict,
    store: SegmentedSessionStore,
) -> pa.Table:
    """Return the store's writes: the whole new content of every (segment, key) that a change touches."""
    kept = np.flatnonzero(~verdict.gone & physical)
    gone = np.flatnonzero(verdict.gone & physical)
    changed = verdict.changed
    warm = np.flatnonzero(until_of(windows, changed) >= bounds.expired_us)
    touched_owner = np.concatenate([stored.codes[gone], changed.codes[warm]])
    touched_segment = np.concatenate([segment[gone], changed.end[warm] // store.interval_us])
    if len(kept):
        kept = kept[_among(segment[kept], stored.codes[kept], touched_segment, touched_owner)]
    # Not all stored states: together with the changed ones they may be more than one Arrow array holds.
    both = concat([stored.take(kept), changed])
    rows = np.concatenate([np.arange(len(kept)), len(kept) + warm])
    return store.writes(parts.keys, both, touched_owner, touched_segment, rows)


def _among(segment: Ints, owner: Ints, touched_segment: Ints, touched_owner: Ints) -> Bools:
    """Say which (segment, owner) pairs are among the touched ones."""
    low = int(min(segment.min(), touched_segment.min(initial=segment.min())))
    owners = int(max(owner.max(), touched_owner.max(initial=0))) + 1
    return is_among((segment - low) * owners + owner, (touched_segment - low) * owners + touched_owner)
