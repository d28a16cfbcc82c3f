from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionlake.errors import SourceError
from sessionlake.sources.decoding import parquet_rows
from sessionlake.sources.decoding.files import decode
from tests.sources.decoding.common import COLUMNS, WIDE, errors, outcome

NULLS = (None, None, None)


def written(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def test_only_needed_columns_and_missing_ones_are_null() -> None:
    content = written(pa.table({"z": [1, 2], "n": [3, None], "k": ["a", None]}))
    assert outcome(list(decode(content, "f.parquet", "parquet", COLUMNS))) == [
        (("a", None, 3), None, '{"k": "a", "n": 3}', "f.parquet:1"),
        ((None, None, None), None, '{"k": null, "n": null}', "f.parquet:2"),
    ]


def test_no_needed_column_gives_null_rows() -> None:
    rows = outcome(list(decode(written(pa.table({"z": [1, 2]})), "f", "parquet", COLUMNS)))
    assert [row[:2] for row in rows] == [(NULLS, None), (NULLS, None)]


def test_value_that_does_not_cast_is_null_with_its_reason() -> None:
    table = pa.table({"k": pa.array([b"a", b"\xff"]), "t": [1, 2], "n": [1.0, 1.5]})
    assert outcome(list(decode(written(table), "f", "parquet", COLUMNS))) == [
        (("a", "1", 1), None, '{"k": "b\'a\'", "t": 1, "n": 1.0}', "f:1"),
        (
            (None, "2", None),
            "wrong type: k = b'\\xff' is not a string",
            '{"k": "b\'\\\\xff\'", "t": 2, "n": 1.5}',
            "f:2",
        ),
    ]


def test_string_column_with_bytes_that_are_not_utf8() -> None:
    bad = pa.array([b"a", b"\xff"]).view(pa.string())
    rows = outcome(list(decode(written(pa.table({"k": bad})), "f", "parquet", COLUMNS)))
    assert [row[:2] for row in rows] == [
        (("a", None, None), None),
        (NULLS, "wrong type: k = b'\\xff' is not a string"),
    ]


def test_nested_column_is_wrong_throughout_but_where_null() -> None:
    table = pa.table({"k": pa.array([{"x": 1}, None])})
    assert errors(list(decode(written(table), "f", "parquet", COLUMNS))) == [
        "wrong type: k = {'x': 1} is not a string",
        None,
    ]


def test_dictionary_and_other_widths_are_cast() -> None:
    table = pa.table(
        {
            "k": pa.array(["a", "a"]).dictionary_encode(),
            "t": pa.array([1_600_000_000_123_456_789, -1], pa.timestamp("ns")),
            "n": pa.array([1, 2], pa.uint8()),
            "f": pa.array([1, 2**60 + 1]),
            "m": pa.array([1, 2]),
        }
    )
    rows = outcome(list(decode(written(table), "f", "parquet", WIDE)))
    assert [row[1] for row in rows] == [None, None]
    assert [row[0][1] for row in rows] == [
        datetime(2020, 9, 13, 12, 26, 40, 123456, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    assert [(row[0][0], row[0][3], row[0][4], row[0][7]) for row in rows] == [("a", 1, 1.0, 1), ("a", 2, 2.0**60, 2)]


def test_parts_are_at_most_250_000_rows_numbered_through() -> None:
    content = written(pa.table({"n": range(600_000)}), row_group_size=400_000)
    parts = list(decode(content, "f", "parquet", COLUMNS))
    assert sum(len(part.table) for part in parts) == 600_000
    assert max(len(part.table) for part in parts) <= 250_000
    assert outcome(parts)[599_999] == ((None, None, 599_999), None, '{"n": 599999}', "f:600000")


def test_two_columns_of_one_name_give_the_first() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"])
    assert [row[:2] for row in outcome(list(decode(written(table), "f", "parquet", COLUMNS)))] == [
        (("a", None, None), None)
    ]


@pytest.mark.parametrize("content", [b"", b"not parquet, but long enough", b"PAR1" + b"\0" * 40 + b"PAR1"])
def test_not_parquet_is_one_error_row(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(content)
    for source in (str(path), content):
        ((values, error, raw, position),) = outcome(list(decode(source, "f.parquet", "parquet", COLUMNS)))
        assert (values, raw, position) == (NULLS, None, "f.parquet")
        assert error is not None
        assert error.startswith("unreadable file: ")


def test_damaged_row_group_comes_after_the_good_ones() -> None:
    content = bytearray(written(pa.table({"n": range(500_000)}), row_group_size=250_000, compression="zstd"))
    second = pq.ParquetFile(pa.BufferReader(bytes(content))).metadata.row_group(1).column(0)
    start = second.dictionary_page_offset or second.data_page_offset
    content[start : start + second.total_compressed_size] = b"\xff" * second.total_compressed_size
    *good, last = list(decode(bytes(content), "f", "parquet", COLUMNS))
    assert sum(len(part.table) for part in good) == 250_000
    assert errors([last])[0].startswith("unreadable file: ")


def test_missing_path_raises() -> None:
    with pytest.raises(SourceError, match=r"can't open '/none\.parquet': it doesn't exist"):
        list(decode("/none.parquet", "f", "parquet", COLUMNS))


def test_unknown_format_raises() -> None:
    with pytest.raises(SourceError, match="unknown format 'xml': write json, csv or parquet"):
        list(decode(b"", "f", "xml", COLUMNS))


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (pa.scalar(300_000_000_000_000_000, pa.timestamp("us", "UTC")), "11476-08-15 05:20:00.000000Z"),
        (pa.scalar(-300_000_000_000_000_000, pa.timestamp("us")), "-7537-05-18 18:40:00.000000"),
        (pa.scalar(10_000_000, pa.date32()), "29349-01-26"),
    ],
)
def test_a_time_without_a_python_date_is_shown_as_text(time: pa.Scalar, text: str) -> None:
    content = written(pa.table({"n": pa.array([time.value], time.type)}))
    ((_, reason, raw, _),) = outcome(list(decode(content, "f", "parquet", COLUMNS)))
    assert raw == f'{{"n": "{text}"}}'
    assert reason == (f"wrong type: n = {text} is not a long" if time.type == pa.date32() else None)


@pytest.mark.parametrize("kind", ["dictionary", "plain"])
def test_rows_of_long_values_are_read_in_smaller_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_BATCH_BYTES", 1 << 20)
    texts = ["x" * 10_000] * 1000 if kind == "dictionary" else [f"{n:010000d}" for n in range(1000)]
    table = pa.table({"k": [f"u{n % 7}" for n in range(1000)], "t": texts, "n": range(1000)})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=kind == "dictionary", row_group_size=400)
    parts = list(decode(buffer.getvalue().to_pybytes(), "f.parquet", "parquet", COLUMNS))
    assert max(len(part.table) for part in parts) <= 105
    assert pa.concat_tables([part.table for part in parts]).select(["k", "t", "n"]).to_pydict() == table.to_pydict()
