import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sources.decoding import json_alike
from sessionlake.sources.decoding.json_alike import read_alike
from sessionlake.sources.decoding.json_lines import read_lines
from sessionlake.sources.decoding.json_rows import Converter, parse_object
from sessionlake.sources.decoding.lines import index_lines

SCHEMA = pa.schema([("text", pa.string()), ("whole", pa.int64()), ("real", pa.float64()), ("absent", pa.int64())])
PLAIN = st.text(st.characters(exclude_characters='"\\', min_codepoint=32, exclude_categories=["Cs"]), max_size=12)
WHOLE = st.integers(-(10**18) + 1, 10**18 - 1)
REAL = st.integers(-(10**9), 10**9).map(lambda value: value / 1000) | st.integers(-999, 999)
VALUES = {"text": PLAIN, "whole": WHOLE, "real": REAL, "more": PLAIN, "number": REAL}


def rows_of(block: bytes, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]] | None:
    lines, _ = index_lines(block, 0, 1 << 20)
    with patch.object(json_alike, "_CHUNK_LINES", 3):
        table = read_alike(lines, schema)
    return None if table is None else table.to_pylist()


def rows_of_parser(block: bytes, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    """Read each line by Python's parser; ValueError where one is no object, or a value not of its column's type."""
    convert, rows = Converter(schema, schema), []
    lines, _ = index_lines(block, 0, 1 << 20)
    for i in range(len(lines)):
        values, reason = convert(parse_object(lines.content(i)))
        if reason is not None:
            raise ValueError(reason)
        rows.append({name: values.get(name) for name in schema.names})
    return rows


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    names = draw(st.permutations(sorted(VALUES)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :  ")]))
    rows = draw(st.lists(st.tuples(*(VALUES[name] for name in names)), min_size=1, max_size=8))
    objects = (dict(zip(names, row, strict=True)) for row in rows)
    texts = (json.dumps(row, ensure_ascii=False, separators=separators) for row in objects)
    return b"".join(text.encode() + b"\n" for text in texts)


@given(blocks())
def test_lines_of_one_layout_are_read_as_a_parser_does(block: bytes) -> None:
    if b"e-" not in block:  # how Python writes the smallest numbers
        assert rows_of(block) == rows_of_parser(block)


DAMAGE = st.binary(min_size=0, max_size=2) | st.sampled_from([b'"', b"\\", b"-", b".", b"0", b",", b":", b"e1", b" "])


@given(blocks(), st.floats(0, 1), st.integers(0, 2), DAMAGE)
def test_what_is_read_after_any_damage_is_what_a_parser_reads(block: bytes, at: float, cut: int, put: bytes) -> None:
    place = int(at * (len(block) - 1))
    damaged = block[:place] + put + block[place + cut :]
    try:
        damaged.decode()
    except UnicodeDecodeError:
        return
    found = rows_of(damaged)
    assert found is None or found == rows_of_parser(damaged)


@pytest.mark.parametrize(
    "value",
    [
        "01",
        "-",
        "-01",
        "1.",
        ".5",
        "1.5.1",
        "+1",
        "1e3",
        "1-1",
        "0x1",
        "true",
        "null",
        "NaN",
        "[1]",
        "{}",
        '"1"',
        "1" * 19,
    ],
)
@pytest.mark.parametrize("name", ["real", "not_asked"])
def test_numbers_that_only_a_parser_can_judge_are_left_to_it(name: str, value: str) -> None:
    lines = [f'{{"{name}":{text}}}' for text in ("1", "10.25", value, "-3")]
    assert rows_of("\n".join(lines).encode()) is None


@pytest.mark.parametrize(
    "second", [b'{"b":1,"a":1}', b'{"a":1}', b'{"a":1,"b":1,"c":1}', b'{"a":1, "b":1}', b'{"a":1,"b":1 }']
)
def test_another_layout_is_left_to_the_parser(second: bytes) -> None:
    assert rows_of(b'{"a":1,"b":1}\n' * 4 + second + b"\n") is None


def test_a_fraction_in_a_column_of_whole_numbers_is_left_to_the_parser() -> None:
    assert rows_of(b'{"whole":1}\n{"whole":2.0}\n') is None


def test_zero_keeps_its_sign_as_a_double_only() -> None:
    ((row),) = rows_of(b'{"whole":-0,"real":-0.0}\n') or [None]
    assert str(row) == "{'text': None, 'whole': 0, 'real': -0.0, 'absent': None}"


def test_many_lines_alike_are_read_by_place() -> None:
    lines, _ = index_lines(b'{"text":"a","whole":1,"real":0.5}\n' * 600, 0, 1 << 20)
    with patch("sessionlake.sources.decoding.json_lines.pj.read_json", side_effect=AssertionError("Arrow was asked")):
        table, errors = read_lines(lines, SCHEMA)
    assert not errors
    assert table.num_rows == 600


def test_many_lines_alike_and_one_that_is_not_are_all_read() -> None:
    one, odd = b'{"text":"a","whole":1,"real":0.5}\n', b'{"text":"\\u0062","whole":1.0,"real":5e-1}\n'
    lines, _ = index_lines(one * 2000 + odd, 0, 1 << 20)
    table, errors = read_lines(lines, SCHEMA)
    assert not errors
    assert table.slice(1999).to_pylist() == [
        {"text": text, "whole": 1, "real": 0.5, "absent": None} for text in ("a", "b")
    ]


NESTED = pa.schema(
    [("a.text", pa.string()), ("a.b.whole", pa.int64()), ("real", pa.float64()), ("a.absent", pa.int64())]
)
ORDERS = st.tuples(st.permutations(["a", "real", "more"]), st.permutations(["text", "b", "more"]), st.booleans())


@st.composite
def nested_blocks(draw: st.DrawFn) -> bytes:
    top, middle, reverse = draw(ORDERS)
    separators = draw(st.sampled_from([(",", ":"), (" ,", " :  ")]))
    texts = []
    for _ in range(draw(st.integers(1, 6))):
        inner = {"whole": draw(WHOLE), "number": draw(REAL), "none": {}}
        b = dict(reversed(inner.items())) if reverse else inner
        a = {"text": draw(PLAIN), "b": b, "more": {"text": draw(PLAIN)}}
        row = {"a": {name: a[name] for name in middle}, "real": draw(REAL), "more": draw(PLAIN)}
        texts.append(json.dumps({name: row[name] for name in top}, ensure_ascii=False, separators=separators))
    return b"".join(text.encode() + b"\n" for text in texts)


@given(nested_blocks())
def test_nested_lines_of_one_layout_are_read_as_a_parser_does(block: bytes) -> None:
    if b"e-" not in block:
        assert rows_of(block, NESTED) == rows_of_parser(block, NESTED)


@given(nested_blocks(), st.data(), DAMAGE)
def test_damaged_nested_lines_are_left_to_the_parser(block: bytes, data: st.DataObject, damage: bytes) -> None:
    at = data.draw(st.integers(0, len(block)))
    damaged = block[:at] + damage + block[at + data.draw(st.integers(0, 2)) :]
    try:
        damaged.decode()
    except UnicodeDecodeError:
        return
    found = rows_of(damaged, NESTED)
    assert found is None or found == rows_of_parser(damaged, NESTED)


@pytest.mark.parametrize(
    "line", ['{"a": 1}', '{"a": {"text": {}}}', '{"a": {"b": "x"}}', '{"a": [{"text": "x"}]}', "{}"]
)
def test_a_value_above_a_field_is_left_to_the_parser(line: str) -> None:
    assert rows_of(line.encode(), NESTED) is None
