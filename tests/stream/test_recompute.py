"""Rows of past batches, read again under a config that reads more columns than they did."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.layouts import Layout
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.decoding.whole import json_rows, text_rows
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.recompute import read_again
from sessionlake.stream.shape import Shape, Shaping

TYPES = {"key": pa.string(), "time": pa.int64(), "v": pa.int64(), "price": pa.float64()}
COLUMNS = EventColumns("key", "time", "us", None, ("v", "price"), TYPES)
LAYOUTS = (Layout(0, {}, {}, ("v",)), Layout(2, {}, {}, ("v", "price")))
TEXTS = [
    '{"key":"a","time":1,"v":2,"price":0.5}',
    '{"key":"b","time":1,"v":2,"price":"free"}',
    '{"key":"c","time":1,"v":"two","price":"free"}',
]


def read(
    table: pa.Table, batch_id: int, layouts: tuple[Layout, ...], where: tuple[str, str] | None = None
) -> list[tuple[Any, ...]]:
    """Return the rows as they are read again; `where` are the texts of the batch and of the config."""
    columns, shape = COLUMNS, Shape()
    if where is not None:
        shaping = Shaping("event", (), where[1], ("key", "time"), ("v",))
        columns, shape = replace(COLUMNS, inputs=("v",), asked=shaping.asked), shaping.shape(TYPES)
    spec = EventSpec(TableDecoder(columns, None), layouts=layouts, shape=shape)
    rows = table.append_column("batch_id", pa.array([batch_id] * table.num_rows))
    inputs = BatchInputs(batch_id, 0, 0, None, None, {"where": None if where is None else where[0]}, None, None)
    ((batch, found),) = read_again(spec, rows, lambda _: inputs)
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


def test_a_batch_refused_nothing_for_a_column_that_only_a_later_where_reads() -> None:
    rows = json_rows(pa.array([*TEXTS, '{"key":"d","time":1,"v":"two","price":1.5}']))
    free, two = "wrong type: price = 'free' is not a double", "wrong type: v = 'two' is not a long"
    # Of the third row, wrong in both, the column is told that the batch has read, too.
    then = [("a", 0.5, None), ("b", None, None), ("c", None, two), ("d", 1.5, two)]
    assert read(rows, 1, LAYOUTS[:1], ("v > 1", "v > 1 and price > 0")) == then
    now = [("a", 0.5, None), ("b", None, free), ("c", None, two), ("d", 1.5, two)]
    assert read(rows, 1, LAYOUTS[:1], ("price > 0", "v > 1 and price > 0")) == now


def test_rows_of_columns_are_read_by_their_texts() -> None:
    rows = text_rows(pa.table({"key": ["a"], "time": [1], "v": [2], "price": [0.1], "page": ["/cart"]}))
    assert read(rows, 2, LAYOUTS) == [("a", 0.1, None)]
