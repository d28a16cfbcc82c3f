"""Arrow's limits, told as what to do about them."""

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.columnar.arrays import binary_array, combined
from sessionlake.errors import StoreError

GIB = 1 << 30


def test_two_gib_of_states_in_one_shard_are_an_error_of_one_line() -> None:
    quarter = pa.array([bytes(GIB // 4)])
    with pytest.raises(StoreError, match=r"pipeline.shards: 2\d{9} bytes in one Arrow array"):
        combined(pa.chunked_array([quarter] * 8))


def test_two_gib_of_packed_states_are_an_error_of_one_line() -> None:
    with pytest.raises(StoreError, match=r"pipeline.shards: 2147483648 bytes in one Arrow array"):
        binary_array(b"", np.array([0, 2 * GIB]))
