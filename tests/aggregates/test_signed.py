"""Aggregates that can take rows back: what is left has the states, byte for byte, of the rows that are left."""

import pickle
import re
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.functions import FUNCTIONS
from sessionlake.aggregates.layouts import Added
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
from tests.operators.sessions.merging import Part, merged
from tests.support import examples

CALLS = {
    "count": ["count()", "count(s)"],
    "count_if": ["count_if(b)"],
    "sum": ["sum(n)", "sum(i)", "sum(c)", "sum(b)", "sum(d)", "sum(f)"],
    "min": ["min(n)", "min(d)", "min(s)"],
    "max": ["max(c)", "max(d)", "max(s)", "max(t)", "max(b)"],
    "avg": ["avg(n)", "avg(c)", "avg(d)"],
    "first": ["first(d)", "first(s)"],
    "last": ["last(c)", "last(t)"],
    "any_value": ["any_value(b)"],
    "mode": ["mode(d)", "mode(s)"],
    "bool_and": ["bool_and(b)", "every(b)"],
    "bool_or": ["bool_or(b)"],
    "variance": ["variance(n)", "variance(d)"],
    "var_pop": ["var_pop(c)"],
    "stddev": ["stddev(f)"],
    "stddev_pop": ["stddev_pop(d)"],
    "corr": ["corr(d, n)"],
    "covar_samp": ["covar_samp(d, f)"],
    "covar_pop": ["covar_pop(c, n)"],
    "regr_slope": ["regr_slope(d, c)"],
    "regr_intercept": ["regr_intercept(d, i)"],
    "count_distinct": ["count_distinct(s)", "count_distinct(d, 2)", "count(distinct c)"],
    "approx_count_distinct": ["approx_count_distinct(t)", "approx_count_distinct(n, 0.02)"],
    "percentile": ["percentile(d, 0.5)"],
    "quantile": ["quantile(d, 0.9)", "quantile(c, 0.1)"],
    "median": ["median(n)"],
    "histogram": ["histogram(d)"],
    "collect": ["collect(d, 2)", "array_agg(s, 100)"],
    "collect_set": ["collect_set(d, 2)", "collect_set(i, 100)"],
    "string_agg": ["string_agg(s, ' > ', 3)"],
}
CLASS = "tests.aggregates.signed_rows:Net"
every_call = pytest.mark.parametrize("text", [*(text for texts in CALLS.values() for text in texts), CLASS])


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


def nothing_of(text: str, random: Random) -> Part:
    """Return the state of a row that came and went."""
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


@every_call
@given(some=rows)
@examples(10)
def test_nothing_is_there_before_rows_that_are_taken_back_come(text: str, some: list[Row]) -> None:
    aggregate = signed(text)
    found = aggregate.value(lifted(aggregate, some, -1).states).to_pylist()
    if text != CLASS:
        assert all(value is None or value == [] or value in (0, -1) for value in found)


def test_each_function_takes_rows_back_or_is_refused_by_name() -> None:
    for name, function in FUNCTIONS.items():
        if name in SIGNED:
            assert name in CALLS
            continue
        literals = [literal.example for literal in function.literals]
        text = f"{name}({', '.join([*['s', 'd'][: function.columns], *literals])})"
        types = {**TYPES, "_partition": TYPES["n"], "_offset": TYPES["n"]}
        told = f"aggregates.a: {name}(...) can't take rows back, and those of the source change; write rows = 'final' of results, or one of count, "
        with pytest.raises(ConfigError, match="^" + re.escape(told)):
            build_aggregates({"a": text}, types, subtracts=True)
    assert SIGNED.keys() <= FUNCTIONS.keys()


def test_a_filter_is_a_column_as_ever() -> None:
    texts = {"n": "count() filter (where b)", "total": "sum(d * 2) filter (where b)"}
    hidden = "case when b then d * 2 end"
    count, total = build_aggregates(texts, {**TYPES, hidden: pa.float64()}, subtracts=True)
    assert (count.inputs, total.inputs) == (("b",), (hidden,))
    assert total.state != build_aggregates({"total": "sum(d)"}, TYPES)[0].state
    with pytest.raises(ConfigError, match=r"^aggregates.a: product\(...\) can't take rows back"):
        build_aggregates({"a": "product(d * 2) filter (where b)"}, {**TYPES, hidden: pa.float64()}, subtracts=True)


def test_a_class_without_inverse_is_refused_by_its_path() -> None:
    told = "^aggregates.a: tests.aggregates.signed_rows:Grown can't take rows back, .*; write rows = 'final' of results, a class that has merger and inverse"
    with pytest.raises(ConfigError, match=told):
        build_aggregates({"a": "tests.aggregates.signed_rows:Grown"}, TYPES, subtracts=True)


@every_call
@given(some=rows, random=randoms)
@examples(10)
def test_an_added_aggregate_takes_rows_back_and_workers_can_be_sent_it(
    text: str, some: list[Row], random: Random
) -> None:
    if not some:
        return
    added = pickle.loads(pickle.dumps(Added(signed(text))))  # noqa: S301 (our own)
    unknown = Part(np.array([row.group for row in some if not row.b]), added.unknown(sum(not row.b for row in some)))
    inverse = Part(unknown.groups, added.inverted(unknown.states) or [])
    parts = [lifted(added, [row for row in some if row.b], sign) for sign in (1, -1)]
    last = merged_parts(added, [part for part in [*parts, unknown, inverse] if len(part.groups)], random)
    values = dict(zip(last.groups.tolist(), added.value(last.states).to_pylist(), strict=True))
    (nothing,) = signed(text).value(nothing_of(text, random).states).to_pylist()
    assert values == {row.group: None if row.group in unknown.groups else nothing for row in some}
