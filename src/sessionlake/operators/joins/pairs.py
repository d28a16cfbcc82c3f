"""The pairs of a join: of points on both sides, some of them new, each pair that a new one makes, once.

A pair of two points that both were there before is not sent again: a new right point is paired with all left ones, a new
left point with those right ones alone that are not new. In a session a new point may also bring together points that were
in two sessions before: of a point that was there, those partners count that are new or were in another session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sessionlake.columnar.arrays import Bools, Ints, within_group
from sessionlake.columnar.axis import Axis
from sessionlake.columnar.groups import group_events
from sessionlake.errors import StoreError
from sessionlake.operators.joins.axis import JoinAxis, Session
from sessionlake.operators.shared.sides.names import LEFT, RIGHT

CHUNK = 4_000_000
"""Pairs that are made at a time."""
LIMIT = 50_000_000
"""Pairs of a shard and batch."""


@dataclass(frozen=True)
class Points:
    """Points of one side, ascending by (code, x); `codes` say which of some keys each belongs to."""

    codes: Ints
    x: Ints
    new: Bools

    def take(self, rows: Ints) -> "Points":
        """Return the given rows, in that order."""
        return Points(self.codes[rows], self.x[rows], self.new[rows])


@dataclass(frozen=True)
class _Runs:
    """Rows of one side and the partners of each: the rows at the places [first, end) of `of`."""

    rows: Ints
    first: Ints
    end: Ints
    of: Ints
    is_left: bool


def pairs(axis: JoinAxis, left: Points, right: Points) -> Iterator[tuple[Ints, Ints]]:
    """Yield rows of left and of right, a pair at each place, in pieces of at most CHUNK.

    Raises StoreError if there are more than LIMIT, before the first.
    """
    runs = _in_sessions(axis, left, right) if isinstance(axis, Session) else _in_range(axis, left, right)
    number = sum(int(np.maximum(run.end - run.first, 0).sum()) for run in runs)
    if number > LIMIT:
        raise StoreError(
            f"pipeline.shards: {number} pairs of one shard in a batch are more than {LIMIT}; "
            "raise it, or make the join's size smaller, or lower max_bytes_per_batch of its sources"
        )
    for run in runs:
        for rows, partners in _expanded(run):
            yield (rows, partners) if run.is_left else (partners, rows)


def stretches(axis: JoinAxis, left: Points, right: Points) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Return the first and the last place of the partners of each point, of left and of right; in a session, as it is with all points."""
    if not isinstance(axis, Session):
        return axis.partners(LEFT, left.x), axis.partners(RIGHT, right.x)
    codes, x = np.concatenate([left.codes, right.codes]), np.concatenate([left.x, right.x])
    low, high, _ = _sessions(codes, x, np.zeros(len(x), bool), axis.gap)
    low, high = np.maximum(low, x - axis.span), np.minimum(high, x + axis.span)
    cut = len(left.x)
    return (low[:cut], high[:cut]), (low[cut:], high[cut:])


def _in_range(axis: JoinAxis, left: Points, right: Points) -> Sequence[_Runs]:
    # Each new pair is found once: a new right point with all left ones, a new left point with old right ones only.
    old = np.flatnonzero(~right.new)
    return (
        _new_runs(axis, RIGHT, right, left, np.arange(len(left.x))),
        _new_runs(axis, LEFT, left, right.take(old), old),
    )


def _new_runs(axis: JoinAxis, side: str, points: Points, others: Points, of: Ints) -> _Runs:
    """Return the partners of each new point of a side; `of` are the rows of the other side."""
    rows = np.flatnonzero(points.new)
    low, high = axis.partners(side, points.x[rows])
    first, end = Axis(others.codes, others.x).between(points.codes[rows], low, high)
    return _Runs(rows, first, end, of, side == LEFT)


def _in_sessions(axis: Session, left: Points, right: Points) -> Sequence[_Runs]:
    codes, x = np.concatenate([left.codes, right.codes]), np.concatenate([left.x, right.x])
    new = np.concatenate([left.new, right.new])
    after_low, after_high, gained = _sessions(codes, x, new, axis.gap)
    old = np.flatnonzero(~new)
    # The sessions of before the batch: those of the old points alone.
    before_low, before_high = x.copy(), x.copy()
    before_low[old], before_high[old], _ = _sessions(codes[old], x[old], new[old], axis.gap)
    # Left points come first in the arrays. A session without a new point has no new pair.
    rows = np.flatnonzero(gained[: len(left.x)])
    low = np.maximum(after_low[rows], x[rows] - axis.span)
    high = np.minimum(after_high[rows], x[rows] + axis.span)
    is_new, at = left.new[rows], left.codes[rows]
    everywhere = Axis(right.codes, right.x)
    every = np.arange(len(right.x))
    # A new point is paired with its whole session. An old one is paired with all points before and after its old session,
    # and, within that session, with new points only (below).
    was = ~is_new
    starts, ends = before_low[rows], before_high[rows]
    found = [
        _runs(rows, everywhere, every, at, low, high, is_new),
        _runs(rows, everywhere, every, at, low, np.minimum(high, starts - 1), was),
        _runs(rows, everywhere, every, at, np.maximum(low, ends + 1), high, was),
    ]
    # An old point, within its old session: the new points.
    fresh = np.flatnonzero(right.new)
    others = Axis(right.codes[fresh], right.x[fresh])
    inside = _runs(rows, others, fresh, at, np.maximum(low, starts), np.minimum(high, ends), was)
    return (*found, inside)


def _runs(rows: Ints, axis: Axis, of: Ints, codes: Ints, low: Ints, high: Ints, which: Bools) -> _Runs:
    some = which & (low <= high)
    first, end = axis.between(codes[some], low[some], high[some])
    return _Runs(rows[some], first, end, of, is_left=True)


def _sessions(codes: Ints, x: Ints, new: Bools, gap: int) -> tuple[Ints, Ints, Bools]:
    """Return the start and the end of each point's session, and whether a new point is in it."""
    order, starts = group_events(codes, x, gap)
    if not len(order):
        return x, x, new
    sizes = np.diff(starts, append=len(order))
    low, high, gained = np.empty_like(x), np.empty_like(x), np.empty_like(new)
    # Writing to [order] brings the values of groups back to the order of the points.
    low[order] = np.repeat(x[order[starts]], sizes)
    high[order] = np.repeat(x[order[starts + sizes - 1]], sizes)
    gained[order] = np.repeat(np.logical_or.reduceat(new[order], starts), sizes)
    return low, high, gained


def _expanded(run: _Runs) -> Iterator[tuple[Ints, Ints]]:
    """Yield each row next to each of its partners, in pieces of at most CHUNK."""
    number = np.maximum(run.end - run.first, 0)
    ends = np.cumsum(number)
    total = int(ends[-1]) if len(ends) else 0
    # Pairs are numbered through all runs; run i has those from ends[i] - number[i] up to ends[i]. A piece is the pairs
    # [low, high), and may begin and end within a run.
    for low in range(0, total, CHUNK):
        high = min(low + CHUNK, total)
        rows = np.arange(np.searchsorted(ends, low, "right"), np.searchsorted(ends, high, "left") + 1)
        begins = ends[rows] - number[rows]
        skipped = np.maximum(low - begins, 0)
        taken = np.minimum(high - begins, number[rows]) - skipped
        partners = np.repeat(run.first[rows] + skipped, taken) + within_group(taken)
        yield np.repeat(run.rows[rows], taken), run.of[partners]
