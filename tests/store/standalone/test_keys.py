from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.store.standalone.keys import SESSION_KEYS, WINDOW_KEYS, after_prefix, escaped, past

keys = st.lists(st.sampled_from([b"\0", b"\1", b"a", b"\xfe", b"\xff"]) | st.binary(max_size=2), max_size=4).map(
    b"".join
)
int64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([-1, 0, 1])
window_rows = st.tuples(keys, int64, st.integers(0, (1 << 32) - 1))
session_rows = st.tuples(keys, int64, int64)
cases = st.tuples(st.just(WINDOW_KEYS), window_rows, window_rows) | st.tuples(
    st.just(SESSION_KEYS), session_rows, session_rows
)


@given(cases)
def test_bytes_round_trip_and_sort_as_the_rows_do(case: Any) -> None:
    layout, one, other = case
    assert layout.parts(layout.row(*one)) == one
    assert (layout.row(*one) < layout.row(*other)) == (one < other)
    assert (layout.row(*one) == layout.row(*other)) == (one == other)


@given(cases)
def test_rows_of_a_key_are_all_that_lie_between_its_bounds(case: Any) -> None:
    layout, one, other = case
    assert (escaped(one[0]) <= layout.row(*other) < past(one[0])) == (one[0] == other[0])
    assert (escaped(one[0]) <= layout.row(*other)) == (one[0] <= other[0])


@given(keys, keys)
def test_prefixes_are_all_that_lie_below_what_comes_after_them(prefix: bytes, key: bytes) -> None:
    after = after_prefix(prefix)
    assert (prefix <= key and (after is None or key < after)) == key.startswith(prefix)


@pytest.mark.parametrize(
    ("row", "data"),
    [
        (WINDOW_KEYS.row(b"a\0", 0, 7), b"a\0\xff\0\x01\x80" + bytes(7) + b"\0\0\0\x07"),
        (SESSION_KEYS.row(b"", -(1 << 63), -1), b"\0\x01" + bytes(8) + b"\x7f" + b"\xff" * 7),
    ],
)
def test_layout_stays_as_it_was_written_first(row: bytes, data: bytes) -> None:
    assert row == data
