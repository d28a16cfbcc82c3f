"""After the shuffle: one shard's rows against its store (rules 2 to 6), as the engine's function of rows and store."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import States
from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.jobs.sessionizer.mapper import ARCHIVED, DEAD_SCHEMA, TOMBSTONES
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.operators.sessions.arrivals import Parts, bring_together, earliest_ends
from sessionlake.operators.sessions.rules import EVENT, PUT, RESTATED, Stored, Verdict, apply_batch
from sessionlake.operators.sessions.windows import NO_WATERMARK, Bounds
from sessionlake.schemas import TIME
from sessionlake.sessions.partials import Partials, StateCodec
from sessionlake.store.layout import Sessions
from sessionlake.store.segmented import SegmentedSessionStore

STALE = "stale"
"""Reason of a replacement that named a session which is gone or at another revision."""
COLD_SCHEMA = pa.schema([("key", pa.string()), ("from_us", pa.int64()), ("to_us", pa.int64())])
"""Which cold sessions a shard needs: of a key, those with end >= from_us and start <= to_us."""


def apply_shard(
    spec: SessionizerSpec, bounds: Bounds, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext
) -> ShardResult:
    """Compute a shard's changes, late events and store writes; the store is only read."""
    stats = _tally(inputs)
    side = {kind: inputs[kind] for kind in ("dead", ARCHIVED, TOMBSTONES) if kind in inputs}
    emitted = _emitted(spec, inputs, context.batch_id)
    stats["emitted"] = emitted.num_rows
    parts = bring_together(spec, inputs)
    if parts is None:
        return ShardResult(emitted, None, side, {**stats, "dead": _rows(side, "dead")})

    stored, found_segment, physical = _stored(spec, bounds, parts, inputs, store)
    needs = None if context.handed_in else _cold_needs(spec, bounds, parts)
    if needs is not None and needs.num_rows:
        return ShardResult(emitted, None, needs=needs)
    verdict = apply_batch(
        spec.aggregates, spec.windows.gap_us, bounds, context.batch_id, parts.arrivals, stored, parts.removals
    )

    late = verdict.late[parts.alone_from :][: 0 if parts.alone is None else parts.alone.num_rows]
    if parts.alone is not None and late.any():
        too_late = parts.alone.filter(pa.array(late))
        side["late"] = too_late.append_column("close_us", pa.array(np.full(too_late.num_rows, bounds.close_us)))
    if verdict.stale:
        side["dead"] = pa.concat_tables(
            [*([side["dead"]] if "dead" in side else []), _stale(inputs["remove"], verdict.stale)]
        )
    is_event = parts.arrivals.kind == EVENT
    accepted = is_event & ~verdict.late
    stats |= {
        "accepted": int(parts.arrivals.count[accepted].sum()),
        "late": int(late.sum()),
        "dead": _rows(side, "dead"),
        "applied": stats.get("applied", 0) + len(verdict.applied) + int((parts.arrivals.kind == RESTATED).sum()),
        "stale": len(verdict.stale),
        "upserts": len(verdict.changed),
        "deletes": len(verdict.deleted),
        "max_time": int(parts.arrivals.end[accepted].max(initial=NO_WATERMARK)),
    }
    changes = _changes(spec, parts.keys, verdict, stored, context.batch_id)
    writes = _writes(parts, bounds, stored, found_segment, physical, verdict, store)
    return ShardResult(pa.concat_tables([emitted, changes]), writes, side, stats)


def _stale(removals: pa.Table, stale: frozenset[str]) -> pa.Table:
    """Return dead letters of stale corrections, one each, so that jobs can tell which of theirs took effect."""
    named = removals.group_by("correction_id").aggregate([("key", "min"), ("start_us", "min")])
    named = named.filter(pc.is_in(named["correction_id"], value_set=pa.array(sorted(stale), pa.string())))
    n = named.num_rows
    arrays = [
        pa.repeat(STALE, n),
        pa.repeat("replace", n),
        named["key_min"],
        named["start_us_min"].cast(TIME),
        pa.nulls(n, pa.string()),
        named["correction_id"],
    ]
    return pa.Table.from_arrays(arrays, schema=DEAD_SCHEMA)


def _rows(side: dict[str, pa.Table], name: str) -> int:
    """Count rows of events; corrections among the dead are counted apart."""
    return int(pc.sum(pc.equal(side[name]["kind"], "event")).as_py() or 0) if name in side else 0


def _tally(inputs: Inputs) -> dict[str, int]:
    stats: dict[str, int] = {}
    if "tally" in inputs:
        for name, value in zip(inputs["tally"]["name"].to_pylist(), inputs["tally"]["value"].to_pylist(), strict=True):
            stats[name] = stats.get(name, 0) + value
    return stats


def _stored(
    spec: SessionizerSpec, bounds: Bounds, parts: Parts, inputs: Inputs, store: SegmentedSessionStore
) -> tuple[Stored, Ints, Bools]:
    """Return warm stored sessions and handed-in cold ones, each one's segment, and whether it is in the store."""
    # Ascending keys come as ascending bytes: Arrow sorts text by its UTF-8 bytes.
    found = store.find_many(parts.keys.cast(pa.binary()), earliest_ends(spec, parts))
    s = found.sessions
    stored = Stored(s.owner, s.start, s.end, s.count, s.revision, s.state)
    segment = found.segment
    warm = s.end >= bounds.horizon_us
    if not warm.all():
        stored, segment = stored.take(np.flatnonzero(warm)), segment[warm]
    physical = len(stored)
    if "cold" in inputs:
        cold = _cold(inputs["cold"], parts.keys)
        stored = _both(stored, cold)
        segment = np.concatenate([segment, cold.end // store.interval_us])
    return stored, segment, np.arange(len(stored)) < physical


def _cold(table: pa.Table, keys: pa.Array) -> Stored:
    codes = pc.index_in(combined(table["key"]), value_set=keys).to_numpy().astype(np.int64)
    return Stored.from_table(codes, table)


def _both(a: Stored, b: Stored) -> Stored:
    names = ("codes", "start", "end", "count", "revision")
    codes, start, end, count, revision = (np.concatenate([getattr(a, name), getattr(b, name)]) for name in names)
    return Stored(codes, start, end, count, revision, pa.concat_arrays([a.state, b.state]))


def _cold_needs(spec: SessionizerSpec, bounds: Bounds, parts: Parts) -> pa.Table:
    """Return what replacements may meet below the horizon: the sessions they name and the neighbours of what they put."""
    gap = spec.windows.gap_us
    put = parts.arrivals.kind == PUT
    codes = np.concatenate([parts.removals.codes, parts.arrivals.codes[put]])
    low = np.concatenate([parts.removals.start, parts.arrivals.start[put] - gap])
    high = np.concatenate([parts.removals.start, parts.arrivals.end[put] + gap])
    below = low < bounds.horizon_us
    return pa.Table.from_arrays(
        [parts.keys.take(pa.array(codes[below])), pa.array(low[below]), pa.array(high[below])], schema=COLD_SCHEMA
    )


def _emitted(spec: SessionizerSpec, inputs: Inputs, batch_id: int) -> pa.Table:
    if "emit" not in inputs:
        return spec.changes_schema.empty_table()
    p = Partials.from_table(inputs["emit"])
    state = StateCodec(spec.aggregates).encode(p.states, len(p))
    return _rows_table(spec, "emit", p.keys, p.start, p.end, p.count, batch_id, _values(spec, p.states), state)


def _changes(spec: SessionizerSpec, keys: pa.Array, verdict: Verdict, stored: Stored, batch_id: int) -> pa.Table:
    c, gone = verdict.changed, verdict.deleted
    upserts = _rows_table(
        spec,
        "upsert",
        keys.take(pa.array(c.codes)),
        c.start,
        c.end,
        c.count,
        batch_id,
        _values(spec, verdict.states),
        c.state,
    )
    if not len(gone):
        return upserts
    nulls = [pa.nulls(len(gone), type_) for type_ in spec.value_types.values()]
    state = pa.nulls(len(gone), pa.binary())
    zero = np.zeros(len(gone), np.int64)
    deletes = _rows_table(
        spec,
        "delete",
        keys.take(pa.array(stored.codes[gone])),
        stored.start[gone],
        stored.end[gone],
        zero,
        batch_id,
        nulls,
        state,
    )
    return pa.concat_tables([upserts, deletes])


def _values(spec: SessionizerSpec, states: States) -> list[pa.Array]:
    values, at = [], 0
    for aggregate in spec.aggregates:
        width = len(aggregate.state)
        values.append(aggregate.value(states[at : at + width]).cast(aggregate.value_type))
        at += width
    return values


def _rows_table(
    spec: SessionizerSpec,
    op: str,
    keys: pa.Array,
    start: Ints,
    end: Ints,
    count: Ints,
    batch_id: int,
    values: Sequence[pa.Array],
    state: pa.Array,
) -> pa.Table:
    n = len(keys)
    arrays = [
        pa.repeat(op, n),
        keys,
        pa.array(start).cast(TIME),
        pa.array(end).cast(TIME),
        pa.array(count),
        pa.array(np.full(n, batch_id)),
        *values,
        state,
    ]
    return pa.Table.from_arrays(arrays, schema=spec.changes_schema)


def _writes(
    parts: Parts,
    bounds: Bounds,
    stored: Stored,
    segment: Ints,
    physical: Bools,
    verdict: Verdict,
    store: SegmentedSessionStore,
) -> pa.Table:
    """Return the store's writes: the whole new content of every (segment, key) that a change touches."""
    kept = np.flatnonzero(~verdict.gone & physical)
    gone = np.flatnonzero(verdict.gone & physical)
    changed = verdict.changed
    warm = np.flatnonzero(changed.end >= bounds.horizon_us)
    touched_owner = np.concatenate([stored.codes[gone], changed.codes[warm]])
    touched_segment = np.concatenate([segment[gone], changed.end[warm] // store.interval_us])
    if len(kept):
        kept = kept[_among(segment[kept], stored.codes[kept], touched_segment, touched_owner)]
    # Not all that is stored: beside the changed states it may be more than one array holds.
    both = _both(stored.take(kept), changed)
    sessions = Sessions(both.codes, both.start, both.end, both.count, both.revision, both.state)
    rows = np.concatenate([np.arange(len(kept)), len(kept) + warm])
    return store.writes(parts.keys, sessions, touched_owner, touched_segment, rows)


def _among(segment: Ints, owner: Ints, touched_segment: Ints, touched_owner: Ints) -> Bools:
    """Say which (segment, owner) pairs are among the touched ones."""
    low = int(min(segment.min(), touched_segment.min(initial=segment.min())))
    owners = int(max(owner.max(), touched_owner.max(initial=0))) + 1
    return np.isin((segment - low) * owners + owner, (touched_segment - low) * owners + touched_owner)
