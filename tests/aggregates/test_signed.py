"""Aggregates that can take rows back: what is left has the states, byte for byte, of the rows that are left."""

import re
from random import Random

import pytest
from hypothesis import given

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.functions import FUNCTIONS
from sessionlake.aggregates.signed.functions import SIGNED
from sessionlake.errors import ConfigError
from tests.aggregates.columns import randoms
from tests.aggregates.signed_rows import (
    NULLS,
    TYPES,
    Row,
    lifted,
    merged_parts,
    rows,
    signed,
    split,
    states_by_group,
)
from tests.operators.sessions.merging import merged
from tests.support import examples

CALLS = {
    "count": ["count()", "count(s)"],
    "count_if": ["count_if(b)"],
    "sum": ["sum(n)", "sum(i)", "sum(c)", "sum(b)", "sum(d)", "sum(f)"],
    "avg": ["avg(n)", "avg(c)", "avg(d)"],
}
every_call = pytest.mark.parametrize("text", [text for texts in CALLS.values() for text in texts])


@every_call
@given(kept=rows, gone=rows, random=randoms)
@examples(40)
def test_rows_that_are_taken_back_leave_no_trace(text: str, kept: list[Row], gone: list[Row], random: Random) -> None:
    aggregate = signed(text)
    both = [*((row, 1) for row in [*kept, *gone]), *((row, -1) for row in gone)]
    if not both:
        return
    parts = []
    for part in split(both, random):
        parts += [lifted(aggregate, [row for row, of in part if of == sign], sign) for sign in (1, -1)]
    found = states_by_group(aggregate, merged_parts(aggregate, [part for part in parts if len(part.groups)], random))
    left = [lifted(aggregate, part) for part in split(kept, random)]
    wanted = states_by_group(aggregate, merged_parts(aggregate, left, random)) if left else {}
    (nothing,) = states_by_group(aggregate, nothing_of(text, random)).values()
    assert found == {group: wanted.get(group, nothing) for group in found}
    assert wanted.keys() <= found.keys()


def nothing_of(text: str, random: Random):  # noqa: ANN201 (a part of one row)
    aggregate = signed(text)
    return merged(aggregate, [lifted(aggregate, [NULLS]), lifted(aggregate, [NULLS], -1)], random)


@every_call
def test_a_null_is_nothing(text: str) -> None:
    aggregate = signed(text)
    if text != "count()":
        assert states_by_group(aggregate, lifted(aggregate, [NULLS])) == states_by_group(
            aggregate, nothing_of(text, Random(0))
        )


@every_call
@given(some=rows)
@examples(20)
def test_the_inverse_of_an_inverse_is_the_state(text: str, some: list[Row]) -> None:
    aggregate = signed(text)
    states = lifted(aggregate, some).states
    twice = aggregate.inverted(aggregate.inverted(states) or [])
    assert [column.to_pylist() for column in twice or []] == [column.to_pylist() for column in states]


def test_each_function_takes_rows_back_or_is_refused_by_name() -> None:
    for name, function in FUNCTIONS.items():
        if name in SIGNED:
            assert name in CALLS
            continue
        literals = [literal.example for literal in function.literals]
        text = f"{name}({', '.join([*['s', 'd'][: function.columns], *literals])})"
        types = {**TYPES, "_partition": TYPES["n"], "_offset": TYPES["n"]}
        told = f"aggregates.a: {name}(...) can't take rows back, which source.rows = 'changes' asks for; write rows = 'final', or one of count, "
        with pytest.raises(ConfigError, match="^" + re.escape(told)):
            build_aggregates({"a": text}, types, subtracts=True)
    assert SIGNED.keys() <= FUNCTIONS.keys()


def test_a_class_is_refused_by_its_path() -> None:
    with pytest.raises(ConfigError, match=r"^aggregates.a: some.module:Class can't take rows back"):
        build_aggregates({"a": "some.module:Class"}, TYPES, subtracts=True)
