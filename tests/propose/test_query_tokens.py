"""Conditions and lists of a query, split outside of brackets."""

import pytest

from sessionlake.propose.query.brackets import conjuncts, split
from sessionlake.propose.query.words import Query


def split_where(condition: str) -> list[str]:
    query = Query(f"select {condition}", "query.sql")
    return [query.said(part) for part in conjuncts(query.tokens[1:])]


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("a = 1", ["a = 1"]),
        ("a = 1 and b", ["a = 1", "b"]),
        ("(a = 1 and (b and c))", ["a = 1", "b", "c"]),
        ("a between 1 and 2 and b between 3 and 4 and c", ["a between 1 and 2", "b between 3 and 4", "c"]),
        ("a or b and c", ["a or b and c"]),
        ("(a or b) and c", ["a or b", "c"]),
        ("case when a and b then c end and d", ["case when a and b then c end", "d"]),
        (
            "case when case when a then b end and c then d end and e",
            ["case when case when a then b end and c then d end", "e"],
        ),
        ("w.end > a and b", ["w.end > a", "b"]),
        ("a in (1, 2) and not (b and c)", ["a in (1, 2)", "not (b and c)"]),
        ("a -- and c\n and b", ["a", "b"]),
        ("a = 'x and y' and b", ["a = 'x and y'", "b"]),
    ],
)
def test_conditions_that_and_joins(condition: str, parts: list[str]) -> None:
    assert split_where(condition) == parts


def test_items_keep_their_words_in_one_line() -> None:
    query = Query("select f(a, b)  as x, -- the first\n  g(1.5D,\n 'y, z') /* and */ y, `a, b`", "query.sql")
    assert [query.said(part) for part in split(query.tokens[1:])] == ["f(a, b)  as x", "g(1.5D, 'y, z') y", "`a, b`"]
