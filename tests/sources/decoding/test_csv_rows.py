import csv
import gzip
import io
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.csv_rows import decode_csv
from sessionlake.sources.decoding.files import decode
from tests.sources.decoding.common import COLUMNS, MONEY, WIDE, outcome
from tests.support import examples

NULLS = (None, None, None)


def run(content: bytes, columns: EventColumns = COLUMNS, block_bytes: int = 1 << 20, limit: int = 1 << 20) -> list:
    return outcome(list(decode_csv(content, "f.csv", columns, block_bytes, limit)))


def test_every_pinned_type() -> None:
    header = b"m,d,b,f,n,i,t,k\n"
    good = ("a", datetime(2020, 1, 1, tzinfo=UTC), "007", 1, 2.5, True, date(2020, 1, 2), MONEY)
    rows = run(header + b"1.25,2020-01-02,true,2.5,1,007,2020-01-01,a\nx,x,x,x,x,x,x,x\n,,,,,,,\n", WIDE)
    assert [row[0] for row in rows] == [good, ("x", None, "x", *[None] * 5), (None,) * 8]
    assert [row[1] for row in rows] == [None, "wrong type: t = 'x' is not a timestamp", None]


def test_wrong_number_of_fields_is_a_bad_row_with_its_text_and_line() -> None:
    assert run(b"k,t,n\na,x,1\nb,x\n\nc,x,3,4\nd,x,4\n") == [
        (("a", "x", 1), None, "a,x,1", "f.csv:2"),
        (NULLS, "bad CSV: 2 fields, not 3", "b,x", "f.csv:3"),
        (NULLS, "bad CSV: 4 fields, not 3", "c,x,3,4", "f.csv:5"),
        (("d", "x", 4), None, "d,x,4", "f.csv:6"),
    ]


def test_empty_field_is_null_and_quoted_empty_field_is_empty_text() -> None:
    assert [row[:2] for row in run(b'k,t,n\n,"",\n')] == [((None, "", None), None)]


def test_quoted_line_breaks_delimiters_and_quotes() -> None:
    assert run(b'k,t,n\r\n"a\r\nb","x,""y""",1\r\nc"d,"e"f,2\r\n') == [
        (("a\r\nb", 'x,"y"', 1), None, '"a\r\nb","x,""y""",1', "f.csv:2"),
        (('c"d', "ef", 2), None, 'c"d,"e"f,2', "f.csv:4"),
    ]


@pytest.mark.parametrize("block_bytes", [8, 64, 1 << 20])
def test_quote_that_never_closes_costs_its_line_only(block_bytes: int) -> None:
    rows = run(b'k,t,n\na,x,1\n"b,x,2\nc,x,3\n' + b"d,x,4\n" * 5, block_bytes=block_bytes)
    assert rows[1] == (NULLS, "bad CSV: a quote that is never closed", '"b,x,2', "f.csv:3")
    assert [row[0] for row in rows] == [("a", "x", 1), NULLS, ("c", "x", 3)] + [("d", "x", 4)] * 5


def test_record_longer_than_the_limit_is_taken_as_a_quote_that_never_closes() -> None:
    rows = run(b'k,t,n\n"b,x,2\n' + b"d,x,4\n" * 50 + b'",x,5\n', limit=64)
    assert rows[0] == (NULLS, "bad CSV: a quote that is never closed", '"b,x,2', "f.csv:2")
    assert [row[0] for row in rows[1:51]] == [("d", "x", 4)] * 50


def test_column_missing_from_the_header_is_null() -> None:
    assert [row[:2] for row in run(b"z,k\n1,a\n2,b\n")] == [(("a", None, None), None), (("b", None, None), None)]


def test_no_needed_column_in_the_header_gives_null_rows() -> None:
    assert [row[:2] for row in run(b"z\n1\n2\n")] == [(NULLS, None), (NULLS, None)]


def test_first_of_two_columns_with_one_name_is_read() -> None:
    assert [row[:2] for row in run(b"k,k,t,n\na,b,x,1\n")] == [(("a", "x", 1), None)]


def test_not_utf8_is_bad_in_a_needed_column_and_in_a_bad_row() -> None:
    assert run(b"k,t,n,z\n\xff,x,1,\nb,x,2,\xff\n\xff\n") == [
        ((None, "x", 1), "bad CSV: k is not UTF-8", "\ufffd,x,1,", "f.csv:2"),
        (("b", "x", 2), None, "b,x,2,\ufffd", "f.csv:3"),
        (NULLS, "bad CSV: 1 fields, not 4", "\ufffd", "f.csv:4"),
    ]


def test_byte_order_mark_and_blank_lines_before_the_header() -> None:
    assert run(b"\xef\xbb\xbf\n\nk,t,n\na,x,1") == [(("a", "x", 1), None, "a,x,1", "f.csv:4")]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"k,t,n", b"k,t,n\n\n"])
def test_file_without_rows(content: bytes) -> None:
    assert run(content) == []


def test_header_with_an_open_quote_is_unreadable() -> None:
    assert run(b'"k,t,n\na,x,1') == [
        (NULLS, "unreadable file: the header has a quote that is never closed", None, "f.csv")
    ]


def test_path_and_content_of_gzip(tmp_path: Path) -> None:
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(b"k,t,n\na,x,1\n"))
    expected = [(("a", "x", 1), None, "a,x,1", f"{path}:2")]
    assert outcome(list(decode(str(path), str(path), "csv", COLUMNS))) == expected
    assert outcome(list(decode(path.read_bytes(), str(path), "csv", COLUMNS))) == expected


def test_truncated_gzip_leaves_out_its_cut_line() -> None:
    content = gzip.compress(b"k,t,n\n" + b"a,x,1\n" * 200_000)
    rows = outcome(list(decode(content[:-20], "f.csv.gz", "csv", COLUMNS)))
    assert rows[-1] == (NULLS, "unreadable file: Truncated compressed stream", None, "f.csv.gz")
    assert {row[:2] for row in rows[:-1]} == {(("a", "x", 1), None)}


def test_parts_are_at_most_250_000_rows_with_bad_rows_in_place() -> None:
    parts = list(decode(b"k,t,n\n" + b"a,x,1\n" * 250_000 + b"b\n" + b"c,x,1\n", "f.csv", "csv", COLUMNS))
    assert [len(part.table) for part in parts] == [250_000, 2]
    assert outcome(parts[1:]) == [
        (NULLS, "bad CSV: 1 fields, not 3", "b", "f.csv:250002"),
        (("c", "x", 1), None, "c,x,1", "f.csv:250003"),
    ]


FIELD = st.text(st.sampled_from('ab",\r\n '), max_size=4).filter(lambda text: text != "")
RECORDS = st.lists(st.lists(FIELD, min_size=2, max_size=4), max_size=20)


@examples(300)
@given(RECORDS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([16, 64, 1 << 20]))
def test_rows_texts_and_lines_agree_with_pythons_writer(records: list[list[str]], end: str, block_bytes: int) -> None:
    columns = EventColumns("k", "t", None, None, ("n",), dict.fromkeys("ktn", COLUMNS.types["k"]))
    texts, lines, line = [], [], 2
    for record in records:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="", quoting=csv.QUOTE_ALL).writerow(record)
        texts.append(buffer.getvalue())
        lines.append(f"f.csv:{line}")
        line += texts[-1].count("\n") + 1
    content = "".join(text + end for text in ["k,t,n", *texts]).encode()
    expected = [
        (tuple(record), None, text, at)
        if len(record) == 3
        else (NULLS, f"bad CSV: {len(record)} fields, not 3", text, at)
        for record, text, at in zip(records, texts, lines, strict=True)
    ]
    assert run(content, columns, max(block_bytes, max(map(len, texts), default=0) + 8)) == expected


@examples(300)
@given(st.text(st.sampled_from('ab",\r\n'), max_size=60), st.sampled_from([8, 1 << 20]))
def test_any_text_gives_each_row_a_text_and_a_line_in_order(text: str, block_bytes: int) -> None:
    rows = run(b"k,t,n\n" + text.encode(), block_bytes=block_bytes)
    assert all(raw for _, _, raw, _ in rows)
    lines = [int(position.removeprefix("f.csv:")) for _, _, _, position in rows]
    assert lines == sorted(lines)
    for values, error, raw, _ in rows:
        if error is None:
            assert run(b"k,t,n\n" + raw.encode())[0][0] == values


def test_texts_of_an_inferred_key_that_are_not_the_numbers_own_are_no_key() -> None:
    columns = EventColumns("k", None, None, None, ("v",), {"k": pa.int64(), "v": pa.int64()}, canonical=("k",))
    content = b"k,v\n" + b"".join(b"%s,%s\n" % (text, text) for text in (b"7", b"007", b"0x7", b"7.0", b"", b"-7"))
    rows = outcome(list(decode(content, "f.csv", "csv", columns)))
    assert [row[0] for row in rows] == [(7, 7), (None, 7), (None, 7), (None, 7), (None, None), (-7, -7)]
    reasons = [f"wrong type: k = '{text}' is not a long" for text in ("007", "0x7", "7.0")]
    assert [row[1] for row in rows] == [None, *reasons, None, None]


def test_a_number_beyond_all_doubles_is_not_infinity() -> None:
    columns = EventColumns("k", None, None, None, (), {"k": pa.float64()})
    texts = (b"12e4567", b"-1e400", b"Infinity", b"1e308")
    rows = outcome(list(decode(b"k\n" + b"\n".join(texts) + b"\n", "f.csv", "csv", columns)))
    assert [row[0][0] for row in rows] == [None, None, float("inf"), 1e308]
    assert rows[0][1] == "wrong type: k = '12e4567' is not a double"
