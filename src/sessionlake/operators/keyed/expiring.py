"""A shard's rows as TTL patterns see them, the rows that patterns remove, and the writes of their indexes."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.engine.operator import BatchContext, Inputs
from sessionlake.operators.keyed.expiry.pattern import Expirations, Pass, Pattern
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import EVICTED, written_us
from sessionlake.operators.keyed.spec import KeyedSpec
from sessionlake.operators.shared.cleanups.brake import GONE, LEFT, ROUND_OF, Round
from sessionlake.operators.shared.cleanups.names import LIVE_ROWS
from sessionlake.operators.shared.cleanups.schedule import (
    CLEANUP_US,
    LEFT_OVER,
    MAX_LAG,
    MAX_ROUND,
    SCANNED,
    TOOK,
    Stopwatch,
    began_of,
    clock_of,
)
from sessionlake.store.rows import HEAD, RowStore, Stored

NO_ROWS = Stored(np.zeros(0, np.int64), np.zeros(0, HEAD), pa.array([], pa.binary()))


def stored_rows(spec: KeyedSpec, keys: pa.Array, rows: Stored) -> TableRows:
    """Return stored rows, given with their keys as bytes, as rows of the table."""

    def columns() -> Mapping[str, pa.Array]:
        unpacked = spec.unpack(rows.packed(np.arange(len(rows))))
        return {**spec.key_parts(texts), **dict(zip(spec.columns, unpacked, strict=True))}

    texts = keys.cast(pa.string())
    return TableRows(texts, rows["time"], rows["revision"], rows["written"], rows["inserted"], columns)


def put_rows(spec: KeyedSpec, updates: pa.Table, at: Ints, context: BatchContext, inserted: Ints) -> TableRows:
    """Return the rows that some of a batch's updates make; `inserted` says when their keys got a row."""
    index = pa.array(at)

    def columns() -> Mapping[str, pa.Array]:
        own = {name: combined(updates[f"column_{i}"]).take(index) for i, name in enumerate(spec.columns)}
        return {**spec.key_parts(keys), **own}

    keys = combined(updates["key"]).take(index)
    time = combined(updates["time_us"]).to_numpy()[at]
    written = np.full(len(at), written_us(context))
    return TableRows(keys, time, np.full(len(at), context.batch_id), written, inserted, columns)


def taken_away(
    spec: KeyedSpec,
    inputs: Inputs,
    store: RowStore,
    context: BatchContext,
    put: TableRows,
    changed: pa.Array,
    held: int,
) -> Expirations:
    """Return the rows that a batch removes from a shard by TTL: none if there is no TTL, or no cleanup is due.

    `changed` are the keys, bytes, ascending, that its updates and tombstones change; `held` of them had a row before.
    """
    found = None
    if spec.ttl is not None:
        watch = Stopwatch()
        found = spec.ttl.pattern.find(
            store,
            Pass(
                clock_of(inputs),
                changed,
                held,
                put,
                lambda keys, rows: stored_rows(spec, keys, rows),
                context.cursor,
                spec.ttl.budget(context.state),
                spec.hidden_us(context),
            ),
        )
        if found is not None:
            # The cursor of another pattern has no use, and must not be there if a config returns to that pattern.
            cursor = {} if found.cursor is None and context.cursor else found.cursor
            found = _round_counts(spec, store, replace(found, cursor=cursor), context, put, clock_of(inputs))
            found = replace(found, took_us=watch.us)
    return found or Expirations(np.zeros(len(put), bool), pa.array([], pa.binary()), NO_ROWS)


def _round_counts(
    spec: KeyedSpec, store: RowStore, found: Expirations, context: BatchContext, put: TableRows, clock_us: int | None
) -> Expirations:
    """Return the removed rows with the numbers that the brake needs, and with the shard's progress in its round in the cursor."""
    ttl = spec.ttl
    if ttl is None or ttl.schedule.brake is None or clock_us is None:
        return found
    brake, boxed = ttl.schedule.brake, ttl.pattern.max_duration_us is not None
    known = (context.cursor if boxed else context.state).get(ROUND_OF)
    round_ = Round.of(known, brake.rule, clock_us, context.state)
    expected_us = brake.expected_us(round_, ttl.schedule.every_us or 0)
    rows = (put.take(np.flatnonzero(found.at_once)), stored_rows(spec, found.keys, found.rows))
    gone = 0 if brake.max_share == 1 else sum(_by_clock(ttl.pattern, some, expected_us) for some in rows)
    now, cursor = round_.with_cleanup(gone), found.cursor
    if boxed:
        after = now if cursor else now.ended(began_of(context.cursor, clock_us))
        cursor = {**(cursor or {}), ROUND_OF: after.to_json()}
    left: dict[str, int] = {}
    if context.state.get(LIVE_ROWS) is None:
        keys, _ = store.page(limit=brake.enough(now.gone) + len(found.keys))
        left = {LEFT: max(len(keys) - len(found.keys), 0)}
    return replace(found, cursor=cursor, held={GONE: now.gone if boxed else gone, **left})


def _by_clock(pattern: Pattern, rows: TableRows, expected_us: int | None) -> int:
    """Return how many rows that go would be there if the clock had gone on at its pace."""
    return len(rows) if expected_us is None else len(rows) - int(np.sum(pattern.expired(rows, expected_us)))


def counts_of(found: Expirations, told: int, spec: KeyedSpec, inputs: Inputs, put: TableRows) -> dict[str, int]:
    """Return the numbers of a pass that logs deletes of `told` stored rows; empty if there is no TTL.

    `put` are the rows that the batch writes.
    """
    if spec.ttl is None or spec.ttl.pattern.interval_us is not None:
        return {}
    gone = int(found.at_once.sum()) + told
    counts = {f"deleted_by_{spec.ttl.pattern.cause}": gone, "scanned": found.scanned, "decoded": found.decoded}
    if spec.ttl.pattern.hides_us is not None:
        counts[EVICTED] = gone
    clock_us = clock_of(inputs)
    if clock_us is None:
        return counts
    pattern, at_once = spec.ttl.pattern, put.take(np.flatnonzero(found.at_once))
    taken = (at_once, stored_rows(spec, found.keys, found.rows))
    lags = [lag for rows in taken if (lag := pattern.lag_us(rows, clock_us)) is not None]
    counts |= {CLEANUP_US: found.took_us, **found.held}
    if lags:
        counts[MAX_LAG] = max(lags)
    if found.round_us is not None:
        counts[MAX_ROUND] = found.round_us
    if found.left_over:
        counts[LEFT_OVER] = 1
    if pattern.max_duration_us is not None:
        counts |= {SCANNED: found.scanned, TOOK: found.took_us}
    return counts


def indexed(spec: KeyedSpec, store: RowStore, put: TableRows, was: TableRows, found: Expirations) -> pa.Table:
    """Return the writes of the index for rows that are put and rows that go; `was` are the rows before the updates."""
    index, pattern = _indexing(spec)
    moved = pattern.index_changes(put, was, found)
    return store.index_writes(index, moved.added, moved.removed, found.first)


def indexed_anew(spec: KeyedSpec, store: RowStore, rows: TableRows) -> pa.Table:
    """Return the writes that make an index of rows."""
    index, pattern = _indexing(spec)
    return store.index_writes(index, pattern.entries(rows), pa.array([], pa.binary()), None)


def _indexing(spec: KeyedSpec) -> tuple[int, Pattern]:
    if spec.ttl is None or spec.index is None:
        raise ValueError("there is no index")
    return spec.index, spec.ttl.pattern
