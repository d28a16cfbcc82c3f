import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.column_names import ELEMENT
from sessionlake.sources.decoding.element_texts import ElementTexts

names = st.sampled_from(["a", "items", "b.c", 'q"', "é"])
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)


@given(
    row=st.dictionaries(names, values, max_size=4),
    elements=st.lists(values, max_size=4),
    above=st.booleans(),
    indent=st.sampled_from([None, 1]),
    number=st.one_of(st.none(), st.integers(0, 9)),
)
def test_a_text_has_one_element_and_all_else(
    *, row: dict[str, Any], elements: list[Any], above: bool, indent: int | None, number: int | None
) -> None:
    inner = {**row, "items": elements}
    whole = {**row, "a": inner} if above else inner
    if number is not None:
        whole[ELEMENT] = number
    texts = ElementTexts.of(json.dumps(whole, indent=indent), ["a", "items"] if above else ["items"])
    assert texts is not None
    assert len(texts.elements) == len(elements)
    for at, element in enumerate(elements):
        one = {**inner, "items": [element]}
        wanted = {**row, "a": one} if above else one
        assert json.loads(texts.with_element(at)) == {**wanted, ELEMENT: at + (number or 0)}
        assert json.loads(texts.element(at)) == element


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "{",
        '{"items"',
        '{"items":[1,2}',
        '{"items":[1 2]}',
        '{"items":{"a":1}}',
        '{"other":[1]}',
        '{"items":[1],"items":[2]}',
        '{"items":[1],"_element":"x"}',
        '{"items":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_other_texts_are_not_parted(text: str) -> None:
    # Of two lists of one name, the text would keep the other one's elements.
    assert ElementTexts.of(text, ["items"]) is None


def test_numbers_keep_their_digits() -> None:
    text = '{"items":[1.10,12345678901234567890123],"price":0.10000000000000000001}'
    texts = ElementTexts.of(text, ["items"])
    assert texts is not None
    assert texts.with_element(0) == '{"_element":0,"items":[1.10],"price":0.10000000000000000001}'
