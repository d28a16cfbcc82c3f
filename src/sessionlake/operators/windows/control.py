"""The corrections of windows (docs/rules.md, rules 110, 111 and 132).

A tombstone deletes the row of a closed window. Only the tables have the rows that were sent: shards ask
for those that tombstones name, in any form of their stores. With the row of a window that is one slice the
slice goes, too. Slices that windows share stay until they leave with age: of a closed window no event asks for them.

A restate adds events to a slice, also if its windows are closed, and sends the closed windows with it again; one without events only
sends them.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Counted, Keyed, Split
from sessionlake.operators.shared.windowing.tombstones import DECIDED as TOMBSTONES
from sessionlake.operators.shared.windowing.tombstones import TOMBSTONE
from sessionlake.operators.windows.replace import NAMED, REPLACED, REPLACED_SCHEMA, RESTATED, WITHHELD
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.stream.control import CorrectionKind, is_incomplete, is_null, micros, no_time

WINDOW = -1
"""In place of a slice's revision: the replacement names a closed window that it must not send."""
DECIDED = {**TOMBSTONES, REPLACED: "replace"}
"""Kinds of rows that a shard decides, and the corrections that they are of."""


def _bad_restate(table: pa.Table) -> Bools:
    events = pc.fill_null(combined(table["event_count"]), -1).to_numpy()
    lacking = is_null(table, "key") | no_time(table["start_time"]) | (events < 0)
    return lacking | ((events > 0) & is_null(table, "state"))


def _restates(spec: WindowSpec, rows: pa.Table) -> Split:
    """Yield parts of slices that hold events, and slices that are named only."""
    start = spec.windows.slices_of(micros(rows["start_time"]))
    keys, count = combined(rows["key"]), combined(rows["event_count"]).to_numpy()
    some = np.flatnonzero(count > 0)
    if len(some):
        at = pa.array(some)
        states = StateCodec(spec.aggregates).decode(combined(rows["state"]).take(at))
        end = start[some] + spec.windows.slice_us - 1
        parts = Partials(keys.take(at), start[some], end, count[some], np.zeros(len(some), np.int64), states)
        yield Keyed(RESTATED, parts.keys, parts.to_table())
    yield Keyed(NAMED, keys, pa.table({"key": keys, "start_us": start}))
    yield Counted({"applied": rows.num_rows})


def _bad_replace(spec: WindowSpec, table: pa.Table) -> Bools:
    lists = [combined(table[name]) for name in ("remove", "put")]
    removes, puts = (pc.fill_null(pc.list_value_length(each), 0).to_numpy().astype(np.int64) for each in lists)
    start = micros(table["start_time"])
    bad = is_null(table, "key", "revision") | no_time(table["start_time"]) | (puts > 1) | (removes + puts < 1)
    bad |= is_incomplete(lists[0]) | is_incomplete(lists[1]) | (spec.windows.slices_of(start) != start)
    put, owner = pc.list_flatten(lists[1]), pc.list_parent_indices(lists[1]).to_numpy()
    count = pc.fill_null(pc.struct_field(put, "event_count"), 0).to_numpy()
    bad[owner[(micros(pc.struct_field(put, "start_time")) != start[owner]) | (count < 1)]] = True
    return bad


def _replaces(rows: pa.Table) -> Split:
    """Yield the new values of slices, and the windows that must not be sent for them."""
    keys, lists = combined(rows["key"]), [combined(rows[name]) for name in ("remove", "put")]
    owner, put = pc.list_parent_indices(lists[1]).to_numpy(), pc.list_flatten(lists[1])
    place = np.full(len(rows), -1)
    place[owner] = np.arange(len(owner))
    at = pa.array(place, mask=place < 0)
    count, state = (pc.struct_field(put, name).take(at) for name in ("event_count", "state"))
    named, of = pc.list_flatten(lists[0]), pc.list_parent_indices(lists[0]).to_numpy()
    is_window = pc.struct_field(named, "revision").to_numpy() == WINDOW
    stored = np.zeros(len(rows), bool)
    stored[of[~is_window]] = True
    start, seen = micros(rows["start_time"]), rows["revision"]
    ids = combined(rows["correction_id"])
    arrays = [ids, keys, pa.array(start), combined(seen), pa.array(stored), pc.fill_null(count, 0), state]
    yield Keyed(REPLACED, keys, pa.Table.from_arrays(arrays, schema=REPLACED_SCHEMA))
    if is_window.any():
        owners = keys.take(pa.array(of[is_window]))
        times = micros(pc.struct_field(named, "start_time"))[is_window]
        yield Keyed(WITHHELD, owners, pa.table({"key": owners, "start_us": times}))


def kinds_of(spec: WindowSpec) -> Mapping[str, CorrectionKind]:
    """Return the kinds of corrections of windows, besides those of every pipeline."""
    return {
        "tombstone": TOMBSTONE,
        # Of a window that is one slice nothing else is needed; others are made of slices that leave the stores.
        "replace": CorrectionKind(partial(_bad_replace, spec), _replaces, expires=not spec.slices_are_windows),
        "restate": CorrectionKind(_bad_restate, partial(_restates, spec), expires=True, at_once=True),
    }
