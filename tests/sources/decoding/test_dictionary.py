"""Keys that a Parquet file has as a dictionary are read as one: with the outcome of keys read one by one."""

import io
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import build_aggregates
from sessionlake.engine.operator import Counted, Keyed
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.contract import check
from sessionlake.sources.decoding import parquet_rows
from sessionlake.sources.decoding.decoded import Decoded
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse.schemas import TIME
from tests.sources.decoding.common import COLUMNS, outcome
from tests.support import examples

TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())]
values = st.none() | st.sampled_from([b"", b"a", b"bb", "ü".encode(), b"x" * 20])
not_utf8 = values | st.just(b"\xff")
SPEC_COLUMNS = EventColumns("k", "t", None, None, ("n",), {"k": pa.string(), "t": TIME, "n": pa.int64()})


def content(keys: list[bytes | None], type_: pa.DataType, group: int = 1 << 20) -> bytes:
    binary = pa.array(keys, pa.binary())
    if pa.types.is_dictionary(type_):
        column = binary.view(pa.string()).dictionary_encode().cast(type_)
    else:
        wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
        column = binary.cast(pa.large_binary()).view(type_) if wide else binary.view(type_)
    numbers = np.arange(len(keys))
    times = pa.array(numbers * 7_000_000 % 30_000_000).cast(TIME)
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": column, "t": times, "n": numbers}), sink, row_group_size=group)
    return sink.getvalue()


def read(file: bytes, columns: EventColumns, *, dictionary: bool) -> list[Decoded]:
    with patch.object(parquet_rows, "_LARGE_GROUP", 0 if dictionary else 1 << 60):
        return list(decode(file, "f.parquet", "parquet", columns))


@examples(60)
@given(st.lists(not_utf8, max_size=12), st.sampled_from(TYPES[:4]), st.sampled_from([1, 5, 100]))
def test_rows_errors_and_texts_are_those_of_plain_keys(
    keys: list[bytes | None], type_: pa.DataType, group: int
) -> None:
    file = content(keys, type_, group)
    assert outcome(read(file, COLUMNS, dictionary=True)) == outcome(read(file, COLUMNS, dictionary=False))


@examples(60)
@given(st.lists(values, max_size=30), st.sampled_from(TYPES), st.sampled_from([None, 3]))
def test_what_the_map_sends_is_that_of_plain_keys(
    keys: list[bytes | None], type_: pa.DataType, limit: int | None
) -> None:
    file = content(keys, type_)
    sent = [pieces(read(file, SPEC_COLUMNS, dictionary=wanted), limit) for wanted in (True, False)]
    assert sent[0] == sent[1]


def pieces(parts: list[Decoded], limit: int | None) -> list[Any]:
    aggregates = build_aggregates({"total": "sum(n)"}, SPEC_COLUMNS.types, with_id=False)
    windows = SessionWindows(5_000_000, 5_000_000, 20_000_000)
    spec = SessionizerSpec(
        EventSpec(TableDecoder(SPEC_COLUMNS, None), archive=True, max_key_bytes=limit), aggregates, windows
    )
    rows = [Rows(part.table, part.error, part.raw, part.position) for part in parts]
    found = [piece for part in rows for piece in split_events(spec, windows.bounds(30_000_000), 0, part)]
    # Within a piece the order of keys is that of the dictionary.
    return [
        dict(piece.stats)
        if isinstance(piece, Counted)
        else (piece.kind, piece.rows.schema, sorted(zip(keys_of(piece), piece.rows.to_pylist(), strict=True), key=repr))
        for piece in found
    ]


def keys_of(piece: Any) -> list[str | None]:
    return piece.keys.to_pylist() if isinstance(piece, Keyed) else [None] * piece.rows.num_rows


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_keys_stay_a_dictionary_where_nothing_else_reads_them(type_: pa.DataType) -> None:
    file = content([b"a", b"b", b"a"], type_)
    (part,) = read(file, COLUMNS, dictionary=True)
    assert part.table["k"].type.value_type == pa.string()
    assert check(part.table, part.error, SPEC_COLUMNS).key.type == part.table["k"].type
    (plain,) = read(file, EventColumns("k", "t", None, None, ("k", "n"), COLUMNS.types), dictionary=True)
    assert plain.table["k"].type == pa.string()


def test_keys_of_numbers_are_cast() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": [1, 2, 1], "t": ["x"] * 3, "n": [1, 2, 3]}), sink)
    (part,) = read(sink.getvalue(), COLUMNS, dictionary=True)
    assert part.table["k"].to_pylist() == ["1", "2", "1"]


def test_number_that_the_dictionary_does_not_have_is_damage() -> None:
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(pa.ArrowInvalid, match="value 5 of a dictionary of 1"):
        parquet_rows._check_indices([dictionary])
