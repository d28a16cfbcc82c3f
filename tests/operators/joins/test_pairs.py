"""The pairs that a batch makes, beside a double loop over all that there is, before and after it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import StoreError
from sessionlake.operators.joins import pairs as kernel
from sessionlake.operators.joins.axis import Grid, JoinAxis, Session, Sliding
from sessionlake.operators.joins.pairs import Points, pairs
from sessionlake.operators.shared.sides.names import LEFT, RIGHT

Point = tuple[int, int]
"""A key's code and a place."""
SMALL = st.integers(0, 5)
AXES = st.one_of(
    st.builds(Sliding, SMALL, SMALL),
    st.builds(lambda size: Grid(size, size, 0), st.integers(1, 6)),
    st.integers(1, 6).flatmap(
        lambda size: st.builds(Grid, st.just(size), st.integers(1, size), st.integers(-3, 3)),
    ),
    st.builds(Session, st.integers(0, 3), st.integers(3, 9)),
)
POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-12, 12)), max_size=8)
BATCHES = st.lists(st.tuples(POINTS, POINTS), min_size=1, max_size=4)


def are_partners(axis: JoinAxis, left: Point, right: Point, every: list[Point]) -> bool:
    """Say it from the words of docs/joins.md; `every` are all points of both sides."""
    (key, a), (other, b) = left, right
    if key != other:
        return False
    if isinstance(axis, Sliding):
        return b - axis.left <= a <= b + axis.right
    if isinstance(axis, Grid):
        near = min(a, b) // axis.advance
        starts = (axis.offset + n * axis.advance for n in range(near - 20, near + 20))
        return any(s <= min(a, b) and max(a, b) < s + axis.size for s in starts)
    assert isinstance(axis, Session)
    between = sorted(x for code, x in every if code == key and min(a, b) <= x <= max(a, b))
    return abs(a - b) <= axis.span and all(y - x <= axis.gap for x, y in pairwise(between))


def all_pairs(axis: JoinAxis, lefts: list[Point], rights: list[Point]) -> set[tuple[int, int]]:
    every = lefts + rights
    return {
        (i, j)
        for i, left in enumerate(lefts)
        for j, right in enumerate(rights)
        if are_partners(axis, left, right, every)
    }


def points(rows: list[Point], new_from: int) -> tuple[list[int], Points]:
    """Return the order of points by (code, x), and them in it."""
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    codes, x = (np.array([rows[i][k] for i in order], np.int64) for k in (0, 1))
    return order, Points(codes, x, np.array([i >= new_from for i in order], bool))


@given(AXES, BATCHES, st.integers(1, 7), st.sampled_from([0, 1 << 50]))
def test_each_batch_makes_the_pairs_that_there_were_not_each_once(
    axis: JoinAxis, batches: list[tuple[list[Point], list[Point]]], chunk: int, far: int
) -> None:
    lefts: list[Point] = []
    rights: list[Point] = []
    before: set[tuple[int, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "CHUNK", chunk)
        for more_left, more_right in batches:
            olds = len(lefts), len(rights)
            lefts, rights = lefts + more_left, rights + more_right
            # Keys far apart on the axis: then code and place don't fit one number.
            moved = [[(code, x + far * code) for code, x in side] for side in (lefts, rights)]
            (left_order, left), (right_order, right) = (
                points(rows, old) for rows, old in zip(moved, olds, strict=True)
            )
            pieces = list(pairs(axis, left, right))
            assert all(len(rows) <= chunk for rows, _ in pieces)
            made = [
                (left_order[i], right_order[j]) for a, b in pieces for i, j in zip(a.tolist(), b.tolist(), strict=True)
            ]
            after = all_pairs(axis, *moved)
            assert len(made) == len(set(made))
            assert set(made) == after - before
            before = after


@given(AXES, POINTS)
def test_no_partner_lies_outside_of_the_stretch_that_is_read(axis: JoinAxis, rows: list[Point]) -> None:
    for left, right in ((a, b) for a in rows for b in rows):
        if are_partners(axis, left, right, rows):
            for side, one, other in ((LEFT, left, right), (RIGHT, right, left)):
                low, high = axis.partners(side, np.array([one[1]]))
                assert low[0] <= other[1] <= high[0]
                assert high[0] - low[0] + 1 <= axis.width


def test_more_pairs_than_the_limit_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LIMIT", 3)
    _, two = points([(0, 0), (0, 0)], 0)
    with pytest.raises(
        StoreError, match=r"^pipeline\.shards: 4 pairs of one shard in a batch are more than 3; raise it"
    ):
        list(pairs(Sliding(0, 0), two, two))
