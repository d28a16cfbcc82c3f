"""One bucket of keys: slices computed anew, compared with those that are stored, and closed windows with their slices. Pure Arrow."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials, concat, merge_states, values_of
from sessionlake.columnar import records
from sessionlake.columnar.arrays import Bools, Groups, Ints, combined, within_group
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import Inputs
from sessionlake.jobs.backfill.basis import LATE, RESTATE
from sessionlake.jobs.backfill.compare import REMOVED, STORED, lists, same_records
from sessionlake.jobs.backfill.equality import values_close
from sessionlake.jobs.backfill.way import Difference, correction_schema
from sessionlake.operators.windows.control import WINDOW
from sessionlake.operators.windows.emission import FOREVER, Firing
from sessionlake.operators.windows.emission import RESTATE as AGAIN
from sessionlake.operators.windows.mapper import PARTS
from sessionlake.operators.windows.rules import (
    Pairs,
    SliceAxis,
    are_among,
    grid_windows,
    sent_windows,
    states_of,
)
from sessionlake.operators.windows.spec import Grid, TimeWindows, slices_are_windows
from sessionlake.store.slices import SLIDING, Slices
from sessionlake.warehouse.schemas import TIME
from sessionlake.warehouse.streamed_files import BATCH

NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
_NONE = pa.schema([("key", pa.string()), ("start_us", pa.int64())]).empty_table()
SENT = "sent"
"""Kind of the rows of windows as they were sent last: key, start_us, event_count, v0, v1, ..."""


@dataclass(frozen=True)
class SliceScope:
    """What is compared: slices that start in [low_us, high_us), and the windows with ends up to `close_us` that have one."""

    windows: TimeWindows
    low_us: int
    high_us: int
    close_us: int
    batch_id: int
    """The pinned batch."""
    rows_are_state: bool
    """Whether a window is its slice."""
    forgotten: Mapping[str, int] = field(default_factory=dict)
    """As in `compare.Scope`."""

    def holds(self, start: Ints) -> Bools:
        """Say which slices, by their starts, are in the range."""
        found: Bools = (start >= self.low_us) & (start < self.high_us)
        return found


def compare_slices(aggregates: Sequence[Aggregate], scope: SliceScope, inputs: Inputs) -> Difference:
    """Compute a bucket's slices and return those that differ, and those whose closed windows were sent as something else.

    Parts that came before a tombstone which deleted their slice stay out, and so do the events of erased keys. A window whose
    row a tombstone deleted, and that nothing has sent again since, is named to stay away.
    """
    basis, late = _partials(aggregates, inputs, PARTS, RESTATE), _partials(aggregates, inputs, LATE)
    is_late = np.arange(len(basis) + len(late)) >= len(basis)
    basis = concat([basis, late])
    tables = [inputs.get(kind, _NONE) for kind in (STORED, REMOVED, SENT)]
    columns = [basis.keys, *(combined(table["key"]) for table in tables)]
    encoded = pa.concat_arrays(columns).dictionary_encode()
    cuts = np.cumsum([len(column) for column in columns])[:-1]
    codes, of_old, of_removed, of_sent = np.split(encoded.indices.to_numpy().astype(np.int64), cuts)
    keys = encoded.dictionary
    old = Records.from_table(of_old, inputs[STORED]) if STORED in inputs else Records.empty()
    removed, sent = (
        Pairs(code, table["start_us"].to_numpy()) for code, table in zip((of_removed, of_sent), tables[1:], strict=True)
    )
    out = _forgotten(codes, basis.revision, scope.forgotten, keys)
    if slices_are_windows(scope.windows) and len(removed):
        out |= _before_removal(Pairs(codes, basis.start), basis.revision, removed, tables[1][BATCH].to_numpy())
    kept = np.flatnonzero(~out & scope.holds(basis.start))
    new = _merged(aggregates, scope.windows, codes[kept], basis.take(kept), keys)
    withheld = removed.take(~are_among(removed, sent)).distinct()
    again = NO_PAIRS
    if not scope.rows_are_state:
        right = records.concat([old.take(np.flatnonzero(~scope.holds(old.start))), new])
        again = _sent_wrong(aggregates, scope, keys, right, sent, tables[2], withheld)
    found = _difference(aggregates, scope, keys, old, new, again, withheld)
    late_in = int((is_late & ~out).sum())
    return replace(found, stats=found.stats | {"late_included": late_in, "withheld": int(basis.count[out].sum())})


def _partials(aggregates: Sequence[Aggregate], inputs: Inputs, *kinds: str) -> Partials:
    tables = [inputs[kind].select(_names(aggregates)) for kind in kinds if kind in inputs]
    return concat([Partials.empty(aggregates), *map(Partials.from_table, tables)])


def _names(aggregates: Sequence[Aggregate]) -> list[str]:
    return Partials.empty(aggregates).to_table().column_names


def _forgotten(codes: Ints, batch: Ints, forgotten: Mapping[str, int], keys: pa.Array) -> Bools:
    """Say which parts are of keys that were erased, and came before that."""
    if not forgotten:
        return np.zeros(len(codes), bool)
    hashes = (hashlib.sha256(key.encode()).hexdigest() for key in keys.to_pylist())
    until = np.array([forgotten.get(hashed, -1) for hashed in hashes], np.int64)
    found: Bools = batch <= until[codes]
    return found


def _before_removal(parts: Pairs, batch: Ints, removed: Pairs, removed_by: Ints) -> Bools:
    """Say which parts a later batch removed with their slice; what came with that batch or after it stays."""
    order, at = group_events(removed.codes, removed.time, 0)
    latest = np.maximum.reduceat(removed_by[order], at)
    rest = removed.take(order[at])
    row = Axis(rest.codes, rest.time).find(parts.codes, parts.time)
    out = are_among(parts, rest)
    out[out] = batch[out] < latest[row[out]]
    return out


def _merged(
    aggregates: Sequence[Aggregate], windows: TimeWindows, codes: Ints, parts: Partials, keys: pa.Array
) -> Records:
    """Merge the parts of each slice."""
    order, at = group_events(codes, parts.start, 0)
    if not len(at):
        return Records.empty()
    codes, start = codes[order][at], parts.start[order][at]
    groups, rows = Groups(at, len(order), lambda: keys.take(pa.array(codes))), pa.array(order)
    states = merge_states(aggregates, [column.take(rows) for column in parts.states], groups)
    count = np.add.reduceat(parts.count[order], at)
    packed = StateCodec(aggregates).encode(states, len(at))
    return Records(codes, start, start + windows.slice_us - 1, count, np.full(len(at), -1), packed)


def _sent_wrong(
    aggregates: Sequence[Aggregate],
    scope: SliceScope,
    keys: pa.Array,
    right: Records,
    sent: Pairs,
    rows: pa.Table,
    withheld: Pairs,
) -> Pairs:
    """Return of each closed window with a slice in the range that was sent as something else, or not at all, its last slice."""
    right = right.take(np.lexsort((right.start, right.codes)))
    # No window is told from when its slices changed: all that are closed are asked for.
    head = np.zeros(len(right), SLIDING)
    head["start"], head["count"], head["born"] = right.start, right.count, -1
    slices, firing = Slices(right.codes, head, right.state), Firing(AGAIN, -FOREVER, scope.close_us, 0, listed=False)
    asked = Pairs(right.codes, right.start).take(scope.holds(right.start))
    if isinstance(scope.windows, Grid):
        asked = grid_windows(scope.windows, asked, firing)
    windows = sent_windows(scope.windows, slices, SliceAxis(slices), asked, firing)
    if not len(windows):
        return NO_PAIRS
    names = Pairs(windows.codes, windows.start)
    count, states = states_of(aggregates, slices, windows, keys)
    order = np.lexsort((sent.time, sent.codes))
    at = Axis(sent.codes[order], sent.time[order]).find(names.codes, names.time)
    there = np.flatnonzero(are_among(names, sent))
    wrong = ~are_among(names, withheld)
    if len(there):
        was = rows.take(pa.array(order[at[there]]))
        same = count[there] == was["event_count"].to_numpy()
        for number, value in enumerate(values_of(aggregates, states)):
            same &= values_close(value.take(pa.array(there)), combined(was[f"v{number}"]).cast(value.type))
        wrong[there[same]] = False
    last = windows.high[wrong] - 1
    return Pairs(right.codes[last], right.start[last]).distinct()


def _difference(
    aggregates: Sequence[Aggregate],
    scope: SliceScope,
    keys: pa.Array,
    old: Records,
    new: Records,
    again: Pairs,
    withheld: Pairs,
) -> Difference:
    """Return a replacement of each slice that differs, and of those whose windows are to be sent again."""
    both = records.concat([old, new])
    order, at = group_events(both.codes, both.start, 0)
    groups = Groups(at, len(order))
    in_range, is_new = scope.holds(both.start)[order], order >= len(old)
    same = np.zeros(len(order), bool)
    same[order] = same_records(aggregates, order, both.codes, both.start, old, new)
    same = same[order]
    wrong = in_range & ~same
    slices = Pairs(both.codes, both.start).take(order[at]) if len(at) else NO_PAIRS
    differs = np.zeros(len(at), bool)
    differs[groups.ids[wrong]] = True
    named = np.flatnonzero(differs | are_among(slices, again))
    # What a slice is to become is what was computed, and out of the range what is stored.
    becomes = np.where(in_range, is_new, True)
    number = np.full(len(at), -1)
    number[named] = np.arange(len(named))
    group = number[groups.ids]
    put, removed = np.flatnonzero((group >= 0) & becomes), np.flatnonzero((group >= 0) & ~is_new)
    kept_away, kept_of = _around(slices.take(named), withheld, scope.windows.span_us)
    names = np.concatenate([group[removed], kept_of])
    by_slice = np.argsort(names, kind="stable")
    starts = np.concatenate([both.start[order[removed]], kept_away])[by_slice]
    revisions = np.concatenate([both.revision[order[removed]], np.full(len(kept_away), WINDOW)])[by_slice]
    rows = order[put]
    columns = [
        pa.array(both.start[rows]).cast(TIME),
        pa.array(both.end[rows]).cast(TIME),
        pa.array(both.count[rows]),
        both.state.take(pa.array(rows)),
    ]
    start, schema = pa.array(slices.time[named]), correction_schema()
    arrays = [
        keys.take(pa.array(slices.codes[named])).cast(pa.string()),
        start,
        start.cast(TIME),
        pa.array(np.full(len(named), scope.batch_id)),
        lists([pa.array(starts).cast(TIME), pa.array(revisions)], schema.field("remove"), names[by_slice], len(named)),
        lists(columns, schema.field("put"), group[put], len(named)),
    ]
    stats = {
        "slices": int((in_range & ~is_new).sum()),
        "unchanged": int((in_range & ~is_new & same).sum()),
        "removed": len(removed),
        "put": len(put),
        "sent_again": len(named) - int(differs.sum()),
        "corrections": len(named),
    }
    return Difference(pa.Table.from_arrays(arrays, schema=schema), stats)


def _around(slices: Pairs, withheld: Pairs, span_us: int) -> tuple[Ints, Ints]:
    """Return the starts of the windows that a change of each slice might send, of those that are to stay away; and which slice's."""
    if not len(withheld) or not len(slices):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # Where a slice goes, all change that share a window with it.
    low, high = Axis(withheld.codes, withheld.time).between(
        slices.codes, slices.time - 2 * span_us, slices.time + span_us
    )
    number = np.maximum(high - low, 0)
    return withheld.time[np.repeat(low, number) + within_group(number)], np.repeat(np.arange(len(slices)), number)
