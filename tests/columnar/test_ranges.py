"""Maxima of overlapping ranges equal those of slices of a list."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.axis import range_max


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=200), st.data())
def test_equal_to_a_loop(values: list[int], data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(values) - 1), st.integers(1, len(values)))
    drawn = data.draw(st.lists(bounds.filter(lambda b: b[0] < b[1]), max_size=30))
    low, high = (np.array([pair[i] for pair in drawn], np.int64) for i in (0, 1))
    assert range_max(np.array(values), low, high).tolist() == [max(values[a:b]) for a, b in drawn]
