"""The rules of the sessionizer for one shard and one micro-batch (design section 3, rules 2 to 6), vectorised.

The caller has applied rules 1 and 3 (contract, beyond retention) and hands in the stored sessions of the keys at hand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.scalars import BYTES
from sessionlake.columnar.arrays import Bools, Groups, Ints, combined
from sessionlake.operators.sessions.corrections import Removals, decide
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.sessions.kernel import group_intervals, merge_states
from sessionlake.sessions.partials import StateCodec

EVENT, RESTATED, PUT = 0, 1, 2


@dataclass(frozen=True)
class Arrivals:
    """New partials of the batch: codes of their keys, and whether each is of events, restated or put."""

    codes: Ints
    start: Ints
    end: Ints
    count: Ints
    states: States
    kind: Ints
    correction: list[str | None]
    """The replacement that puts the partial; one entry a partial, or empty where nothing is put."""
    keys: Callable[[], pa.Array]
    """The key of each code."""


@dataclass(frozen=True)
class Stored:
    """Stored sessions with packed states; codes say which of the batch's keys each belongs to."""

    codes: Ints
    start: Ints
    end: Ints
    count: Ints
    revision: Ints
    state: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def empty(cls) -> "Stored":
        """Return no sessions."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, pa.array([], BYTES))

    @classmethod
    def from_table(cls, codes: Ints, table: pa.Table) -> "Stored":
        """Return the sessions of a table's columns start_us, end_us, event_count, revision and state."""
        names = ("start_us", "end_us", "event_count", "revision")
        start, end, count, revision = (table[name].to_numpy() for name in names)
        return cls(codes, start, end, count, revision, combined(table["state"]))

    def take(self, rows: Ints) -> "Stored":
        """Return the given rows, in that order."""
        return Stored(
            self.codes[rows],
            self.start[rows],
            self.end[rows],
            self.count[rows],
            self.revision[rows],
            self.state.take(pa.array(rows)),
        )


@dataclass(frozen=True)
class Verdict:
    """What the batch does to the shard."""

    changed: Stored
    """Sessions that are new or changed, at their new revision."""
    states: States
    """Their states, unpacked."""
    deleted: Ints
    """Rows of the stored sessions whose (key, start) no longer exists."""
    gone: Bools
    """Per stored session: it was removed or became part of a changed one."""
    late: Bools
    """Per arrival: it belongs to a late session."""
    stale: frozenset[str]
    applied: frozenset[str]


def apply_batch(
    aggregates: Sequence[Aggregate],
    gap: int,
    bounds: Bounds,
    batch_id: int,
    arrivals: Arrivals,
    stored: Stored,
    removals: Removals,
) -> Verdict:
    """Apply a batch's arrivals and removals to the stored sessions of its keys.

    `stored` must hold every session of those keys that lies within gap of an arrival or is named by a removal; more do
    no harm.
    """
    puts = {c for c in arrivals.correction if c is not None}
    decision = decide(removals, puts, stored.codes, stored.start, stored.revision)
    ignored = np.zeros(len(arrivals.codes), bool)
    if decision.stale and arrivals.correction:
        ignored = np.array([c in decision.stale for c in arrivals.correction])
    new, old = np.flatnonzero(~ignored), np.flatnonzero(~decision.removed)

    start = np.concatenate([arrivals.start[new], stored.start[old]])
    end = np.concatenate([arrivals.end[new], stored.end[old]])
    order, starts = group_intervals(np.concatenate([arrivals.codes[new], stored.codes[old]]), start, end, gap)
    groups = Groups(starts, len(order))
    is_new = order < len(new)
    corrected = np.zeros(len(order), bool)
    corrected[is_new] = arrivals.kind[new[order[is_new]]] != EVENT
    if len(starts):
        late = ~np.logical_or.reduceat(corrected, starts) & (np.maximum.reduceat(end[order], starts) < bounds.close_us)
        touched = np.logical_or.reduceat(is_new, starts)
    else:
        late = touched = np.zeros(0, bool)
    late_rows = np.zeros(len(arrivals.codes), bool)
    late_rows[new[order[is_new & late[groups.ids]]]] = True

    merged = (touched & ~late)[groups.ids]
    sizes = groups.sizes[touched & ~late]
    members = Groups(np.cumsum(sizes) - sizes, int(sizes.sum()))
    members_of_new, members_of_old = _split(order[merged], new, old)
    changed, states = _merge(aggregates, batch_id, arrivals, stored, members, members_of_new, members_of_old)
    gone = decision.removed.copy()
    gone[members_of_old[1]] = True
    unchanged = _put_back_unchanged(
        _by_puts_alone(arrivals.kind, members, members_of_new), changed, stored, decision.removed, gone
    )
    deleted = _deleted(members, members_of_old, changed, stored, decision.removed & gone)
    if unchanged.any():
        kept = np.flatnonzero(~unchanged)
        changed, states = changed.take(kept), [column.take(pa.array(kept)) for column in states]
    return Verdict(changed, states, deleted, gone, late_rows, decision.stale, decision.applied)


Members = tuple[Ints, Ints]
"""Positions among the members of merged groups, and the rows of arrivals (or of stored sessions) that stand there."""


def _split(order: Ints, new: Ints, old: Ints) -> tuple[Members, Members]:
    is_new = order < len(new)
    at_new, at_old = np.flatnonzero(is_new), np.flatnonzero(~is_new)
    return (at_new, new[order[at_new]]), (at_old, old[order[at_old] - len(new)])


def _merge(
    aggregates: Sequence[Aggregate],
    batch_id: int,
    arrivals: Arrivals,
    stored: Stored,
    groups: Groups,
    from_new: Members,
    from_old: Members,
) -> tuple[Stored, States]:
    """Merge each group's arrivals and stored sessions; only stored sessions that take part are unpacked."""
    codec = StateCodec(aggregates)

    def gather(a: Ints, b: Ints) -> Ints:
        out = np.empty(groups.rows, np.int64)
        out[from_new[0]], out[from_old[0]] = a[from_new[1]], b[from_old[1]]
        return out

    unpacked = codec.decode(stored.state.take(pa.array(from_old[1])))
    place = np.empty(groups.rows, np.int64)
    place[from_new[0]] = np.arange(len(from_new[0]))
    place[from_old[0]] = len(from_new[0]) + np.arange(len(from_old[0]))
    rows, places = pa.array(from_new[1]), pa.array(place)
    states = [pa.concat_arrays([a.take(rows), s]).take(places) for a, s in zip(arrivals.states, unpacked, strict=True)]
    codes, at = gather(arrivals.codes, stored.codes), groups.starts
    if not len(at):
        return Stored.empty(), states
    keyed = Groups(at, groups.rows, lambda: arrivals.keys().take(pa.array(codes[at])))
    merged = merge_states(aggregates, states, keyed)
    return Stored(
        codes=codes[at],
        start=np.minimum.reduceat(gather(arrivals.start, stored.start), at),
        end=np.maximum.reduceat(gather(arrivals.end, stored.end), at),
        count=np.add.reduceat(gather(arrivals.count, stored.count), at),
        revision=np.full(len(at), batch_id),
        state=codec.encode(merged, len(at)),
    ), merged


def _by_puts_alone(kind: Ints, groups: Groups, from_new: Members) -> Bools:
    """Say of each group whether all arrivals in it were put.

    A session that an event forms again is a change even where it looks the same: at its old revision a correction
    written before that event could still remove it.
    """
    if not len(groups.starts) or not (kind == PUT).any():
        return np.zeros(len(groups.starts), bool)
    put = np.ones(groups.rows, bool)
    put[from_new[0]] = kind[from_new[1]] == PUT
    return np.logical_and.reduceat(put, groups.starts)


def _put_back_unchanged(by_puts: Bools, changed: Stored, stored: Stored, removed: Bools, gone: Bools) -> Bools:
    """Say which changed sessions equal the removed one they replace, and mark those as not gone after all."""
    unchanged = np.zeros(len(changed), bool)
    if not by_puts.any():
        return unchanged
    before = {(int(stored.codes[i]), int(stored.start[i])): int(i) for i in np.flatnonzero(removed)}
    for i in np.flatnonzero(by_puts & np.isin(changed.codes, stored.codes[removed])):
        o = before.get((int(changed.codes[i]), int(changed.start[i])))
        if (
            o is None
            or changed.end[i] != stored.end[o]
            or changed.count[i] != stored.count[o]
            or changed.state[int(i)] != stored.state[o]
        ):
            continue
        unchanged[i] = True
        gone[o] = False
    return unchanged


def _deleted(groups: Groups, from_old: Members, changed: Stored, stored: Stored, removed: Bools) -> Ints:
    """Return the stored sessions that are gone and whose (key, start) no changed session has."""
    at, rows = from_old
    absorbed = rows[stored.start[rows] != changed.start[groups.ids[at]]]
    out = np.flatnonzero(removed)
    if not len(out):
        return absorbed
    successors = set(zip(changed.codes.tolist(), changed.start.tolist(), strict=True)) if len(changed) else set()
    pairs = zip(stored.codes[out].tolist(), stored.start[out].tolist(), strict=True)
    return np.concatenate([absorbed, out[[pair not in successors for pair in pairs]]])
