"""The corrections of joins (docs/rules.md, rules 126 and 127).

A tombstone deletes a pair. A late message is handed in again with the position that it had: from then on it is a message like
any other, and a second time it is none. Both need nothing that is stored to be decided about.
"""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import from_state, state_type, to_state
from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Counted, Keyed, Split
from sessionlake.operators.joins.mapper import is_late_class
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.spec import POSITION, SIDES, JoinSpec, Side
from sessionlake.stream.control import CorrectionKind, is_null, micros, no_time

TOMBSTONE = "tombstone"
"""Names a pair: session_key is its join_key, session_start its join_time, revision its left_position, event_count its right_position."""
RESTATE = {side: f"restate_{side}" for side in SIDES}
"""Hands a late message in: session_key is its join_key, session_start its time, revision its position, state its columns."""
REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone."""
AGAIN = {side: f"again_{side}" for side in SIDES}
"""Kinds of the messages that are handed in again."""


def kinds_of(spec: JoinSpec, at: JoinProgress) -> Mapping[str, CorrectionKind]:
    """Return the kinds of corrections that joins know, beside every pipeline's."""
    restates = {
        RESTATE[side]: CorrectionKind(_bad_restate, partial(_restates, spec, at, side), expires=True, at_once=True)
        for side in SIDES
    }
    return {TOMBSTONE: CorrectionKind(_bad_tombstone, _removals, at_once=True), **restates}


def pack(side: Side, columns: list[pa.Array], rows: int) -> pa.Array:
    """Return a side's columns as one byte string for each row."""
    return _codec(side).encode([to_state(column) for column in columns], rows)


def unpack(side: Side, packed: pa.Array) -> list[pa.Array]:
    """Invert `pack`."""
    return [from_state(column, t) for column, t in zip(_codec(side).decode(packed), side.types.values(), strict=True)]


def _codec(side: Side) -> StateCodec:
    return StateCodec((), [state_type(type_, name) for name, type_ in side.types.items()])


def _bad_tombstone(table: pa.Table) -> Bools:
    return no_time(table["session_start"]) | is_null(table, "session_key", "revision", "event_count")


def _removals(rows: pa.Table) -> Split:
    keys, left, right = (combined(rows[name]) for name in ("session_key", "revision", "event_count"))
    named = {"key": keys, "left_position": left, "right_position": right}
    yield Keyed(REMOVE, keys, pa.table({**named, "time_us": micros(rows["session_start"])}))
    yield Counted({"applied": rows.num_rows})


def _bad_restate(table: pa.Table) -> Bools:
    return no_time(table["session_start"]) | is_null(table, "session_key", "revision", "state")


def _restates(spec: JoinSpec, at: JoinProgress, side: str, rows: pa.Table) -> Split:
    time, keys = micros(rows["session_start"]), combined(rows["session_key"])
    columns = unpack(spec.side(side), combined(rows["state"]))
    table = {
        "key": keys,
        "time_us": pa.array(time),
        POSITION: combined(rows["revision"]),
        "is_late": pa.array(is_late_class(spec, at, time)),
        **{f"column_{i}": column for i, column in enumerate(columns)},
    }
    yield Keyed(AGAIN[side], keys, pa.table(table))
    yield Counted({"applied": rows.num_rows})
