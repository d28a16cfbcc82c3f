"""Points found by code and place: as a plain search over sorted pairs finds them, whatever numbers those have."""

from bisect import bisect_left

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlake.columnar.axis import Axis

CODES = st.one_of(st.integers(0, 3), st.integers(0, 50_000_000))
NOW_US = 1_767_225_600_000_000
PLACES = st.one_of(st.integers(-5, 5), st.integers(NOW_US, NOW_US + 5), st.integers(-(1 << 61), 1 << 61))
PAIRS = st.lists(st.tuples(CODES, PLACES), max_size=8)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    codes, places = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(codes, np.int64), np.array(places, np.int64)


# A code that has no points, so far above those that its number would not go into 63 bits.
@example([(0, 0), (0, 1 << 59)], [(50_000_000, 0)])
@given(PAIRS, PAIRS)
def test_a_point_is_found_as_by_a_search_over_pairs(
    stored: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    points = sorted(set(stored))
    axis = Axis(*columns(points))
    asked = [*asked, *points]
    expected = [bisect_left(points, pair) for pair in asked]
    # A code's end is where the next code begins, which is the end of all where there is none.
    assert axis.find(*columns(asked)).tolist() == expected
    low, high = axis.between(*columns(asked), columns(asked)[1])
    assert low.tolist() == expected
    assert high.tolist() == [bisect_left(points, (code, place + 1)) for code, place in asked]
