"""The corrections of joins (docs/rules.md, rules 126 and 127).

A tombstone deletes a pair. A late message is added again with its old position: from then on it is a message like
any other, and a second time it is none. Both need nothing that is stored to be decided about.
"""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from sessionlake.columnar.arrays import Bools, combined
from sessionlake.engine.operator import Counted, Keyed, Split
from sessionlake.operators.joins.mapper import is_late_class
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.spec import POSITION, JoinSpec
from sessionlake.operators.shared.sides.columns import unpacked
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.stream.control import CorrectionKind, is_null, micros, no_time

TOMBSTONE = "tombstone"
"""Names a pair: key is its join_key, start_time its join_time, ordinal its left_position, other_ordinal its right_position."""
RESTATE = {side: f"restate_{side}" for side in SIDES}
"""Supplies a late message: key is its join_key, start_time its time, ordinal its position, state its columns."""
REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone."""
AGAIN = {side: f"again_{side}" for side in SIDES}
"""Kinds of the late messages that are added again."""


def kinds_of(spec: JoinSpec, at: JoinProgress) -> Mapping[str, CorrectionKind]:
    """Return the kinds of corrections of joins, besides those of every pipeline."""
    restates = {
        RESTATE[side]: CorrectionKind(_bad_restate, partial(_restates, spec, at, side), expires=True, at_once=True)
        for side in SIDES
    }
    return {TOMBSTONE: CorrectionKind(_bad_tombstone, _removals, at_once=True), **restates}


def _bad_tombstone(table: pa.Table) -> Bools:
    return no_time(table["start_time"]) | is_null(table, "key", "ordinal", "other_ordinal")


def _removals(rows: pa.Table) -> Split:
    keys, left, right = (combined(rows[name]) for name in ("key", "ordinal", "other_ordinal"))
    named = {"key": keys, "left_position": left, "right_position": right}
    yield Keyed(REMOVE, keys, pa.table({**named, "time_us": micros(rows["start_time"])}))
    yield Counted({"applied": rows.num_rows})


def _bad_restate(table: pa.Table) -> Bools:
    return no_time(table["start_time"]) | is_null(table, "key", "ordinal", "state")


def _restates(spec: JoinSpec, at: JoinProgress, side: str, rows: pa.Table) -> Split:
    time, keys = micros(rows["start_time"]), combined(rows["key"])
    columns = unpacked(spec.side(side), combined(rows["state"]))
    table = {
        "key": keys,
        "time_us": pa.array(time),
        POSITION: combined(rows["ordinal"]),
        "is_late": pa.array(is_late_class(spec, at, time)),
        **{f"column_{i}": column for i, column in enumerate(columns)},
    }
    yield Keyed(AGAIN[side], keys, pa.table(table))
    yield Counted({"applied": rows.num_rows})
