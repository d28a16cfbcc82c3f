"""The outer call of an aggregate: quotes, brackets and FILTER are seen, whatever stands in them."""

import re

import pytest

from sessionlake.aggregates.calls import Call, Part, read_call
from sessionlake.errors import ConfigError

READ = {
    "count()": Call("count", ()),
    " SUM ( x ) ": Call("sum", (Part("x", 8),)),
    "max_by(item, price)": Call("max_by", (Part("item", 8), Part("price", 14))),
    "sum(if(a, 1, 2), 3)": Call("sum", (Part("if(a, 1, 2)", 5), Part("3", 18))),
    "string_agg(p, ', ', 20)": Call("string_agg", (Part("p", 12), Part("', '", 15), Part("20", 21))),
    "sum(x) FILTER (WHERE b)": Call("sum", (Part("x", 5),), condition=Part("b", 22)),
    "sum(x) filter(where t = ')' and f('\\')'))": Call(
        "sum", (Part("x", 5),), condition=Part("t = ')' and f('\\')')", 21)
    ),
    "count(distinct `a, (b`)": Call("count", (Part("`a, (b`", 16),), distinct=7),
    "count(distinctly)": Call("count", (Part("distinctly", 7),)),
    "sum(x) filter (where 'order by' = y)": Call("sum", (Part("x", 5),), condition=Part("'order by' = y", 22)),
}


@pytest.mark.parametrize("text", READ)
def test_a_call_is_read_with_its_places(text: str) -> None:
    call = read_call("a", text)
    assert call == READ[text]
    for part in (*call.arguments, *([call.condition] if call.condition else [])):
        assert text[part.at - 1 :].startswith(part.text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sum", "is no call of a function at character 1; write it as in 'sum(column)'"),
        ("sum(x", "opens a bracket that is not closed at character 4; close it"),
        ("sum(x = 'a)", "opens a ' that is not closed at character 9; close it"),
        ("sum(x) over (order)", "goes on with 'over (order)' at character 8; write filter (where ...) there, or nothing"),
        ("sum(x) filter (where b) y", "goes on with 'y' at character 24; leave that out"),
        ("sum(x) filter (where )", "has nothing at character 22; write an expression there"),
        ("sum(x,)", "has nothing at character 7; write an expression there"),
        ("first(x respect nulls)", "has 'respect nulls', which is not supported at character 9; leave it out"),
        ("collect(x order by y, 3)", "has 'order by', which is not supported at character 11; leave it out"),
        ("sum(x -- y)", "has '--', which is not supported at character 7; leave it out"),
    ],
)  # fmt: skip
def test_what_is_no_call_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(f'a: {text!r} {told}')}$"):
        read_call("a", text)
