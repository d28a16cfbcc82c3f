"""The corrections of windows (docs/rules.md, rules 110, 111 and 132).

A tombstone deletes the row of a closed window. What was sent is decided about, and that is in the tables alone: shards ask
for the rows that tombstones name, whatever form a window has in their stores. With the row of a window that is one slice the
slice goes, too. Slices that windows share stay until they leave with age: of a closed window no event asks for them.

A restate adds events to a slice, whatever is closed, and sends the closed windows with it again; one without events only
sends them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import LOOKUP, BatchContext, Inputs, Keyed, ShardResult, Split
from sessionlake.operators.windows.replace import REPLACED, REPLACED_SCHEMA, WITHHELD
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.stream.control import OUTCOMES, CorrectionKind, is_incomplete, is_null, micros, no_time
from sessionlake.stream.ingest import DEAD, DEAD_SCHEMA
from sessionlake.warehouse.schemas import APPLIED, STALE, TIME

REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone."""
REMOVE_SCHEMA = pa.schema(
    [
        ("correction_id", pa.string()),
        ("key", pa.string()),
        ("start_us", pa.int64()),
        ("revision", pa.int64()),
        ("any", pa.bool_()),
    ]
)
"""`any` says that the window need not be closed: a key that is forgotten leaves the stores, too, by the job itself."""
ASKED_SCHEMA = pa.schema([("key", pa.string()), ("start_us", pa.int64())])
"""Which rows a shard asks for."""
SENT_SCHEMA = pa.schema([*ASKED_SCHEMA, ("end_us", pa.int64()), ("revision", pa.int64())])
"""What it is handed: of windows that were sent the last row; ends are exclusive."""
WINDOW = -1
"""In place of a slice's revision: what a replacement names is a closed window that it is not to send."""
RESTATED, NAMED = "restated", "named"
"""Kinds of the rows of restates: parts of slices, and slices whose closed windows are to be sent again."""
_DECIDED = {REMOVE: "tombstone", REPLACED: "replace"}
_FORGET = "forget"


@dataclass(frozen=True)
class Removed:
    """What becomes of a shard's tombstones."""

    rows: pa.Table
    """The rows (key, start_us, end_us, revision) that they delete."""
    stale: frozenset[str]
    """The ids of those that delete none."""


NONE_REMOVED = Removed(SENT_SCHEMA.empty_table(), frozenset())


def removed_by(inputs: Inputs, changes: pa.Table, close_us: int) -> Removed:
    """Return what becomes of tombstones, beside which the rows that they name are handed in.

    A tombstone is stale where its window was never sent, is gone, is at another revision or changes in this batch, where it
    is not closed (ends after `close_us`), and where one with a lower correction_id names it.
    """
    removals, rows = inputs[REMOVE], inputs.get(LOOKUP)
    ids = combined(removals["correction_id"])
    if rows is None or not rows.num_rows:
        return Removed(SENT_SCHEMA.empty_table(), frozenset(ids.to_pylist()))
    tables = removals, rows, _named(changes)
    keys = pc.dictionary_encode(
        pa.concat_arrays([combined(t["key"]).cast(pa.string()) for t in tables])
    ).indices.to_numpy()
    starts = [t["start_us"].to_numpy() for t in tables]
    _, pair = np.unique(np.stack([keys, np.concatenate(starts)]), axis=1, return_inverse=True)
    mine, stored, changing = np.split(pair.reshape(-1), np.cumsum([len(part) for part in starts])[:-1])
    row = np.full(int(pair.max()) + 1, -1)
    row[stored] = np.arange(len(stored))
    at = row[mine]
    fits: Bools = (at >= 0) & ~np.isin(mine, changing)
    end, revision = (rows[name].to_numpy()[at] for name in ("end_us", "revision"))
    whatever = combined(removals["any"]).to_numpy(zero_copy_only=False)
    fits &= (revision == removals["revision"].to_numpy()) & ((end <= close_us) | whatever)
    # Of those that fit, the lowest id of each window: rows come in any order, and a rerun must decide alike.
    order: Ints = pc.sort_indices(ids).to_numpy().astype(np.int64)
    order = order[fits[order]]
    _, first = np.unique(mine[order], return_index=True)
    taken = order[first]
    left = np.ones(len(ids), bool)
    left[taken] = False
    deleted = rows.take(pa.array(at[taken])).select(SENT_SCHEMA.names)
    return Removed(deleted, frozenset(ids.filter(pa.array(left)).to_pylist()))


def with_removed(
    result: ShardResult, inputs: Inputs, removed: Removed, context: BatchContext, *, end_inclusive: bool
) -> ShardResult:
    """Return a shard's result with what becomes of its tombstones; the changelog's ends are inclusive or not."""
    deletes = delete_rows(result.changes.schema, removed.rows, context, end_inclusive=end_inclusive)
    n = removed.rows.num_rows
    result = replace(result, changes=pa.concat_tables([result.changes, deletes]))
    return with_told(result, inputs, removed.stale, {"applied": n, "deletes": result.stats.get("deletes", 0) + n})


def with_told(result: ShardResult, inputs: Inputs, stale: frozenset[str], told: Mapping[str, int]) -> ShardResult:
    """Return a shard's result with what becomes of its tombstones and replacements, and numbers of them."""
    dead = [stale_letters(inputs[of], kind, stale) for of, kind in _DECIDED.items() if of in inputs]
    side = {**result.side, DEAD: pa.concat_tables(dead)}
    if OUTCOMES in inputs:
        side[OUTCOMES] = told_outcomes(inputs[OUTCOMES], stale)
    return replace(result, side=side, stats={**result.stats, **told, "stale": len(stale)})


def _named(changes: pa.Table) -> pa.Table:
    columns = [changes["window_key"].cast(pa.string()), changes["window_start"].cast(pa.int64())]
    return pa.Table.from_arrays(columns, schema=ASKED_SCHEMA)


def _bad_tombstone(table: pa.Table) -> Bools:
    # An empty key is that of windows without one.
    return no_time(table["session_start"]) | is_null(table, "session_key", "revision")


def _removals(rows: pa.Table) -> Split:
    ids, keys, revision = (combined(rows[name]) for name in ("correction_id", "session_key", "revision"))
    forgotten = pc.equal(pc.fill_null(combined(rows["job"]), ""), _FORGET)
    arrays = [ids, keys, pa.array(micros(rows["session_start"])), revision, forgotten]
    yield Keyed(REMOVE, keys, pa.Table.from_arrays(arrays, schema=REMOVE_SCHEMA))


TOMBSTONE = CorrectionKind(_bad_tombstone, _removals)


def _bad_restate(table: pa.Table) -> Bools:
    events = pc.fill_null(combined(table["event_count"]), -1).to_numpy()
    lacking = is_null(table, "session_key") | no_time(table["session_start"]) | (events < 0)
    return lacking | ((events > 0) & is_null(table, "state"))


def _restates(spec: WindowSpec, rows: pa.Table) -> Split:
    """Yield parts of slices that hold events, and slices that are named only."""
    start = spec.windows.slices_of(micros(rows["session_start"]))
    keys, count = combined(rows["session_key"]), combined(rows["event_count"]).to_numpy()
    some = np.flatnonzero(count > 0)
    if len(some):
        at = pa.array(some)
        states = StateCodec(spec.aggregates).decode(combined(rows["state"]).take(at))
        end = start[some] + spec.windows.slice_us - 1
        parts = Partials(keys.take(at), start[some], end, count[some], np.zeros(len(some), np.int64), states)
        yield Keyed(RESTATED, parts.keys, parts.to_table())
    yield Keyed(NAMED, keys, pa.table({"key": keys, "start_us": start}))


def _bad_replace(spec: WindowSpec, table: pa.Table) -> Bools:
    lists = [combined(table[name]) for name in ("remove", "put")]
    removes, puts = (pc.fill_null(pc.list_value_length(each), 0).to_numpy().astype(np.int64) for each in lists)
    start = micros(table["session_start"])
    bad = (
        is_null(table, "session_key", "revision") | no_time(table["session_start"]) | (puts > 1) | (removes + puts < 1)
    )
    bad |= is_incomplete(lists[0]) | is_incomplete(lists[1]) | (spec.windows.slices_of(start) != start)
    put, owner = pc.list_flatten(lists[1]), pc.list_parent_indices(lists[1]).to_numpy()
    count = pc.fill_null(pc.struct_field(put, "event_count"), 0).to_numpy()
    bad[owner[(micros(pc.struct_field(put, "session_start")) != start[owner]) | (count < 1)]] = True
    return bad


def _replaces(rows: pa.Table) -> Split:
    """Yield what slices become, and the windows that are not to be sent for it."""
    keys, lists = combined(rows["session_key"]), [combined(rows[name]) for name in ("remove", "put")]
    owner, put = pc.list_parent_indices(lists[1]).to_numpy(), pc.list_flatten(lists[1])
    place = np.full(len(rows), -1)
    place[owner] = np.arange(len(owner))
    at = pa.array(place, mask=place < 0)
    count, state = (pc.struct_field(put, name).take(at) for name in ("event_count", "state"))
    named, of = pc.list_flatten(lists[0]), pc.list_parent_indices(lists[0]).to_numpy()
    is_window = pc.struct_field(named, "revision").to_numpy() == WINDOW
    stored = np.zeros(len(rows), bool)
    stored[of[~is_window]] = True
    start, seen = micros(rows["session_start"]), rows["revision"]
    ids = combined(rows["correction_id"])
    arrays = [ids, keys, pa.array(start), combined(seen), pa.array(stored), pc.fill_null(count, 0), state]
    yield Keyed(REPLACED, keys, pa.Table.from_arrays(arrays, schema=REPLACED_SCHEMA))
    if is_window.any():
        owners = keys.take(pa.array(of[is_window]))
        times = micros(pc.struct_field(named, "session_start"))[is_window]
        yield Keyed(WITHHELD, owners, pa.table({"key": owners, "start_us": times}))


def kinds_of(spec: WindowSpec) -> Mapping[str, CorrectionKind]:
    """Return the kinds of corrections that windows know, beside every pipeline's."""
    return {
        "tombstone": TOMBSTONE,
        # Of a window that is one slice nothing else is needed; others are made of slices that leave the stores.
        "replace": CorrectionKind(partial(_bad_replace, spec), _replaces, expires=not spec.slices_are_windows),
        "restate": CorrectionKind(_bad_restate, partial(_restates, spec), expires=True, at_once=True),
    }


def delete_rows(schema: pa.Schema, deleted: pa.Table, context: BatchContext, *, end_inclusive: bool) -> pa.Table:
    """Return the changes that delete rows (SENT_SCHEMA, of which the revision is not read); the changelog's ends are inclusive or not."""
    n, last = deleted.num_rows, 1 if end_inclusive else 0
    known: dict[str, Any] = {
        "op": pa.repeat("delete", n),
        "window_key": combined(deleted["key"]),
        "window_start": combined(deleted["start_us"]),
        "window_end": pc.subtract(combined(deleted["end_us"]), last),
        "event_count": pa.repeat(0, n),
        "revision": pa.repeat(context.batch_id, n),
        "emitted_at": pa.repeat(context.clock_us, n),
    }
    arrays = [known[f.name].cast(f.type) if f.name in known else pa.nulls(n, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def stale_letters(removals: pa.Table, kind: str, stale: frozenset[str]) -> pa.Table:
    """Return dead letters of stale corrections of a kind."""
    rows = removals.filter(pc.is_in(removals["correction_id"], value_set=pa.array(sorted(stale), pa.string())))
    n = rows.num_rows
    arrays = [
        pa.repeat(STALE, n),
        pa.repeat(kind, n),
        combined(rows["key"]),
        combined(rows["start_us"]).cast(TIME),
        pa.nulls(n, pa.string()),
        combined(rows["correction_id"]),
    ]
    return pa.Table.from_arrays(arrays, schema=DEAD_SCHEMA)


def told_outcomes(told: pa.Table, stale: frozenset[str]) -> pa.Table:
    """Return what became of the corrections that the shard decided."""
    is_stale = pc.is_in(told["correction_id"], value_set=pa.array(sorted(stale), pa.string()))
    columns = {
        "outcome": pc.if_else(is_stale, STALE, APPLIED),
        "reason": pc.if_else(is_stale, STALE, pa.scalar(None, pa.string())),
    }
    return pa.Table.from_arrays([columns.get(n, told[n]) for n in told.column_names], schema=told.schema)
