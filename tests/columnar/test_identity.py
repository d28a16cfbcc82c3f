"""session_id against Spark's xxhash64, the definition."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.columnar import identity
from sessionlake.columnar.identity import record_id, record_ids


@pytest.fixture(scope="module", autouse=True, params=["one by one", "side by side"])
def how(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few texts of one length, which all are here, are hashed by the library; many by numpy."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "side by side":
            patch.setattr(identity, "_FEW", 0)
        yield


def test_ids_equal_sparks_xxhash64(spark: SparkSession) -> None:
    random = np.random.default_rng(7)
    keys = ["", "a", "ключ", "🦆" * 9, *("k" * n for n in range(70)), *(random.bytes(n).hex() for n in range(80))]
    starts = random.integers(-(1 << 62), 1 << 62, len(keys))
    frame = spark.createDataFrame(pa.table({"k": keys, "t": starts})).selectExpr(
        "xxhash64(k, t) one", "xxhash64(k, t, -t) two"
    )
    rows = frame.collect()
    assert record_ids(pa.array(keys), starts).tolist() == [row.one for row in rows]
    assert record_ids(pa.array(keys), starts, -starts).tolist() == [row.two for row in rows]


@given(st.lists(st.tuples(st.text(), st.integers(-(1 << 63), (1 << 63) - 1)), min_size=1))
def test_an_id_depends_on_its_own_row_only(rows: list[tuple[str, int]]) -> None:
    keys, starts = pa.array([k for k, _ in rows]), np.array([t for _, t in rows])
    whole = record_ids(keys, starts)
    alone = [record_ids(pa.array([k]), np.array([t]))[0] for k, t in rows]
    assert whole.tolist() == alone
    assert record_ids(keys[1:], starts[1:]).tolist() == alone[1:]


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one(rows: int) -> None:
    assert record_ids(pa.array(["k"] * rows, pa.string()), np.zeros(rows, np.int64)).shape == (rows,)


@given(st.text() | st.integers(0, 400).map("é".__mul__), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3))
def test_one_id_is_that_of_a_column(key: str, numbers: list[int]) -> None:
    columns = [np.array([number]) for number in numbers]
    assert record_id(key.encode(), *numbers) == record_ids(pa.array([key]), *columns)[0]
