"""Arrow's limits, told as what to do about them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlake.columnar.arrays import binary_array, byte_slices, combined, distinct, hash64, is_among
from sessionlake.errors import StoreError
from tests.support import examples

INTS = st.lists(st.integers(-3, 3) | st.sampled_from([-(1 << 63), (1 << 63) - 1]), max_size=12)

GIB = 1 << 30


def test_two_gib_of_states_in_one_shard_are_an_error_of_one_line() -> None:
    quarter = pa.array([bytes(GIB // 4)])
    with pytest.raises(StoreError, match=r"pipeline.shards: 2\d{9} bytes in one Arrow array"):
        combined(pa.chunked_array([quarter] * 8))


def test_two_gib_of_packed_states_are_an_error_of_one_line() -> None:
    with pytest.raises(StoreError, match=r"pipeline.shards: 2147483648 bytes in one Arrow array"):
        binary_array(b"", np.array([0, 2 * GIB]))


@examples(50)
@given(values=INTS, some=INTS)
@example(values=[-(2**63), 0], some=[-(2**63)])
@example(values=[2**63 - 1, 0], some=[2**63 - 1])
@example(values=[-(2**63), 7], some=[7, 8])
def test_distinct_numbers_and_those_among_others(values: list[int], some: list[int]) -> None:
    given_, others = (np.array(numbers, np.int64) for numbers in (values, some))
    assert distinct(given_).tolist() == sorted(set(values))
    assert is_among(given_, others).tolist() == [value in some for value in values]


@given(
    st.binary(max_size=40).flatmap(
        lambda data: st.tuples(
            st.just(data),
            st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, len(data))).map(sorted), max_size=8),
            st.booleans(),
        )
    )
)
def test_byte_slices_are_those_of_python(drawn: tuple[bytes, list[list[int]], bool]) -> None:
    data, bounds, ascending = drawn
    if ascending:
        bounds = sorted(bounds)
    at, end = np.array(bounds, np.int64).reshape(-1, 2).T
    assert byte_slices(np.frombuffer(data, np.uint8), at, end - at).to_pylist() == [data[a:b] for a, b in bounds]


@given(
    st.lists(st.text(max_size=40)) | st.lists(st.binary(max_size=40)),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)),
    st.lists(st.floats()),
)
def test_hashes_are_those_that_tables_have(
    texts: list[str] | list[bytes], whole: list[int], floats: list[float]
) -> None:
    """Sketches in tables were made of pandas' hashes."""
    from pandas.util import hash_array

    kind = pa.binary() if texts and isinstance(texts[0], bytes) else pa.string()
    assert hash64(pa.array(texts, kind)).tolist() == hash_array(np.array(texts, object), categorize=False).tolist()
    assert hash64(pa.array(whole, pa.int64())).tolist() == hash_array(np.array(whole, np.int64)).tolist()
    plain = np.array(
        [0.0 if value == 0 else float("nan") if np.isnan(value) else value for value in floats], np.float64
    )
    assert hash64(pa.array(floats, pa.float64())).tolist() == hash_array(plain).tolist()
