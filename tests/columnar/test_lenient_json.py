"""JSON texts read one by one: as DuckDB's way of it reads plain ones, and as the form of a text does not change its value."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.columnar.lenient_json import Path, value_at
from sessionlake.columnar.spark_sql import parse
from tests.columnar.json_texts import NOT_PLAIN

_NAMES = st.sampled_from(["a", "b", "ä", "it's", ""])
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(_NAMES, inner), max_size=3).map(tuple),
    max_leaves=8,
)
"""Lists, and tuples of pairs, which are objects whose keys may come twice."""
_OBJECTS = st.lists(st.tuples(_NAMES, _VALUES), max_size=4).map(tuple)


def _text(value: Any, *, ascii_: bool) -> str:
    if isinstance(value, tuple):
        pairs = (f"{json.dumps(name, ensure_ascii=ascii_)}: {_text(one, ascii_=ascii_)}" for name, one in value)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(one, ascii_=ascii_) for one in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_)


def _by_expression(texts: list[str], path: str) -> list[str | None]:
    found = parse("x", f"get_json_object(v, '{path}')").typed({"v": pa.string()}, "string")
    values: list[str | None] = found.evaluate({"v": pa.array(texts, pa.string())}, len(texts)).to_pylist()
    return values


@settings(max_examples=25, deadline=None)
@given(st.lists(_OBJECTS, min_size=1, max_size=8), st.booleans())
def test_both_ways_to_read_a_text_find_the_same(values: list[Any], ascii_: bool) -> None:  # noqa: FBT001
    texts = [_text(value, ascii_=ascii_) for value in values]
    paths: list[tuple[str, Path]] = [
        ("$.a", ["a"]),
        ("$.a.b", ["a", "b"]),
        ("$.a[0]", ["a", 0]),
        ("$.a[1].b", ["a", 1, "b"]),
    ]
    for path, keys in [*paths, ("$.b[0][1]", ["b", 0, 1])]:
        assert _by_expression(texts, path) == [value_at(text, keys) for text in texts]


def test_a_place_in_a_list_is_read_as_in_spark() -> None:
    texts = ['{"a":[1,"x",null,[7,8],{"b":null,"b":2}]}', '[[1],{"a":[3]}]', '{"a":{"0":1}}', '{"a":[1,]}', '{"a":[]}']
    assert _by_expression(texts, "$.a[0]") == ["1", None, None, None, None]
    assert _by_expression(texts, "$.a[1]") == ["x", None, None, None, None]
    assert _by_expression(texts, "$.a[2]") == ["null", None, None, None, None]
    assert _by_expression(texts, "$.a[3][1]") == ["8", None, None, None, None]
    assert _by_expression(texts, "$.a[4].b") == ["2", None, None, None, None]
    assert _by_expression(texts, "$[0]") == [None, "[1]", None, None, None]
    assert _by_expression(texts, "$[1].a[0]") == [None, "3", None, None, None]


@settings(max_examples=25, deadline=None)
@given(_OBJECTS, st.sampled_from([" x", "}", '"', "\n", "\x00"]))
def test_a_text_in_other_quotes_and_with_more_behind_it_has_the_same_values(value: Any, behind: str) -> None:
    text = _text(value, ascii_=False)
    other = "".join({"'": "\\u0027", '"': "'"}.get(one, one) for one in text.replace('\\"', "\\u0022")) + behind
    assert _by_expression([other], "$.a") == _by_expression([text], "$.a")


@given(st.text("{}[]:,'\"\\ab1.-eu0 \n", max_size=30), st.sampled_from(NOT_PLAIN), st.integers(0, 60))
def test_no_text_raises(noise: str, text: str, at: int) -> None:
    value_at(text[:at] + noise + text[at:], ["a"])
    value_at("{" + noise, ["a", "b"])
