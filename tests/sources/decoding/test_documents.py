"""JSON documents with a list of rows: against Python's own parser, at any size of the blocks in which they are read."""

import gzip
import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.layouts import Layout
from sessionlake.errors import SourceError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.again import file_again, layout_again
from sessionlake.sources.decoding.documents import Document, decode_document, parts_of_path
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.pieces import parts_of
from sessionlake.sources.infer import scanned
from tests.sources.decoding.common import outcome
from tests.support import examples

COLUMNS = EventColumns("k", None, None, None, ("n",), {"k": pa.string(), "n": pa.int64()})
NULLS = (None, None)
BLOCKS = (1, 5, 64, 1 << 20)


def run(content: bytes, records: str = "Records", block_bytes: int = 1 << 20, limit: int = 1 << 20) -> list:
    layout = Layout("json", records=records)
    return outcome(list(decode_document(content, "f.json", COLUMNS, layout, block_bytes, limit)))


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_elements_of_the_list_are_rows_with_their_numbers(block_bytes: int) -> None:
    text = b'{"v": 1, "x": {"Records": [9]}, "Records": [{"k":"a","n":1}, {"k":"b\\"}]","n":2,"y":[[{"z":"]"}]]},\n\n {"k":"c"} ], "w": [1,{"a":"]"}]}\n'
    assert run(text, block_bytes=block_bytes) == [
        (("a", 1), None, '{"k":"a","n":1}', "f.json:1"),
        (('b"}]', 2), None, '{"k":"b\\"}]","n":2,"y":[[{"z":"]"}]]}', "f.json:2"),
        (("c", None), None, '{"k":"c"}', "f.json:3"),
    ]


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_paths_and_elements_that_are_no_objects(block_bytes: int) -> None:
    assert run(b'{"data":{"x":1,"items":[{"k":"a"}]},"items":[{}]}', "data.items", block_bytes)[0][0] == ("a", None)
    assert run(b'{"a.b":[{"k":"a"}]}', "`a.b`", block_bytes)[0][0] == ("a", None)
    assert [row[1:] for row in run(b'[1,{"k":"a","n":"x"},null, "x" ]', ".", block_bytes)] == [
        ("bad JSON: not an object", "1", "f.json:1"),
        ("wrong type: n = 'x' is not a long", '{"k":"a","n":"x"}', "f.json:2"),
        ("bad JSON: not an object", "null", "f.json:3"),
        ("bad JSON: not an object", '"x"', "f.json:4"),
    ]
    assert run(b'\xef\xbb\xbf[{"k":"a"}]', ".")[0][0] == ("a", None)
    assert run(b'{"Records": []}', block_bytes=block_bytes) == run(b" \n", block_bytes=block_bytes) == []


BROKEN = [
    (b'{"data":[]}', "data.items", 0, "'data' is no object", "f.json"),
    (b'{"Records":5}', "Records", 0, "'Records' is no list", "f.json"),
    (b"{}", "Records", 0, "there is no 'Records'", "f.json"),
    (b"[]", "Records", 0, "it is no object", "f.json"),
    (b'{"x":tru,"Records":[{}]}', "Records", 0, "'tru' is no value", "f.json"),
    (b'[{"k":"a"}, ', ".", 1, "it ends within the list", "f.json:2"),
    (b'[{"k":"a"},{"k":"x]', ".", 1, "it ends within an element", "f.json:2"),
    (b'[{"k":"a"},{"k":1]},{"k":"c"}]', ".", 1, "Expecting ',' delimiter: line 1 column 7 (char 6)", "f.json:2"),
    (b'[{"k":"a"} {"k":"b"}]', ".", 1, "a comma or a bracket is missing", "f.json:2"),
    (b'[{"k":"a"},{"k":"b"},]', ".", 2, "a value is missing", "f.json:3"),
    (b'[{"k":"a"}] [{"k":"b"}]', ".", 1, "there is more text behind it", "f.json"),
    (b'{"Records":[{"k":"a"}],"Records":[{"k":"b"}]}', "Records", 1, "'Records' is there twice", "f.json"),
    (b'{"Records":[{"k":"a"}],"x":[1,2}', "Records", 1, "a comma or a bracket is missing", "f.json"),
]


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize(("content", "records", "good", "told", "place"), BROKEN)
def test_rows_before_a_break_stand_and_the_rest_is_one_row(
    content: bytes, records: str, good: int, told: str, place: str, block_bytes: int
) -> None:
    rows = run(content, records, block_bytes)
    assert [row[1] for row in rows] == [None] * good + [f"bad document: {told}"]
    assert rows[-1][3] == place
    assert rows[-1][2] is None or rows[-1][2].encode() in content


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_a_break_within_an_element_takes_all_that_follows(block_bytes: int) -> None:
    rows = run(b'[{"k":"a"},{"k":},{"k":"c"}, {"k":"d"}]', ".", block_bytes)
    assert [row[0] for row in rows] == [("a", None), NULLS]
    assert rows[1][2].replace(" ", "") == '{"k":},{"k":"c"},{"k":"d"}]'


@pytest.mark.parametrize("block_bytes", BLOCKS)
def test_bytes_outside_of_utf8_and_a_name_twice_cost_their_element(block_bytes: int) -> None:
    rows = run(b'[{"k":"\xff"},{"k":"a","k":"b"},{"k":"c"}]', ".", block_bytes)
    assert [row[1] for row in rows] == ["bad JSON: not UTF-8 at byte 6", "bad JSON: column k is given twice", None]


@pytest.mark.parametrize("block_bytes", [16, 1 << 20])
def test_an_element_beyond_the_limit_is_read_past(block_bytes: int) -> None:
    rows = run(b'[{"k":"a"},{"k":"' + b"x\\\\" * 40 + b'"}, {"k":"c"}]', ".", block_bytes, 50)
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (("a", None), None, "f.json:1"),
        (NULLS, "line too long: 128 bytes, source.max_line_bytes is 50", "f.json:2"),
        (("c", None), None, "f.json:3"),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.sampled_from('a"\\{}[],: é'), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "x", '"', "}"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@examples(300)
@given(st.lists(JSON, max_size=8), st.sampled_from([None, 1]), st.sampled_from([1, 7, 1 << 20]), st.booleans())
def test_texts_and_numbers_are_those_of_pythons_parser(
    values: list[Any],
    indent: int | None,
    block_bytes: int,
    ascii: bool,  # noqa: A002, FBT001
) -> None:
    content = json.dumps({"x": values, "Records": values}, indent=indent, ensure_ascii=ascii).encode()
    rows = run(content, block_bytes=block_bytes)
    assert [json.loads(row[2]) for row in rows] == values
    assert [row[3] for row in rows] == [f"f.json:{number}" for number in range(1, len(values) + 1)]
    again = layout_again(Layout("json", records="Records"))
    assert again is not None
    readable, file = file_again([row[2] for row in rows], again)
    assert len(readable) == len(rows)
    assert [row[:2] for row in outcome(list(decode(file, "f", again, COLUMNS)))] == [row[:2] for row in rows]


@examples(300)
@given(st.text(st.sampled_from('a"\\{}[],:1 '), max_size=40), st.sampled_from([3, 1 << 20]))
def test_any_text_ends_with_at_most_one_row_for_the_rest(text: str, block_bytes: int) -> None:
    rows = run(f'[{{"k":"a"}},{text}'.encode(), ".", block_bytes)
    assert rows[0][0] == ("a", None)
    broken = [str(row[1]).startswith("bad document") for row in rows]
    assert not any(broken[:-1])
    try:
        values = json.loads(f'[{{"k":"a"}},{text}')
    except ValueError:
        assert broken[-1]
    else:
        assert len(rows) == len(values)


def test_memory_is_bounded_by_a_block_and_not_by_the_document() -> None:
    element = json.dumps({"k": "user", "pad": "x" * 500}).encode()

    def blocks() -> Iterator[bytes]:
        yield b'{"Records":['
        for _ in range(200):
            yield (element + b",") * 500
        yield element + b"]}"

    tracemalloc.start()
    found = sum(len(lines) for lines in Document(blocks(), ("Records",), 1 << 20).elements())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == 100_001
    assert peak < 4 << 20  # 54 MB were read


def test_a_document_is_read_by_its_path_and_can_not_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"Records": [{"k": "a", "n": 1}, {"k": "b"}]}, indent=2).encode()))
    layout = Layout("json", records="Records")
    rows = outcome(list(decode(str(path), str(path), layout, COLUMNS)))
    assert [(row[0], row[3]) for row in rows] == [(("a", 1), f"{path}:1"), (("b", None), f"{path}:2")]
    assert list(scanned([str(path)], layout, None)) == ["k", "n"]
    assert parts_of(str(path), 1 << 30, layout, 8) == 1
    with pytest.raises(SourceError, match="there is no 'other'"):
        scanned([str(path)], Layout("json", records="other"), None)


def test_a_truncated_gzip_gives_the_elements_before_its_end() -> None:
    rng = random.Random(1)
    whole = gzip.compress(json.dumps([{"k": str(rng.random()), "n": n} for n in range(50_000)]).encode())
    rows = outcome(list(decode(whole[: len(whole) // 2], "f.json.gz", Layout("json", records="."), COLUMNS)))
    assert rows[-1][1] == "unreadable file: Truncated compressed stream"
    assert [row[0][1] for row in rows[:-1]] == list(range(len(rows) - 1))
    assert len(rows) > 10_000


def test_whole_rows_are_the_elements() -> None:
    columns = EventColumns("k", None, None, None, (), {"k": pa.string()}, whole=True)
    (part,) = decode(b'[{"k":"a","z":[1]},{"k":"b"}]', "f.json", Layout("json", records="."), columns)
    assert part.whole is not None
    assert part.whole(np.array([0]))["raw"].to_pylist() == ['{"k":"a","z":[1]}']


@pytest.mark.parametrize("records", ["", "a.", ".a", "a..b", "`a", "a`b"])
def test_a_text_that_is_no_path_is_refused_in_words(records: str) -> None:
    with pytest.raises(ValueError, match="is no path; write a name such as 'Records'"):
        parts_of_path(records)
