"""Whatever the bytes are, decoding raises nothing, and no good row is lost beside a bad one."""

import gzip
import io
import json
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sources.decoding import parquet_rows
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.kafka_records import Topic, decode_records
from sessionlake.sources.decoding.rows import is_cut
from tests.sources.decoding.common import COLUMNS, WIDE, errors, outcome
from tests.support import examples

GOOD = {"k": "good", "t": "2026-01-01", "n": 7}
VALUES = ("good", "2026-01-01", 7)
JUNK = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=30).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ktnx"), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [
            b'{"k":' + b"[" * 985 + b"]" * 985 + b"}",
            b'{"k":' + b'{"a":' * 990 + b"1" + b"}" * 991,
            b'{"n":' + b"9" * 5000 + b"}",
            b'{"n":1e999999999}',
            b'{"k":"a","k":"b"}',
            b"null",
            b"\x00",
            b'"',
        ]
    ),
)


@examples(80)
@given(st.lists(JUNK, max_size=6), st.sampled_from([16, 64, 1 << 20]))
def test_good_lines_of_json_survive_any_others(junk: list[bytes], limit: int) -> None:
    lines = [line.replace(b"\n", b" ") for line in junk]
    good = json.dumps(GOOD, separators=(",", ":")).encode()
    content = b"\n".join([good, *(part for line in lines for part in (line, good))])
    rows = outcome(list(decode(content, "f.json", "json", COLUMNS, max(limit, len(good)))))
    assert sum(row[0] == VALUES and row[1] is None for row in rows) == len(lines) + 1
    assert len(rows) <= 2 * len(lines) + 1


@examples(80)
@given(st.lists(JUNK, max_size=6), st.sampled_from([16, 64, 1 << 20]))
def test_good_records_of_csv_survive_any_others_without_quotes(junk: list[bytes], limit: int) -> None:
    lines = [line.translate(None, b'\n\r"') for line in junk]
    good = b"good,2026-01-01,7"
    content = b"k,t,n\n" + b"\n".join([good, *(part for line in lines for part in (line, good))])
    rows = outcome(list(decode(content, "f.csv", "csv", COLUMNS, max(limit, len(good)))))
    assert sum(row[0] == VALUES and row[1] is None for row in rows) >= len(lines) + 1
    assert len(rows) <= 2 * len(lines) + 1


@examples(80)
@given(st.binary(max_size=300), st.sampled_from(["f.json", "f.csv", "f.parquet", "f.json.gz", "f.csv.gz"]))
def test_any_bytes_give_rows_or_dead_letters(content: bytes, path: str) -> None:
    for columns in (COLUMNS, WIDE):
        outcome(list(decode(content, path, path.split(".")[1], columns, 64)))


PARQUET = io.BytesIO()
pq.write_table(
    pa.table({"k": [f"k{i}" for i in range(40)], "t": ["2026-01-01"] * 40, "n": range(40)}), PARQUET, row_group_size=10
)
DAMAGE = st.lists(st.tuples(st.integers(0, len(PARQUET.getvalue()) - 1), st.integers(0, 255)), min_size=1, max_size=4)


@examples(80)
@given(DAMAGE, st.sampled_from([0, 50_000]))
def test_damaged_parquet_gives_rows_or_dead_letters(damage: list[tuple[int, int]], large: int) -> None:
    content = bytearray(PARQUET.getvalue())
    for at, byte in damage:
        content[at] = byte
    with patch.object(parquet_rows, "_LARGE_GROUP", large):
        outcome(list(decode(bytes(content), "f.parquet", "parquet", COLUMNS)))


@pytest.mark.parametrize("large", [0, 50_000])
def test_damage_to_a_row_group_costs_its_rows_only(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(parquet_rows, "_LARGE_GROUP", large)
    content = bytearray(PARQUET.getvalue())
    group = pq.ParquetFile(PARQUET).metadata.row_group(1).column(0)
    for at in range(group.dictionary_page_offset, group.dictionary_page_offset + group.total_compressed_size):
        content[at] = 0xFF
    rows = outcome(list(decode(bytes(content), "f.parquet", "parquet", COLUMNS)))
    assert [row[0][2] for row in rows if row[1] is None] == [*range(10), *range(20, 40)]
    assert [row[1].startswith("unreadable file: rows 11 to 20: ") for row in rows if row[1]] == [True]


@examples(80)
@given(st.lists(st.none() | JUNK, max_size=6))
def test_good_records_of_a_topic_survive_any_others(junk: list[bytes | None]) -> None:
    good = json.dumps(GOOD).encode()
    values = [good, *(part for value in junk for part in (value, good))]
    times = pa.array([0] * len(values)).cast(pa.timestamp("us", "UTC"))
    numbers = pa.array(range(len(values)))
    records = pa.table(
        {"value": pa.array(values, pa.binary()), "partition": numbers, "offset": numbers, "timestamp": times}
    )
    parts = list(decode_records(records, Topic("t", avro=False), COLUMNS))
    rows = outcome(parts)
    assert len(rows) == len(values)
    assert sum(row[0] == VALUES and row[1] is None for row in rows) == len(junk) + 1


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_long_line_is_one_dead_letter_whose_bytes_are_not_kept(form: str) -> None:
    good = {"json": b'{"k":"good","t":"2026-01-01","n":7}', "csv": b"good,2026-01-01,7"}[form]
    head = b"k,t,n\n" if form == "csv" else b""
    first = 2 if form == "csv" else 1
    long = b"x" * (70 << 20)
    content = gzip.compress(head + b"\n".join([good, long, good, b"y" * 2000, good]), 1)
    rows = outcome(list(decode(content, f"f.{form}.gz", form, COLUMNS, 1000)))
    assert [row[1] and row[1].split(":")[0] for row in rows] == [None, "line too long", None, "line too long", None]
    assert rows[1][1] == f"line too long: {len(long)} bytes, source.max_line_bytes is 1000"
    assert [row[3] for row in rows] == [f"f.{form}.gz:{first + i}" for i in range(5)]
    raw = rows[1][2]
    assert raw is not None
    assert len(raw) < 70_000
    assert is_cut(raw)
    assert rows[3][2] == "y" * 2000
    assert not is_cut("y" * 2000)


def test_a_key_given_twice_among_many_takes_no_square_time() -> None:
    keys = ",".join(f'"key{i}":1' for i in range(40_000))
    line = f'{{"k":"a","t":"2026-01-01","n":1e999,{keys},"key7":2}}'.encode()
    assert errors(list(decode(line, "f.json", "json", COLUMNS))) == ["wrong type: n = 1e999 is not a long"]


def test_a_csv_of_many_columns_takes_no_square_time() -> None:
    names = ",".join(f"c{i}" for i in range(100_000))
    content = f"k,t,n,{names}\n".encode() + b"good,2026-01-01,7" + b"," * 100_000 + b"\n"
    rows = outcome(list(decode(content, "f.csv", "csv", COLUMNS)))
    assert [(row[0], row[1]) for row in rows] == [(VALUES, None)]


def test_a_csv_header_that_python_cannot_read_is_an_unreadable_file() -> None:
    content = b"k,t," + b"n" * 140_000 + b"\ngood,2026-01-01,7\n"
    assert errors(list(decode(content, "f.csv", "csv", COLUMNS))) == [
        "unreadable file: the header can't be read: field larger than field limit (131072)"
    ]


@pytest.mark.parametrize("depth", range(960, 1010, 3))
def test_json_as_deep_as_pythons_parser_goes_is_a_dead_letter(depth: int) -> None:
    line = b'{"k":' + b"[" * depth + b"]" * depth + b',"t":"2026-01-01","n":1}'
    (error,) = errors(list(decode(line, "f.json", "json", COLUMNS)))
    assert error
