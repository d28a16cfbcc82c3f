"""Partials of sessions that were removed on purpose: they stay out whenever sessions are computed again."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Bools, Ints, within_group
from sessionlake.columnar.groups import group_intervals
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.windows import SessionWindows


@dataclass(frozen=True)
class RemovedSessions:
    """Sessions that were removed: the codes of their keys, their intervals (bounds inclusive) and the batch that removed each."""

    UNKNOWN: ClassVar[int] = np.iinfo(np.int64).min
    """End of a session whose rows the changelog no longer has."""

    codes: Ints
    start: Ints
    end: Ints
    batch: Ints


def excluded(codes: Ints, basis: Partials, waiting: Bools, removed: RemovedSessions, windows: SessionWindows) -> Bools:
    """Say which partials a later batch removed with the session that they were part of.

    `basis.revision` is the batch that consumed a partial: a partial of the removal's own batch or of a later one stays,
    because replacements come first in a batch. `waiting` are late events, which were part of no session.
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
    """Return the places of (code, time) pairs among n sorted ones, before ("left") or after ("right") equal ones.

    As numpy's searchsorted, for pairs.
    """
    n = len(codes)
    # Both lists are sorted together; the tie decides whether a searched pair stands before or after equal ones.
    tie = np.concatenate([np.zeros(n), np.full(len(of_codes), -1 if side == "left" else 1)])
    order = np.lexsort((tie, np.concatenate([times, of_times]), np.concatenate([codes, of_codes])))
    # How many of the n pairs stand at or before each place of the common order.
    before = np.cumsum(order < n)
    out = np.empty(len(order), np.int64)
    out[order] = before
    return out[n:]


def _ends(codes: Ints, basis: Partials, waiting: Bools, removed: RemovedSessions, windows: SessionWindows) -> Ints:
    """Return the removed sessions' ends; an unknown end is that of the chain to which the start belonged at the time."""
    end = removed.end.copy()
    unknown = removed.end == RemovedSessions.UNKNOWN
    # One pass for each batch that removed such sessions: their number is that of expire's runs, not that of sessions.
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
