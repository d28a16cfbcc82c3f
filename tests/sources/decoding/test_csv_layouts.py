"""CSV in all its forms: delimiters, quotes, escapes, comments, and files without a header."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.layouts import Layout
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.again import file_again, layout_again
from sessionlake.sources.decoding.csv_rows import decode_csv
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.infer import infer_types, scanned
from tests.sources.decoding.common import outcome
from tests.support import examples

NAMES = ("k", "t", "n")
COLUMNS = EventColumns("k", "t", None, None, ("n",), dict.fromkeys(NAMES, pa.string()))
PLAIN = Layout("csv", header=False, names=NAMES)
NULLS = (None, None, None)


def run(content: bytes, layout: Layout, block_bytes: int = 1 << 20, limit: int = 1 << 20) -> list:
    return outcome(list(decode_csv(content, "f.csv", COLUMNS, block_bytes, limit, layout)))


@pytest.mark.parametrize("delimiter", [";", "\t", "|", "\x01", "^", "]", "\\", "-", " "])
def test_the_delimiter_is_any_character(delimiter: str) -> None:
    content = "\n".join(delimiter.join(row) for row in (NAMES, ("a,b", '"x' + delimiter + 'y"', "1"), ("c",)))
    rows = run(content.encode(), Layout("csv", delimiter=delimiter))
    assert [row[:2] for row in rows] == [
        (("a,b", f"x{delimiter}y", "1"), None),
        (NULLS, "bad CSV: 1 fields, not 3"),
    ]


def test_without_a_header_the_first_record_is_a_row() -> None:
    expected = [(("a", "x", "1"), None, "a,x,1", "f.csv:2"), (("b", "y", "2"), None, "b,y,2", "f.csv:3")]
    assert run(b"\na,x,1\nb,y,2\n", PLAIN) == expected
    numbered = EventColumns("c1", "c2", None, None, ("c3",), dict.fromkeys(("c1", "c2", "c3"), pa.string()))
    for block_bytes in (6, 1 << 20):
        parts = decode_csv(b"\na,x,1\nb,y,2\n", "f.csv", numbered, block_bytes, 100, replace(PLAIN, names=()))
        assert outcome(list(parts)) == expected


def test_names_count_the_fields() -> None:
    assert [row[1] for row in run(b"a,x\na,x,1\n", PLAIN)] == ["bad CSV: 2 fields, not 3", None]
    numbered = run(b"a,x\na,x,1\n", replace(PLAIN, names=()))
    assert [row[1] for row in numbered] == [None, "bad CSV: 3 fields, not 2"]


@pytest.mark.parametrize("block_bytes", [9, 64, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_that_begin_with_the_comment_are_no_rows_but_count_as_lines(block_bytes: int, end: str) -> None:
    lines = ["#Version: 1.0", "# it's \"quoted", "a,x,1", '#Fields: "', '"b', '#c",y,#2', "#", "#d,e,f", "c,z,3"]
    rows = run(end.join(lines).encode(), replace(PLAIN, comment="#"), max(block_bytes, 16), 64)
    assert [(*row[:2], row[3]) for row in rows] == [
        (("a", "x", "1"), None, "f.csv:3"),
        ((f"b{end}#c", "y", "#2"), None, "f.csv:5"),
        (("c", "z", "3"), None, "f.csv:9"),
    ]


def test_a_long_comment_is_no_row_and_comments_come_before_a_header() -> None:
    content = b"// made by us\n" + b"//" + b"x" * 200 + b"\nk,t,n\n/,x,1\n//"
    rows = run(content, Layout("csv", comment="//"), 32, 64)
    assert rows == [(("/", "x", "1"), None, "/,x,1", "f.csv:4")]


def test_without_quotes_a_quote_is_a_character() -> None:
    layout = replace(PLAIN, delimiter="\t", quote="")
    content = b'"Heroes"_(album)\t{"a": "b,c"}\t"\nb\t"x\ty"\n'
    assert [row[0] for row in run(content, layout)] == [('"Heroes"_(album)', '{"a": "b,c"}', '"'), ("b", '"x', 'y"')]


def test_an_escape_takes_the_next_character_as_it_is() -> None:
    layout = replace(PLAIN, escape="\\")
    content = b'a\\,b,"x\\"y",1\n"c\\\\",d\\\ne,2\nlast,x,y\\'
    assert [row[:2] for row in run(content, layout)] == [
        (("a,b", 'x"y', "1"), None),
        (("c\\", "d\ne", "2"), None),
        (NULLS, "bad CSV: a quote or an escape that is never closed"),
    ]


CELL = st.text(st.sampled_from("ab';#\\\r\n,\"\t"), max_size=4).filter(bool)


@examples(300)
@given(
    st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=12),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(['"', "'"]),
    st.sampled_from(["", "\\"]),
    st.sampled_from([16, 64, 1 << 20]),
)
def test_rows_are_those_of_pythons_writer(
    records: list[list[str]], delimiter: str, quote: str, escape: str, block_bytes: int
) -> None:
    buffer = io.StringIO()
    style = {"escapechar": escape, "doublequote": False} if escape else {}
    writer = csv.writer(
        buffer, delimiter=delimiter, quotechar=quote, quoting=csv.QUOTE_ALL, lineterminator="\n", **style
    )
    writer.writerows(records)
    content = buffer.getvalue().encode()
    layout = replace(PLAIN, delimiter=delimiter, quote=quote, escape=escape, comment="#")
    rows = run(content, layout, max(block_bytes, 64), 1 << 10)
    assert [row[:2] for row in rows] == [(tuple(record), None) for record in records]
    again = layout_again(layout)
    assert again is not None
    readable, file = file_again([row[2] for row in rows], again)
    assert readable == list(range(len(rows)))
    read = decode(file, "again", again, COLUMNS)
    assert [row[:3] for row in outcome(list(read))] == [row[:3] for row in rows]


@examples(200)
@given(
    st.text(st.sampled_from('ab",\r\n\\#;'), max_size=60),
    st.sampled_from([8, 1 << 20]),
    st.sampled_from(["", "\\"]),
    st.sampled_from(["", '"']),
)
def test_any_text_gives_each_row_a_text_that_is_the_same_row(text: str, size: int, escape: str, quote: str) -> None:
    layout = replace(PLAIN, escape=escape, quote=quote, comment="#")
    rows = run(text.encode(), layout, size)
    assert all(raw for _, _, raw, _ in rows)
    lines = [int(position.removeprefix("f.csv:")) for _, _, _, position in rows]
    assert lines == sorted(lines)
    again = layout_again(layout)
    assert again is not None
    good = [row for row in rows if row[1] is None]
    readable, file = file_again([row[2] for row in good], again)
    assert len(readable) == len(good)
    assert [row[:2] for row in outcome(list(decode(file, "again", again, COLUMNS)))] == [row[:2] for row in good]


def test_texts_that_are_no_record_are_not_read_again() -> None:
    again = layout_again(PLAIN)
    assert again is not None
    assert file_again(["a,x,1", '"b', None, "", "c,d,e\nf,g,h", '"i\nj",k,l'], again)[0] == [0, 5]
    assert layout_again(Layout("csv")) is None
    assert layout_again(replace(PLAIN, names=())) is None


def test_types_are_inferred_of_any_layout(tmp_path: Path) -> None:
    path = tmp_path / "f.tsv"
    path.write_bytes(b"#x\nu1\t7\t1.5\n#y\nu2\t8\t2\n")
    layout = Layout("csv", delimiter="\t", header=False, comment="#")
    assert list(scanned([str(path)], layout, None)) == ["c1", "c2", "c3"]
    types = infer_types([str(path)], layout, ["c1", "c2", "c3"])
    assert types == {"c1": pa.string(), "c2": pa.int64(), "c3": pa.float64()}


def test_a_file_in_the_shape_of_snowplows_enriched_events() -> None:
    """131 fields, tabs, no header, no quotes: JSON in fields has quotes of its own."""
    names = tuple(f"c{number}" for number in range(1, 132))
    rows = [["shop", "web", f"2026-11-29 05:01:0{i}.123", *[""] * 9, f"user{i}", *[""] * 118] for i in range(3)]
    for row in rows:
        row[52] = '{"schema":"iglu:com.x","data":[{"a":"b"}]}'
    content = "\n".join("\t".join(row) for row in rows).encode()
    columns = EventColumns("c13", "c3", None, None, ("c53",), dict.fromkeys(names, pa.string()))
    layout = Layout("csv", delimiter="\t", quote="", header=False)
    found = outcome(list(decode(content, "f.tsv", layout, columns)))
    assert [row[:2] for row in found] == [((row[12], row[2], row[52]), None) for row in rows]
