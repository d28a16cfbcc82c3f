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
from sessionlake.operators.sessions.kernel import known_until
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds, SessionWindows
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
from sessionlake.warehouse.schemas import OPEN_UNTIL

RESTATE, PUT, REMOVE, TOMBSTONES = "restate", "put", "remove", "archived_tombstones"
"""Kinds of rows: partials that are always accepted, partials that replacements put, sessions that go; and a
topic's tombstones, which go to the archive."""

CROSSES = "crosses a cut"
"""Reason of a partial that no event could have made: it begins in one cell and ends in another (docs/rules.md, rules 161 and 244)."""


def kinds_of(spec: SessionizerSpec) -> Mapping[str, CorrectionKind]:
    """Return the kinds of corrections that sessions know."""
    cut = spec.windows.cut
    restate, replace = (partial(crosses, spec.windows) if cut else None for crosses in (_restate_crosses, _put_crosses))
    return {
        "restate": CorrectionKind(
            _bad_restate, partial(_restated, spec), expires=True, at_once=True, unfit=restate, unfit_reason=CROSSES
        ),
        "replace": CorrectionKind(_bad_replace, partial(_replaced, spec), unfit=replace, unfit_reason=CROSSES),
        "tombstone": CorrectionKind(_bad_tombstone, _tombstones),
    }


def limits_of(spec: SessionizerSpec, bounds: Bounds, clock_us: int) -> Limits:
    """Return the times that corrections of a batch are held against."""
    to_close = spec.windows.to_close_us + 1
    watermark_us = bounds.open_us + spec.windows.grace_us
    latest = latest_advance_us(spec.events.max_future_skew_us, clock_us, watermark_us - to_close + 1, to_close)
    return Limits(bounds.expired_us, latest, clock_us)


def archived_tombstones(table: pa.Table) -> Aside:
    """Return a topic's well-formed tombstones for the archive: a later backfill must know of them."""
    good = table.filter(pa.array(~(_bad_tombstone(table) | is_null(table, "correction_id"))))
    return Aside(TOMBSTONES, good.select(["correction_id", "key", "start_time", "revision"]))


def _bad_restate(table: pa.Table) -> Bools:
    backwards = micros(table["end_time"]) < micros(table["start_time"])
    no_times = no_time(table["start_time"]) | no_time(table["end_time"])
    empty = pc.less(pc.fill_null(combined(table["event_count"]), 0), 1).to_numpy(zero_copy_only=False)
    return is_keyless(table) | no_times | is_null(table, "state") | empty | backwards


def _bad_replace(table: pa.Table) -> Bools:
    lists = [combined(table[name]) for name in ("remove", "put")]
    length = pc.add(*(pc.fill_null(pc.list_value_length(each), 0) for each in lists))
    empty = pc.equal(length, 0).to_numpy(zero_copy_only=False)
    return (
        is_keyless(table)
        | empty
        | is_incomplete(lists[0])
        | is_incomplete(lists[1], (OPEN_UNTIL,))
        | _no_sessions(lists[1])
    )


def _no_sessions(puts: pa.Array) -> Bools:
    """Say which lists put an invalid session: one that ends before it starts, or has no event."""
    items = pc.list_flatten(puts)
    start, end = (micros(pc.struct_field(items, name)) for name in ("start_time", "end_time"))
    count = pc.fill_null(pc.struct_field(items, "event_count"), 0).to_numpy(zero_copy_only=False)
    out = np.zeros(len(puts), bool)
    out[pc.list_parent_indices(puts).to_numpy()[(end < start) | (count < 1)]] = True
    return out


def _bad_tombstone(table: pa.Table) -> Bools:
    return is_keyless(table) | no_time(table["start_time"]) | is_null(table, "revision")


def _restate_crosses(windows: SessionWindows, table: pa.Table) -> Bools:
    return windows.cell_ends(micros(table["start_time"])) != windows.cell_ends(micros(table["end_time"]))


def _put_crosses(windows: SessionWindows, table: pa.Table) -> Bools:
    puts = combined(table["put"])
    items = pc.list_flatten(puts)
    start, end = (windows.cell_ends(micros(pc.struct_field(items, name))) for name in ("start_time", "end_time"))
    out = np.zeros(len(puts), bool)
    out[pc.list_parent_indices(puts).to_numpy()[start != end]] = True
    return out


def _partials(
    spec: SessionizerSpec,
    ids: pa.Array,
    keys: pa.Array,
    start: Ints,
    end: Ints,
    count: Ints,
    state: pa.Array,
    until: pa.Array | None,
) -> pa.Table:
    """Return partials; `until` are times that may be null, None if the corrections don't have them."""
    states, known = StateCodec(spec.aggregates).decode(state), known_until(spec.windows, end, until)
    table = Partials(keys, start, end, count, count * 0, states, known).to_table()
    return table.append_column("correction_id", ids)


def _restated(spec: SessionizerSpec, rows: pa.Table) -> Split:
    ids, keys, state = (combined(rows[name]) for name in ("correction_id", "key", "state"))
    times = micros(rows["start_time"]), micros(rows["end_time"])
    until = combined(rows[OPEN_UNTIL]) if OPEN_UNTIL in rows.column_names else None
    yield Keyed(RESTATE, keys, _partials(spec, ids, keys, *times, rows["event_count"].to_numpy(), state, until))


def _tombstones(rows: pa.Table) -> Split:
    ids, keys, revision = (combined(rows[name]) for name in ("correction_id", "key", "revision"))
    yield _removals(ids, keys, micros(rows["start_time"]), revision)


def _replaced(spec: SessionizerSpec, rows: pa.Table) -> Split:
    for column, kind in (("remove", REMOVE), ("put", PUT)):
        lists = combined(rows[column])
        owner = pc.list_parent_indices(lists)
        items = pc.list_flatten(lists)
        keys, ids = combined(rows["key"]).take(owner), combined(rows["correction_id"]).take(owner)
        start = micros(pc.struct_field(items, "start_time"))
        if kind == REMOVE:
            yield _removals(ids, keys, start, pc.struct_field(items, "revision"))
        else:
            count = pc.struct_field(items, "event_count").to_numpy(zero_copy_only=False)
            end = micros(pc.struct_field(items, "end_time"))
            until = pc.struct_field(items, OPEN_UNTIL) if items.type.get_field_index(OPEN_UNTIL) >= 0 else None
            state = pc.struct_field(items, "state")
            yield Keyed(PUT, keys, _partials(spec, ids, keys, start, end, count, state, until))


def _removals(ids: pa.Array, keys: pa.Array, start: Ints, revision: pa.Array) -> Keyed:
    return Keyed(REMOVE, keys, pa.Table.from_arrays([ids, keys, pa.array(start), revision], schema=REMOVE_SCHEMA))
