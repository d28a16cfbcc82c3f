"""Partials that belonged to sessions removed on purpose: they stay out, whoever computes the sessions anew."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints, within_group
from sessionlake.columnar.groups import group_intervals
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.windows import SessionWindows


@dataclass(frozen=True)
class Removed:
    """Removed sessions: codes of keys, interval (inclusive) and the batch that removed them."""

    UNKNOWN: ClassVar[int] = np.iinfo(np.int64).min
    """End of a session whose rows the changelog no longer has."""

    codes: Ints
    start: Ints
    end: Ints
    batch: Ints


def excluded(codes: Ints, basis: Partials, waiting: Bools, removed: Removed, windows: SessionWindows) -> Bools:
    """Say which partials a later batch removed with the session that they were part of.

    `basis.revision` is the batch that consumed a partial: what came with the removal's own batch or after it stays,
    for replacements come first in a batch. `waiting` are late events, that were part of no session.
    """
    out = np.zeros(len(codes), bool)
    if not len(codes) or not len(removed.codes):
        return out
    end = _ends(codes, basis, waiting, removed, windows)
    order = np.lexsort((basis.start, codes))
    low = _positions(codes[order], basis.start[order], removed.codes, removed.start, side="left")
    high = _positions(codes[order], basis.start[order], removed.codes, end, side="right")
    counts = np.maximum(high - low, 0)
    rows = np.repeat(low, counts) + within_group(counts)
    latest = np.full(len(codes), -1)
    np.maximum.at(latest, rows, np.repeat(removed.batch, counts))
    out[order] = basis.revision[order] < latest
    return out


def _positions(codes: Ints, times: Ints, of_codes: Ints, of_times: Ints, *, side: str) -> Ints:
    """Return where (code, time) pairs stand among sorted ones, before ("left") or after ("right") equal ones."""
    n = len(codes)
    tie = np.concatenate([np.zeros(n), np.full(len(of_codes), -1 if side == "left" else 1)])
    order = np.lexsort((tie, np.concatenate([times, of_times]), np.concatenate([codes, of_codes])))
    before = np.cumsum(order < n)
    out = np.empty(len(order), np.int64)
    out[order] = before
    return out[n:]


def _ends(codes: Ints, basis: Partials, waiting: Bools, removed: Removed, windows: SessionWindows) -> Ints:
    """Return the removed sessions' ends; an unknown one is that of the chain which its start was part of at the time."""
    end = removed.end.copy()
    unknown = removed.end == Removed.UNKNOWN
    # One pass a batch that removed such sessions: as many as runs of expire, not as many as sessions.
    for batch in np.unique(removed.batch[unknown]).tolist():
        which = np.flatnonzero(unknown & (removed.batch == batch))
        there = np.flatnonzero((basis.revision < batch) & ~waiting)
        order, at = group_intervals(codes[there], basis.start[there], until_of(windows, basis)[there], 0)
        end[which] = removed.start[which]
        if not len(at):
            continue
        rows = there[order]
        chain_end = np.maximum.reduceat(basis.end[rows], at)
        chain = (
            _positions(codes[rows[at]], basis.start[rows[at]], removed.codes[which], removed.start[which], side="right")
            - 1
        )
        inside = (chain >= 0) & (codes[rows[at]][chain] == removed.codes[which])
        inside &= chain_end[chain] >= removed.start[which]
        end[which[inside]] = chain_end[chain[inside]]
    return end
