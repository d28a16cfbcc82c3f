"""Archived events as rows of a source."""

import numpy as np
import pyarrow as pa

from sessionlake.sources.columns import EventColumns
from sessionlake.sources.contract import check
from sessionlake.sources.decoding.rows import BATCH
from sessionlake.sources.decoding.whole_rows import ARCHIVED, ArchiveDecoder
from sessionlake.warehouse.schemas import TIME

COLUMNS = EventColumns(
    "user", "at", "ms", "id", ("price",), {"user": pa.int64(), "at": pa.string(), "id": pa.int64(), "price": pa.int64()}
)
DECODER = ArchiveDecoder(COLUMNS, frozenset({"user", "at", "id"}))


def archived(prices: pa.Array) -> pa.Table:
    times = pa.array([1_500_000, 2_500_001, 3_500_000]).cast(TIME)
    keys, ids = pa.array(["7", "8", ""]), pa.array(["1", None, "3"])
    struct = pa.StructArray.from_arrays([keys, times, ids, prices], names=["user", "at", "id", "price"])
    return pa.table({ARCHIVED: struct, BATCH: pa.array([0, 4, 4])})


def test_key_time_and_id_are_the_archives_own_whatever_their_type_in_the_source() -> None:
    (rows,) = DECODER.decode(archived(pa.array([1, None, 3])))
    assert rows.error is None
    checked = check(rows.table, rows.error, COLUMNS)
    assert checked.key.to_pylist() == ["7", "8", ""]
    assert checked.time_us.tolist() == [1_500_000, 2_500_001, 3_500_000]
    assert checked.event_id is not None
    assert checked.event_id.to_pylist() == ["1", None, "3"]
    assert checked.reason is not None
    assert checked.reason.to_pylist() == [None, None, "empty key"]
    assert rows.table["price"].to_pylist() == [1, None, 3]


def test_a_value_that_is_not_of_its_type_now_makes_a_dead_letter_that_names_its_batch() -> None:
    (rows,) = DECODER.decode(archived(pa.array(["1", "2.5", "x"])))
    assert rows.error is not None
    assert rows.error.to_pylist() == [
        None,
        "wrong type: price = '2.5' is not a long",
        "wrong type: price = 'x' is not a long",
    ]
    at = np.array([1, 2])
    assert rows.source(at).to_pylist() == ["archive: batch 4"] * 2
    assert '"price":"2.5"' in rows.raw(at)[0].as_py()


def test_rows_of_each_batch_apart() -> None:
    found = [
        (batch, rows.table["user"].to_pylist()) for batch, rows in DECODER.decode_again(archived(pa.array([1, 2, 3])))
    ]
    assert found == [(0, ["7"]), (4, ["8", ""])]
