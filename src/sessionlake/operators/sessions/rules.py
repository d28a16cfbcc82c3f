"""The rules of sessions in one shard and batch: docs/rules.md, rules 2, 4 to 6, 160, 161 and 264, vectorised.

The caller has applied the other two that refuse rows, 1 (contract) and 3 (beyond retention), and supplies the stored
sessions of the batch's keys, the cold ones only if rule 2 asks for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import merge_states
from sessionlake.columnar.arrays import Bools, Groups, Ints, concatenated, is_among, picked
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.groups import group_intervals
from sessionlake.columnar.records import Records
from sessionlake.operators.sessions.corrections import Removals, decide
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.windows import Bounds, SessionWindows

EVENT, RESTATED, PUT = 0, 1, 2
"""The origin of a new partial: events of the stream, a `restate`, or a `replace` that puts it."""


@dataclass(frozen=True)
class Arrivals:
    """New partials of the batch, in columns of equal length; times inclusive, microseconds."""

    codes: Ints
    """The key of each partial, as a number among the batch's keys."""
    start: Ints
    end: Ints
    count: Ints
    states: States
    until: Ints
    """Until when each is open, inclusive."""
    kind: Ints
    """EVENT, RESTATED or PUT."""
    correction: list[str | None]
    """The replacement that puts the partial; one entry a partial, or empty if nothing is put."""
    keys: Callable[[], pa.Array]
    """Returns the key of each code. A call, since only users' aggregates ask for keys."""


@dataclass(frozen=True)
class Verdict:
    """The effects of a batch on the shard: the changes to forward, the late events, and the outcomes of replacements."""

    changed: Records
    """Sessions that are new or changed, at their new revision."""
    states: States
    """Their states, unpacked."""
    deleted: Ints
    """Rows of the stored sessions whose (key, start) no longer exists."""
    gone: Bools
    """Per stored session: it was removed or became part of a changed one."""
    merged_into: Ints
    """Per stored session: the row of the changed session that it became part of, -1 for none."""
    late: Bools
    """Per arrival: it belongs to a late session. True of events only."""
    stale: frozenset[str]
    """Replacements that changed nothing, because a session that they name has changed or is gone."""
    applied: frozenset[str]
    """Replacements that were done, also if no row changed by it."""


def apply_batch(
    aggregates: Sequence[Aggregate],
    windows: SessionWindows,
    bounds: Bounds,
    batch_id: int,
    arrivals: Arrivals,
    stored: Records,
    removals: Removals,
    *,
    finals_last: bool = False,
) -> Verdict:
    """Apply a batch's arrivals and removals to the stored sessions of its keys; `finals_last` asks for rule 264.

    `stored` must hold every session of their keys that joins an arrival or that a removal names; more do no harm. Neither the arrivals' nor the sessions' order matters. The store itself is not touched.
    """
    # Rule 2: replacements are decided on the state before the batch; a stale one is ignored with the sessions that it puts.
    puts = {c for c in arrivals.correction if c is not None}
    decision = decide(removals, puts, stored.codes, stored.start, stored.revision)
    ignored = np.zeros(len(arrivals.codes), bool)
    if decision.stale and arrivals.correction:
        ignored = np.array([c in decision.stale for c in arrivals.correction])
    if finals_last:
        too_late = _too_late(windows, bounds.open_us, arrivals, stored, decision.removed)
    else:
        too_late = np.zeros(len(arrivals.codes), bool)
    new, old = np.flatnonzero(~ignored & ~too_late), np.flatnonzero(~decision.removed)

    # Rule 4: the rest of both, concatenated: a row below len(new) is an arrival, the others are stored sessions.
    start = np.concatenate([arrivals.start[new], stored.start[old]])
    until = np.concatenate([arrivals.until[new], until_of(windows, stored)[old]])
    order, starts = group_intervals(np.concatenate([arrivals.codes[new], stored.codes[old]]), start, until, 0)
    groups = Groups(starts, len(order))
    is_new = order < len(new)
    # Rule 5: the merged session decides, and no group is late that a correction is part of.
    corrected = np.zeros(len(order), bool)
    corrected[is_new] = arrivals.kind[new[order[is_new]]] != EVENT
    if len(starts):
        late = ~np.logical_or.reduceat(corrected, starts) & (np.maximum.reduceat(until[order], starts) < bounds.open_us)
        touched = np.logical_or.reduceat(is_new, starts)
    else:
        late = touched = np.zeros(0, bool)
    late_rows = too_late
    # Positions in the order -> rows below len(new) -> rows of the arrivals.
    late_arrivals = new[order[is_new & late[groups.ids]]]
    late_rows[late_arrivals] = True

    # Rule 6 for the groups that have an arrival and are not late. Stored sessions of other groups stay as they are.
    merged = (touched & ~late)[groups.ids]
    # The groups again, of the members that are merged alone.
    sizes = groups.sizes[touched & ~late]
    members = Groups(np.cumsum(sizes) - sizes, int(sizes.sum()))
    members_of_new, members_of_old = _split(order[merged], new, old)
    changed, states = _merge(aggregates, batch_id, arrivals, stored, members, members_of_new, members_of_old)
    if windows.keeps_until:
        changed = replace(
            changed, until=np.maximum.reduceat(until[order][merged], members.starts) if len(changed) else changed.end
        )
    # A stored session is gone if a replacement removed it, or if it is a member of a merged group.
    gone = decision.removed.copy()
    gone[members_of_old[1]] = True
    unchanged = _put_back_unchanged(
        _formed_by_puts_only(arrivals.kind, members, members_of_new), changed, stored, decision.removed, gone
    )
    deleted = _deleted(members, members_of_old, changed, stored, decision.removed & gone)
    merged_into = np.full(len(stored), -1)
    merged_into[members_of_old[1]] = (np.cumsum(~unchanged) - 1)[members.ids[members_of_old[0]]]
    if unchanged.any():
        kept = np.flatnonzero(~unchanged)
        changed, states = changed.take(kept), [column.take(pa.array(kept)) for column in states]
    return Verdict(changed, states, deleted, gone, merged_into, late_rows, decision.stale, decision.applied)


def _too_late(windows: SessionWindows, open_us: int, arrivals: Arrivals, stored: Records, removed: Bools) -> Bools:
    """Say which events would themselves join a closed session that stays (rule 264)."""
    late = np.zeros(len(arrivals.codes), bool)
    until = until_of(windows, stored)
    # An event that begins after all of them have closed can join none.
    may = np.flatnonzero((arrivals.kind == EVENT) & (arrivals.start < open_us))
    closed = np.flatnonzero((until < open_us) & ~removed & is_among(stored.codes, arrivals.codes[may]))
    if len(closed):
        closed = closed[np.lexsort((stored.start[closed], stored.codes[closed]))]
        codes, of = stored.codes[closed], arrivals.codes[may]
        # Sessions of a key lie apart: the last one that begins while the arrival is open is the only one to look at.
        at = Axis(codes, stored.start[closed]).find(of, arrivals.until[may] + 1) - 1
        late[may] = (at >= 0) & (codes[at] == of) & (arrivals.start[may] <= until[closed][at])
    return late


Members = tuple[Ints, Ints]
"""Positions among the members of merged groups, and the rows of arrivals (or of stored sessions) that stand there."""


def _split(order: Ints, new: Ints, old: Ints) -> tuple[Members, Members]:
    """Return the members that are arrivals, and those that are stored sessions."""
    is_new = order < len(new)
    at_new, at_old = np.flatnonzero(is_new), np.flatnonzero(~is_new)
    return (at_new, new[order[at_new]]), (at_old, old[order[at_old] - len(new)])


def _merge(
    aggregates: Sequence[Aggregate],
    batch_id: int,
    arrivals: Arrivals,
    stored: Records,
    groups: Groups,
    from_new: Members,
    from_old: Members,
) -> tuple[Records, States]:
    """Return one session a group, at this batch's revision, and its unpacked states; only stored sessions that take part are unpacked."""
    codec = StateCodec(aggregates)

    def gather(a: Ints, b: Ints) -> Ints:
        """Return a column of the members, of the arrivals' column and the stored sessions'."""
        out = np.empty(groups.rows, np.int64)
        out[from_new[0]], out[from_old[0]] = a[from_new[1]], b[from_old[1]]
        return out

    unpacked = codec.decode(stored.state.take(pa.array(from_old[1])))
    # The place of each member's state in [states of arrivals, states of stored sessions].
    place = np.empty(groups.rows, np.int64)
    place[from_new[0]] = np.arange(len(from_new[0]))
    place[from_old[0]] = len(from_new[0]) + np.arange(len(from_old[0]))
    rows, places = pa.array(from_new[1]), pa.array(place)
    states = [
        picked(concatenated([picked(a, rows), s]), places) for a, s in zip(arrivals.states, unpacked, strict=True)
    ]
    codes, at = gather(arrivals.codes, stored.codes), groups.starts
    if not len(at):
        return Records.empty(), states
    keyed = Groups(at, groups.rows, lambda: arrivals.keys().take(pa.array(codes[at])))
    merged = merge_states(aggregates, states, keyed)
    return Records(
        codes=codes[at],
        start=np.minimum.reduceat(gather(arrivals.start, stored.start), at),
        end=np.maximum.reduceat(gather(arrivals.end, stored.end), at),
        count=np.add.reduceat(gather(arrivals.count, stored.count), at),
        revision=np.full(len(at), batch_id),
        state=codec.encode(merged, len(at)),
    ), merged


def _formed_by_puts_only(kind: Ints, groups: Groups, from_new: Members) -> Bools:
    """Say of each group whether all arrivals in it were put by replacements.

    A session that an event forms again is a change even if it looks the same: at its old revision a correction
    written before that event could still remove it.
    """
    if not len(groups.starts) or not (kind == PUT).any():
        return np.zeros(len(groups.starts), bool)
    put = np.ones(groups.rows, bool)
    put[from_new[0]] = kind[from_new[1]] == PUT
    return np.logical_and.reduceat(put, groups.starts)


def _put_back_unchanged(by_puts: Bools, changed: Records, stored: Records, removed: Bools, gone: Bools) -> Bools:
    """Say which changed sessions equal the removed one they replace, and mark those as not gone after all."""
    unchanged = np.zeros(len(changed), bool)
    if not by_puts.any():
        return unchanged
    # Python loops are fine here: they run over the control rows of replacements, and a batch has few.
    before = {(int(stored.codes[i]), int(stored.start[i])): int(i) for i in np.flatnonzero(removed)}
    for i in np.flatnonzero(by_puts & np.isin(changed.codes, stored.codes[removed])):
        o = before.get((int(changed.codes[i]), int(changed.start[i])))
        if (
            o is None
            or changed.end[i] != stored.end[o]
            or changed.count[i] != stored.count[o]
            or (changed.until is not None and stored.until is not None and changed.until[i] != stored.until[o])
            or changed.state[int(i)] != stored.state[o]
        ):
            continue
        unchanged[i] = True
        gone[o] = False
    return unchanged


def _deleted(groups: Groups, from_old: Members, changed: Records, stored: Records, removed: Bools) -> Ints:
    """Return the stored sessions that are gone and whose (key, start) no changed session has.

    A session whose start stays is replaced by the upsert of the same identity, and needs no delete.
    """
    at, rows = from_old
    # A merged group's start is one of its members': only the stored sessions that begin later lose their identity.
    absorbed = rows[stored.start[rows] != changed.start[groups.ids[at]]]
    out = np.flatnonzero(removed)
    if not len(out):
        return absorbed
    successors = set(zip(changed.codes.tolist(), changed.start.tolist(), strict=True)) if len(changed) else set()
    pairs = zip(stored.codes[out].tolist(), stored.start[out].tolist(), strict=True)
    return np.concatenate([absorbed, out[[pair not in successors for pair in pairs]]])
