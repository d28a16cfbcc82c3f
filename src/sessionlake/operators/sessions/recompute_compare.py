"""One bucket of keys: sessions computed again from partials, compared with the stored sessions. Pure Arrow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Groups, Ints, combined
from sessionlake.columnar.groups import group_intervals
from sessionlake.columnar.records import Records, concat
from sessionlake.engine.operator import Inputs
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.marks import split_marks
from sessionlake.operators.sessions.recompute_partials import bring_together
from sessionlake.operators.sessions.recompute_removals import RemovedSessions, excluded
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.comparison import Comparison, Difference, are_forgotten, correction_schema, merged
from sessionlake.stream.recompute import REMOVED, STORED, Window
from sessionlake.warehouse.schemas import TIME


@dataclass(frozen=True)
class Scope:
    """The range of the comparison: sessions that have a time in [from_us, to_us), given the rows that were read of the window."""

    windows: SessionWindows
    from_us: int
    to_us: int
    window: Window
    forgotten: Mapping[str, int] = field(default_factory=dict)
    """SHA-256 of keys that were erased, and the last batch whose events are to stay out."""
    marked: bool = False
    """Whether stored states have marks before them, as those of sessions that are sent by policy."""

    def touches(self, start: Ints, end: Ints) -> Bools:
        """Say which closed intervals have a time in the range."""
        return (end >= self.from_us) & (start < self.to_us)


def compare(aggregates: Sequence[Aggregate], scope: Scope, inputs: Inputs) -> Difference:
    """Compute a bucket's sessions and return the differences from the stored ones.

    Sessions that lie within the gap of one another, old or new, form a group: a session put for one group never touches a session
    left of another.
    """
    basis, waiting = bring_together(aggregates, inputs)
    stored_keys, removed_keys = _keys(inputs, STORED), _keys(inputs, REMOVED)
    keys = pa.concat_arrays([basis.keys, stored_keys, removed_keys]).dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    n, m = len(basis), len(stored_keys)
    old = Records.from_table(codes[n : n + m], inputs[STORED]) if STORED in inputs else Records.empty()
    if scope.marked:
        old = replace(old, state=split_marks(old.state)[1])
    stats = dict(zip(("open_low", "open_high"), _open(scope, codes[: n + m], basis, old), strict=True))
    out = excluded(codes[:n], basis, waiting, _removed(inputs, codes[n + m :]), scope.windows)
    out |= are_forgotten(codes[:n], basis.revision, scope.forgotten, keys.dictionary)
    rest = np.flatnonzero(~out)
    new = _sessions(aggregates, scope.windows, codes[rest], basis.take(rest), keys.dictionary)
    compared = _compared(aggregates, scope, keys.dictionary, old, new)
    number = len(compared.named)
    schema = correction_schema(until=scope.windows.keeps_until)
    found = compared.difference(schema, pa.nulls(number, TIME), pa.nulls(number, pa.int64()))
    stats |= {
        "sessions": int((compared.in_range & ~compared.is_new).sum()),
        "late_included": int((waiting & ~out).sum()),
        "withheld": int(basis.count[out].sum()),
    }
    return replace(found, stats=found.stats | stats)


def _sessions(
    aggregates: Sequence[Aggregate], windows: SessionWindows, codes: Ints, partials: Partials, keys: pa.Array
) -> Records:
    """Merge partials into sessions."""
    until = until_of(windows, partials)
    grouped = group_intervals(codes, partials.start, until, 0)
    return merged(aggregates, partials, codes, keys, grouped, until if windows.keeps_until else None)


def _keys(inputs: Inputs, kind: str) -> pa.Array:
    return combined(inputs[kind]["key"]) if kind in inputs else pa.array([], pa.string())


def _removed(inputs: Inputs, codes: Ints) -> RemovedSessions:
    if REMOVED not in inputs:
        none = np.zeros(0, np.int64)
        return RemovedSessions(none, none, none, none)
    table = inputs[REMOVED]
    ends = pc.fill_null(combined(table["end_us"]), RemovedSessions.UNKNOWN)
    return RemovedSessions(codes, table["start_us"].to_numpy(), ends.to_numpy(), table["batch_id"].to_numpy())


def _open(scope: Scope, codes: Ints, basis: Partials, old: Records) -> tuple[int, int]:
    """Count the chains in the range to which events before or after the window may belong."""
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


def _compared(aggregates: Sequence[Aggregate], scope: Scope, keys: pa.Array, old: Records, new: Records) -> Comparison:
    """Group sessions, stored and computed, that lie within the gap of one another; a group with a time in the range is compared."""
    both = concat([old, new])
    until = np.concatenate([until_of(scope.windows, old), until_of(scope.windows, new)])
    order, at = group_intervals(both.codes, both.start, until, 0)
    in_range = np.zeros(len(order), bool)
    if len(at):
        touched = np.logical_or.reduceat(scope.touches(both.start[order], both.end[order]), at)
        in_range = touched[Groups(at, len(order)).ids]
    return Comparison(aggregates, keys, old, new, order, at, in_range, again=np.zeros(len(at), bool))
