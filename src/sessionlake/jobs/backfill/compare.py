"""One bucket of keys: sessions computed anew from their basis, compared with those that are stored. Pure Arrow."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials, merge_states
from sessionlake.columnar.arrays import Bools, Groups, Ints, combined
from sessionlake.columnar.groups import group_intervals
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import Inputs
from sessionlake.jobs.backfill.basis import bring_together
from sessionlake.jobs.backfill.equality import states_equal
from sessionlake.jobs.backfill.events import Window
from sessionlake.jobs.backfill.removed import Removed, excluded
from sessionlake.jobs.backfill.way import Difference, correction_schema
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.warehouse.schemas import TIME

REMOVED, STORED = "removed", "stored"
"""Kinds of rows beside those of the basis: sessions removed on purpose, and the stored sessions."""


@dataclass(frozen=True)
class Scope:
    """What is compared: sessions that have a time in [from_us, to_us), given what was read of the window."""

    windows: SessionWindows
    from_us: int
    to_us: int
    window: Window
    forgotten: Mapping[str, int] = field(default_factory=dict)
    """SHA-256 of keys that were erased, and the last batch whose events are to stay out."""

    def touches(self, start: Ints, end: Ints) -> Bools:
        """Say which closed intervals have a time in the range."""
        return (end >= self.from_us) & (start < self.to_us)


def compare(aggregates: Sequence[Aggregate], scope: Scope, inputs: Inputs) -> Difference:
    """Compute a bucket's sessions and return what differs.

    Sessions that lie within the gap of one another, old or new, form a group: what is put for one never touches what is
    left of another.
    """
    basis, waiting = bring_together(aggregates, inputs)
    stored_keys, removed_keys = _keys(inputs, STORED), _keys(inputs, REMOVED)
    keys = pa.concat_arrays([basis.keys, stored_keys, removed_keys]).dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    n, m = len(basis), len(stored_keys)
    old = Records.from_table(codes[n : n + m], inputs[STORED]) if STORED in inputs else Records.empty()
    removed = _with_forgotten(_removed(inputs, codes[n + m :]), scope.forgotten, keys.dictionary)
    stats = dict(zip(("open_low", "open_high"), _open(scope, codes[: n + m], basis, old), strict=True))
    out = excluded(codes[:n], basis, waiting, removed, scope.windows)
    kept = np.flatnonzero(~out)
    new = _merged(aggregates, scope.windows, codes[kept], basis.take(kept), keys.dictionary)
    stats |= {"late_included": int((waiting & ~out).sum()), "withheld": int(basis.count[out].sum())}
    return _difference(aggregates, scope, keys.dictionary, old, new, stats)


def _keys(inputs: Inputs, kind: str) -> pa.Array:
    return combined(inputs[kind]["key"]) if kind in inputs else pa.array([], pa.string())


def _removed(inputs: Inputs, codes: Ints) -> Removed:
    if REMOVED not in inputs:
        none = np.zeros(0, np.int64)
        return Removed(none, none, none, none)
    table = inputs[REMOVED]
    ends = pc.fill_null(combined(table["end_us"]), Removed.UNKNOWN)
    return Removed(codes, table["start_us"].to_numpy(), ends.to_numpy(), table["batch_id"].to_numpy())


def _with_forgotten(removed: Removed, forgotten: Mapping[str, int], keys: pa.Array) -> Removed:
    """Add the erased keys as sessions of all times."""
    if not forgotten:
        return removed
    hashes = (hashlib.sha256(key.encode()).hexdigest() for key in keys.to_pylist())
    until = np.array([forgotten.get(hashed, -1) for hashed in hashes], np.int64)
    codes = np.flatnonzero(until >= 0)
    ever = np.full(len(codes), 1 << 62)
    return Removed(
        np.concatenate([removed.codes, codes]),
        np.concatenate([removed.start, -ever]),
        np.concatenate([removed.end, ever]),
        np.concatenate([removed.batch, until[codes] + 1]),
    )


def _open(scope: Scope, codes: Ints, basis: Partials, old: Records) -> tuple[int, int]:
    """Count the chains in the range that what lies before or after the window may belong to."""
    windows = scope.windows
    start, end = np.concatenate([basis.start, old.start]), np.concatenate([basis.end, old.end])
    until = np.concatenate([until_of(windows, basis), until_of(windows, old)])
    order, starts = group_intervals(codes, start, until, 0)
    if not len(starts):
        return 0, 0
    low, high = np.minimum.reduceat(start[order], starts), np.maximum.reduceat(end[order], starts)
    inside = scope.touches(low, high)
    before = inside & (low - windows.widest_us < scope.window.low)
    after = inside & (np.maximum.reduceat(until[order], starts) > scope.window.high)
    return int(before.sum()), int(after.sum())


def _merged(
    aggregates: Sequence[Aggregate], windows: SessionWindows, codes: Ints, partials: Partials, keys: pa.Array
) -> Records:
    until = until_of(windows, partials)
    order, at = group_intervals(codes, partials.start, until, 0)
    if not len(at):
        return Records.empty()
    codes = codes[order]
    groups = Groups(at, len(order), lambda: keys.take(pa.array(codes[at])))
    rows = pa.array(order)
    states = merge_states(aggregates, [column.take(rows) for column in partials.states], groups)
    return Records(
        codes[at],
        np.minimum.reduceat(partials.start[order], at),
        np.maximum.reduceat(partials.end[order], at),
        np.add.reduceat(partials.count[order], at),
        np.full(len(at), -1),
        StateCodec(aggregates).encode(states, len(at)),
        np.maximum.reduceat(until[order], at) if windows.keeps_until else None,
    )


def _difference(
    aggregates: Sequence[Aggregate],
    scope: Scope,
    keys: pa.Array,
    old: Records,
    new: Records,
    stats: dict[str, int],
) -> Difference:
    codes = np.concatenate([old.codes, new.codes])
    start, end = np.concatenate([old.start, new.start]), np.concatenate([old.end, new.end])
    until = np.concatenate([until_of(scope.windows, old), until_of(scope.windows, new)])
    order, at = group_intervals(codes, start, until, 0)
    groups = Groups(at, len(order))
    in_range = np.zeros(len(order), bool)
    if len(at):
        touched = np.logical_or.reduceat(scope.touches(start[order], end[order]), at)
        in_range = touched[groups.ids]
    same = np.zeros(len(order), bool)
    same[order] = same_records(aggregates, order, codes, start, old, new)
    wrong = in_range & ~same[order]
    stats |= {
        "sessions": int((in_range & (order < len(old.codes))).sum()),
        "unchanged": int((in_range & ~wrong & (order < len(old.codes))).sum()),
        "removed": int((wrong & (order < len(old.codes))).sum()),
        "put": int((wrong & (order >= len(old.codes))).sum()),
    }
    ids = np.unique(groups.ids[wrong])
    stats["corrections"] = len(ids)
    first = at[ids]
    members, group = order[wrong], np.searchsorted(ids, groups.ids[wrong])
    is_old = members < len(old.codes)
    removed, put = members[is_old], members[~is_old] - len(old.codes)
    schema = correction_schema(until=scope.windows.keeps_until)
    rows = [
        keys.take(pa.array(codes[order[first]])).cast(pa.string()),
        pa.array(start[order[first]], pa.int64()),
        pa.nulls(len(ids), TIME),
        pa.nulls(len(ids), pa.int64()),
        lists(
            [pa.array(old.start[removed]).cast(TIME), pa.array(old.revision[removed])],
            schema.field("remove"),
            group[is_old],
            len(ids),
        ),
        lists(
            [
                pa.array(new.start[put]).cast(TIME),
                pa.array(new.end[put]).cast(TIME),
                pa.array(new.count[put]),
                new.state.take(pa.array(put, pa.int64())),
                *([] if new.until is None else [pa.array(new.until[put]).cast(TIME)]),
            ],
            schema.field("put"),
            group[~is_old],
            len(ids),
        ),
    ]
    return Difference(pa.Table.from_arrays(rows, schema=schema), stats)


def same_records(
    aggregates: Sequence[Aggregate], order: Ints, codes: Ints, start: Ints, old: Records, new: Records
) -> Bools:
    """Say of each session in order, old or new, whether there is one of the other side that equals it."""
    out = np.zeros(len(order), bool)
    side = order >= len(old.codes)
    pair = np.flatnonzero(
        (codes[order[1:]] == codes[order[:-1]]) & (start[order[1:]] == start[order[:-1]]) & (side[1:] != side[:-1])
    )
    if not len(pair):
        return out
    a = np.where(side[pair], order[pair + 1], order[pair])
    b = np.where(side[pair], order[pair], order[pair + 1]) - len(old.codes)
    alike = (old.end[a] == new.end[b]) & (old.count[a] == new.count[b])
    if old.until is not None and new.until is not None:
        alike &= old.until[a] == new.until[b]
    pair, a, b = pair[alike], a[alike], b[alike]
    equal = states_equal(aggregates, old.state.take(pa.array(a)), new.state.take(pa.array(b)))
    out[pair[equal]] = True
    out[pair[equal] + 1] = True
    return out


def lists(columns: list[pa.Array], of: pa.Field, group: Ints, groups: int) -> pa.Array:
    """Return for each group a list of structs, as a column has it; rows are in group order."""
    type_ = of.type
    offsets = np.searchsorted(group, np.arange(groups + 1)).astype(np.int32)
    arrays = [column.cast(field.type) for column, field in zip(columns, type_.value_type, strict=True)]
    items = pa.StructArray.from_arrays(arrays, fields=list(type_.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=type_)
