"""Whole rows: read again they are what the source's own decoder makes of them, for any columns and types."""

import datetime as dt
import io
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.errors import SourceError
from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.decoding.decoded import WRONG_TYPE, Decoded
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.kafka_records import NULL_VALUE, RecordDecoder, Topic
from sessionlake.sources.decoding.rows import Rows, is_cut
from sessionlake.sources.decoding.tables import WHOLE, TableDecoder
from sessionlake.sources.decoding.whole import SCHEMA, json_rows, readable, text_rows
from sessionlake.sources.decoding.whole_rows import WholeDecoder

BEFORE = EventColumns("key", "time", "us", None, (), {"key": pa.string(), "time": pa.int64()}, whole=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
TYPES = {"t": pa.string(), "n": pa.int64(), "x": pa.float64(), "b": pa.bool_(), "d": pa.date32(), "at": TIMESTAMP}
TYPES |= {"price": pa.decimal128(12, 3)}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "t": TEXT,
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False),
    "b": st.booleans(),
    "d": st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "at": st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)).map(lambda t: t.replace(tzinfo=dt.UTC)),  # noqa: DTZ001
    "price": st.decimals(-99_999_999, 99_999_999, places=3),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {"key": st.none() | TEXT, "time": st.integers(0, 10**9)},
        optional={name: st.none() | values for name, values in VALUES.items()},
    ),
    min_size=1,
    max_size=30,
)


def columns_of(types: dict[str, pa.DataType]) -> EventColumns:
    """Return the columns of a config that reads other ones than the one of before, under another key."""
    return EventColumns("t", "time", "us", None, tuple(types), {"time": pa.int64(), "t": pa.string()} | types)


def archived(decoded: Iterable[Decoded | Rows]) -> pa.Table:
    """Return the whole rows of all that can be read, as the archive has them."""
    parts = []
    for found in decoded:
        at = readable(found.error, found.table.num_rows, WRONG_TYPE)
        if len(at):
            assert found.whole is not None
            parts.append(found.whole(at))
    table = pa.concat_tables(parts)
    return table.append_column("batch_id", pa.array(np.full(table.num_rows, 3)))


def again(table: pa.Table, columns: EventColumns) -> list[dict[str, Any]]:
    """Return whole rows as a config reads them, with the errors of bad ones."""
    found = []
    for rows in WholeDecoder(columns).decode(table):
        errors = [None] * rows.table.num_rows if rows.error is None else rows.error.to_pylist()
        found += [{**row, "error": error} for row, error in zip(rows.table.to_pylist(), errors, strict=True)]
    return found


def fresh(content: bytes, format_: Any, columns: EventColumns) -> list[dict[str, Any]]:
    """Return the rows of a file as a config reads them that never read it before."""
    found = []
    for part in decode(content, "f", format_, columns):
        found += [
            {**row, "error": error}
            for row, error in zip(part.table.to_pylist(), part.error.to_pylist(), strict=True)
            if error is None or error.startswith(WRONG_TYPE)
        ]
    return found


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    # As text: -0.0 and 0.0 are equal, and not the same.
    assert [repr(row) for row in one] == [repr(row) for row in other]


def written(rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema({"key": pa.string(), "time": pa.int64()} | TYPES)
    return pa.Table.from_pylist(rows, schema)


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_parquet(rows: list[dict[str, Any]]) -> None:
    out = io.BytesIO()
    pq.write_table(written(rows), out)
    table = archived(decode(out.getvalue(), "f", "parquet", BEFORE))
    same(again(table, columns_of(TYPES)), fresh(out.getvalue(), "parquet", columns_of(TYPES)))
    as_text = columns_of(dict.fromkeys(TYPES, pa.string()))
    same(again(table, as_text), fresh(out.getvalue(), "parquet", as_text))


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_csv(rows: list[dict[str, Any]]) -> None:
    out = io.BytesIO()
    pcsv.write_csv(
        written(rows).cast(pa.schema({"key": pa.string(), "time": pa.int64()} | dict.fromkeys(TYPES, pa.string()))), out
    )
    content = out.getvalue() + b"a,1\nb,\xff\n"
    table = archived(decode(content, "f", "csv", BEFORE))
    same(again(table, columns_of(TYPES)), fresh(content, "csv", columns_of(TYPES)))


@given(ROWS, st.booleans(), st.data())
@settings(max_examples=150, deadline=None)
def test_json_as_it_came(rows: list[dict[str, Any]], ascii_only: bool, data: st.DataObject) -> None:  # noqa: FBT001
    lines = [json.dumps(row, default=str, ensure_ascii=ascii_only).encode() for row in rows]
    odd = data.draw(
        st.lists(
            st.sampled_from([b'{"key": 5, "time": "soon"}', b"{", b"  ", b'{"key": "\xff"}', b'\t{"t":"x" }\r']),
            max_size=4,
        )
    )
    content = b"\n".join(data.draw(st.permutations([*lines, *odd])))
    found = list(decode(content, "f", "json", BEFORE))
    if any(len(readable(part.error, part.table.num_rows, WRONG_TYPE)) for part in found):
        table = archived(found)
        assert {line.strip() for line in lines} <= {text.encode() for text in table["raw"].to_pylist()}
        same(again(table, columns_of(TYPES)), fresh(content, "json", columns_of(TYPES)))


@given(ROWS)
@settings(max_examples=50, deadline=None)
def test_rows_of_a_table(rows: list[dict[str, Any]]) -> None:
    table = written(rows)
    read = table.select(["key", "time"]).append_column(WHOLE, table.to_struct_array())
    (found,) = TableDecoder(BEFORE, "t").decode(read)
    assert found.table.column_names == ["key", "time"]
    assert found.whole is not None
    whole = found.whole(np.arange(len(rows))).append_column("batch_id", pa.array([0] * len(rows)))
    kept = [{"time": row["time"], **{name: row[name] for name in TYPES}, "error": None} for row in table.to_pylist()]
    same(sorted(again(whole, columns_of(TYPES)), key=repr), sorted([{"t": row["t"], **row} for row in kept], key=repr))


def test_records_of_a_topic_keep_their_key_and_place() -> None:
    records = pa.table(
        {
            "value": pa.array([b'{"user":\n"a","time":1}', b'{"user":"b","time":"x"}', None]),
            "key": pa.array([b"k", None, b"n"]),
            "timestamp": pa.array([5, 6, 7], TIMESTAMP),
            "partition": pa.array([0, 0, 1], pa.int32()),
            "offset": pa.array([3, 4, 9]),
        }
    )
    before = EventColumns("user", "time", "us", None, (), {"user": pa.string(), "time": pa.int64()}, whole=True)
    parts = list(RecordDecoder(before, Topic("t", avro=False)).decode(records))
    table = archived(parts)
    assert table["raw"].to_pylist() == ['{"user":\n"a","time":1}', '{"user":"b","time":"x"}']
    meta = {"_key": pa.string(), "_partition": pa.int64(), "_offset": pa.int64(), "_timestamp": TIMESTAMP}
    asked = EventColumns("_key", "_timestamp", None, None, ("user", *meta), {"user": pa.string(), **meta})
    found = again(table, asked)
    assert [(row["user"], row["_key"], row["_partition"], row["_offset"]) for row in found] == [
        ("a", "k", 0, 3),
        ("b", None, 0, 4),
    ]
    assert [row["_timestamp"].microsecond for row in found] == [5, 6]


def test_a_record_without_a_value_is_a_row_if_that_is_read() -> None:
    records = pa.table(
        {
            "value": pa.array([b'{"v":1}', None]),
            "key": pa.array([b"k", b"n"]),
            "timestamp": pa.array([5, 6], TIMESTAMP),
            "partition": pa.array([0, 0], pa.int32()),
            "offset": pa.array([3, 4]),
        }
    )
    types = {"_key": pa.string(), "_timestamp": TIMESTAMP, "v": pa.int64()}
    reading = EventColumns(
        "_key", "_timestamp", None, None, ("v", "_no_value"), {**types, "_no_value": pa.bool_()}, whole=True
    )
    table = archived(RecordDecoder(reading, Topic("t", avro=False)).decode(records))
    found = again(table, reading)
    assert [(row["_key"], row["v"], row["_no_value"], row["error"]) for row in found] == [
        ("k", 1, False, None),
        ("n", None, True, None),
    ]
    found = again(table, EventColumns("_key", "_timestamp", None, None, ("v",), types))
    assert [(row["_key"], row["v"], row["error"]) for row in found] == [("k", 1, None), ("n", None, NULL_VALUE)]


def test_columns_of_files_may_have_the_names_of_a_records() -> None:
    types = {"_key": pa.string(), "_offset": pa.int64(), "_no_value": pa.bool_()}
    columns = EventColumns("_key", "_offset", "us", None, ("_no_value",), types, whole=True)
    content = b'{"_key":"a","_offset":7,"_no_value":true}'
    out = io.BytesIO()
    pq.write_table(pa.table({"_key": ["a"], "_offset": [7], "_no_value": [True]}), out)
    for found, format_ in ((content, "json"), (out.getvalue(), "parquet")):
        table = archived(decode(found, "f", format_, columns))
        assert again(table, columns) == [{"_no_value": True, "_key": "a", "_offset": 7, "error": None}]


def test_values_whose_text_is_not_their_own_are_kept_as_they_are_read() -> None:
    table = pa.table(
        {
            "narrow": pa.array([0.1], pa.float32()),
            "fine": pa.array([1_600_000_000_123_456_789], pa.timestamp("ns")),
            "wide": pa.array([Decimal("1.20")], pa.decimal128(38, 10)),
            "nested": pa.array([[1]]),
            'odd "name"\\': pa.array(['tab\t, quote " and \\']),
        }
    )
    assert json.loads(text_rows(table)["raw"][0].as_py()) == {
        "narrow": "0.10000000149011612",
        "fine": "2020-09-13 12:26:40.123456789",
        "wide": "1.2000000000",
        'odd "name"\\': 'tab\t, quote " and \\',
    }


@pytest.mark.parametrize("odd", ['"', "\\", "\n", "\x00", "\x1f", "\\n"])
def test_each_character_that_json_has_not_as_it_is(odd: str) -> None:
    """Alone: one that is odd makes all of the column be looked at."""
    texts = ["plain", f"a{odd}b", None, "\x7f\u00fc\u2028"]
    found = text_rows(pa.table({"t": texts}))["raw"].to_pylist()
    assert [json.loads(text).get("t") for text in found] == texts


def test_read_again_they_are_whole_and_have_text_and_place() -> None:
    texts = ['{"key":"a","time":1}', f'{{"key":"b","time":1,"t":"{"x" * 100_000}"}}']
    table = json_rows(pa.array(texts)).append_column("batch_id", pa.array([3, 4]))
    (rows,) = WholeDecoder(columns_of({})).decode(table)
    at = np.arange(2)
    assert rows.whole is not None
    assert rows.whole(at).equals(table.select(SCHEMA.names))
    short, long = rows.raw(at).to_pylist()
    assert (short, is_cut(short), is_cut(long)) == (texts[0], False, True)
    assert rows.source(at).to_pylist() == ["archive: batch 3", "archive: batch 4"]


def test_bytes_that_are_no_text_are_refused_in_one_line() -> None:
    with pytest.raises(
        SourceError,
        match=r"^pipeline\.archive: column 'b' has bytes that are no text, .*; write true in place of 'all'$",
    ):
        text_rows(pa.table({"b": pa.array([b"\xff"])}))
    assert text_rows(pa.table({"b": pa.array([b"ok"])}))["raw"].to_pylist() == ['{"b":"ok"}']


def test_a_file_is_read_whole_only_if_it_is_asked_for() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"key": ["a"], "time": [1], "v": [2.5]}), out)
    plain = EventColumns("key", "time", "us", None, (), BEFORE.types)
    for columns, is_whole in ((plain, False), (BEFORE, True)):
        (found,) = decode(out.getvalue(), "f", "parquet", columns)
        assert (found.whole is not None) is is_whole
        assert found.raw(np.arange(1)).to_pylist() == ['{"key": "a", "time": 1}'], "dead letters have what is read"
