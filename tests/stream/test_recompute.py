"""Rows of past batches, read again under a config that reads more columns than they did."""

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from sessionlake.aggregates.layouts import Layout
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.decoding.whole import json_rows, text_rows
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.recompute import read_again

TYPES = {"key": pa.string(), "time": pa.int64(), "v": pa.int64(), "price": pa.float64()}
COLUMNS = EventColumns("key", "time", "us", None, ("v", "price"), TYPES)
LAYOUTS = (Layout(0, {}, {}, ("v",)), Layout(2, {}, {}, ("v", "price")))
TEXTS = [
    '{"key":"a","time":1,"v":2,"price":0.5}',
    '{"key":"b","time":1,"v":2,"price":"free"}',
    '{"key":"c","time":1,"v":"two","price":"free"}',
]


def read(table: pa.Table, batch_id: int, layouts: tuple[Layout, ...]) -> list[tuple[Any, ...]]:
    spec = EventSpec(TableDecoder(COLUMNS, None), layouts=layouts)
    rows = table.append_column("batch_id", pa.array([batch_id] * table.num_rows))
    ((batch, found),) = read_again(spec, rows, lambda _: cast("Any", SimpleNamespace(pins={})))
    assert batch == batch_id
    errors = [None] * table.num_rows if found.error is None else found.error.to_pylist()
    return [(row["key"], row["price"], error) for row, error in zip(found.table.to_pylist(), errors, strict=True)]


def test_a_batch_refused_nothing_for_a_column_that_it_did_not_read() -> None:
    rows = json_rows(pa.array(TEXTS))
    free, two = "wrong type: price = 'free' is not a double", "wrong type: v = 'two' is not a long"
    then, now = (
        [("a", 0.5, None), ("b", None, None), ("c", None, two)],
        [("a", 0.5, None), ("b", None, free), ("c", None, two)],
    )
    assert read(rows, 1, LAYOUTS) == then
    assert read(rows, 2, LAYOUTS) == now
    assert read(rows, 1, ()) == now


def test_rows_of_columns_are_read_by_their_texts() -> None:
    rows = text_rows(pa.table({"key": ["a"], "time": [1], "v": [2], "price": [0.1], "page": ["/cart"]}))
    assert read(rows, 2, LAYOUTS) == [("a", 0.1, None)]
