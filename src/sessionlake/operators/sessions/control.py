"""The corrections of sessions: restate, replace and tombstone become partials, removals and puts (docs/rules.md, rule 2)."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import Aside, Keyed, Split
from sessionlake.operators.sessions.corrections import REMOVE_SCHEMA
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.stream.control import (
    CorrectionKind,
    Limits,
    is_incomplete,
    is_keyless,
    is_null,
    latest_advance_us,
    micros,
    no_time,
)

RESTATE, PUT, REMOVE, TOMBSTONES = "restate", "put", "remove", "archived_tombstones"
"""Kinds of rows: partials that are accepted whatever they meet, partials that replacements put, sessions that go; and a
topic's tombstones, which go to the archive."""


def kinds_of(spec: SessionizerSpec) -> Mapping[str, CorrectionKind]:
    """Return the kinds of corrections that sessions know."""
    return {
        "restate": CorrectionKind(_bad_restate, partial(_restated, spec), expires=True, at_once=True),
        "replace": CorrectionKind(_bad_replace, partial(_replaced, spec)),
        "tombstone": CorrectionKind(_bad_tombstone, _tombstones),
    }


def limits_of(spec: SessionizerSpec, bounds: Bounds, clock_us: int) -> Limits:
    """Return the times that corrections of a batch are held against."""
    to_close = spec.windows.to_close_us + 1
    latest = latest_advance_us(spec.events.max_future_skew_us, clock_us, bounds.close_us, to_close)
    return Limits(bounds.expired_us, latest, clock_us)


def archived_tombstones(table: pa.Table) -> Aside:
    """Return a topic's well-formed tombstones for the archive: a later backfill must know of them."""
    good = table.filter(pa.array(~(_bad_tombstone(table) | is_null(table, "correction_id"))))
    return Aside(TOMBSTONES, good.select(["correction_id", "session_key", "session_start", "revision"]))


def _bad_restate(table: pa.Table) -> Bools:
    backwards = micros(table["session_end"]) < micros(table["session_start"])
    no_times = no_time(table["session_start"]) | no_time(table["session_end"])
    empty = pc.less(pc.fill_null(combined(table["event_count"]), 0), 1).to_numpy(zero_copy_only=False)
    return is_keyless(table) | no_times | is_null(table, "state") | empty | backwards


def _bad_replace(table: pa.Table) -> Bools:
    lists = [combined(table[name]) for name in ("remove", "put")]
    length = pc.add(*(pc.fill_null(pc.list_value_length(each), 0) for each in lists))
    empty = pc.equal(length, 0).to_numpy(zero_copy_only=False)
    return is_keyless(table) | empty | is_incomplete(lists[0]) | is_incomplete(lists[1]) | _no_sessions(lists[1])


def _no_sessions(puts: pa.Array) -> Bools:
    """Say which lists put what is no session: one that ends before it starts, or has no event."""
    items = pc.list_flatten(puts)
    start, end = (micros(pc.struct_field(items, f"session_{edge}")) for edge in ("start", "end"))
    count = pc.fill_null(pc.struct_field(items, "event_count"), 0).to_numpy(zero_copy_only=False)
    out = np.zeros(len(puts), bool)
    out[pc.list_parent_indices(puts).to_numpy()[(end < start) | (count < 1)]] = True
    return out


def _bad_tombstone(table: pa.Table) -> Bools:
    return is_keyless(table) | no_time(table["session_start"]) | is_null(table, "revision")


def _partials(
    spec: SessionizerSpec, ids: pa.Array, keys: pa.Array, start: Ints, end: Ints, count: Ints, state: pa.Array
) -> pa.Table:
    states = StateCodec(spec.aggregates).decode(state)
    table = Partials(keys, start, end, count, count * 0, states).to_table()
    return table.append_column("correction_id", ids)


def _restated(spec: SessionizerSpec, rows: pa.Table) -> Split:
    ids, keys, state = (combined(rows[name]) for name in ("correction_id", "session_key", "state"))
    times = micros(rows["session_start"]), micros(rows["session_end"])
    yield Keyed(RESTATE, keys, _partials(spec, ids, keys, *times, rows["event_count"].to_numpy(), state))


def _tombstones(rows: pa.Table) -> Split:
    ids, keys, revision = (combined(rows[name]) for name in ("correction_id", "session_key", "revision"))
    yield _removals(ids, keys, micros(rows["session_start"]), revision)


def _replaced(spec: SessionizerSpec, rows: pa.Table) -> Split:
    for column, kind in (("remove", REMOVE), ("put", PUT)):
        lists = combined(rows[column])
        owner = pc.list_parent_indices(lists)
        items = pc.list_flatten(lists)
        keys, ids = combined(rows["session_key"]).take(owner), combined(rows["correction_id"]).take(owner)
        start = micros(pc.struct_field(items, "session_start"))
        if kind == REMOVE:
            yield _removals(ids, keys, start, pc.struct_field(items, "revision"))
        else:
            count = pc.struct_field(items, "event_count").to_numpy(zero_copy_only=False)
            end = micros(pc.struct_field(items, "session_end"))
            yield Keyed(PUT, keys, _partials(spec, ids, keys, start, end, count, pc.struct_field(items, "state")))


def _removals(ids: pa.Array, keys: pa.Array, start: Ints, revision: pa.Array) -> Keyed:
    return Keyed(REMOVE, keys, pa.Table.from_arrays([ids, keys, pa.array(start), revision], schema=REMOVE_SCHEMA))
