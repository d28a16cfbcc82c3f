"""Functions of aggregates beside plain Python, over random rows merged in any order and grouping."""

import ast
import functools
import inspect
import math
import operator
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake import aggregates
from sessionlake.aggregates import Aggregate, Events, build_aggregates
from sessionlake.aggregates.functions import ALIASES, FUNCTIONS
from sessionlake.errors import ConfigError
from tests.aggregates.columns import order_of, randoms
from tests.aggregates.random_rows import TYPES, Row, values_of
from tests.operators.sessions.merging import Part, merged
from tests.support import examples


def rows_of(doubles: st.SearchStrategy[float]) -> st.SearchStrategy[list[Row]]:
    columns = (st.integers(-3, 3), doubles, st.sampled_from(["", "a", "ä", "b\0"]), st.booleans())
    some = [st.none() | column for column in columns]
    row = st.builds(Row, st.integers(0, 2), st.integers(-2, 4), st.sampled_from([None, "", "a", "b"]), *some)
    return st.lists(row, min_size=1, max_size=30)


ANY = rows_of(st.floats() | st.sampled_from([0.0, -0.0, math.nan, 1.0]))
PLAIN = rows_of(st.integers(-1000, 1000).map(lambda n: n / 8))


def check(text: str, rows: list[Row], random: Random, expected: Callable[[list[Row]], Any]) -> None:
    found = values_of(text, rows, random)
    for group in {row.group for row in rows}:
        wanted = expected([row for row in rows if row.group == group])
        if isinstance(wanted, float) and isinstance(found[group], float):
            assert found[group] == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True), text
        else:
            assert repr(found[group]) == repr(wanted), text


def ranked(value: Any) -> Any:
    """Order values as aggregates do: NaN above all, null above that."""
    return (value is None, (False, 0) if value is None else order_of(value))


def place(row: Row) -> tuple[int, str]:
    return (row.time, row.id or "")


def by(x: str, y: str, *, largest: bool) -> Callable[[list[Row]], Any]:
    def expected(rows: list[Row]) -> Any:
        some = [row for row in rows if getattr(row, y) is not None]
        if not some:
            return None
        best = (max if largest else min)((getattr(row, y) for row in some), key=order_of)
        tied = [row for row in some if order_of(getattr(row, y)) == order_of(best)]
        found = getattr(min(tied, key=lambda row: (*place(row), ranked(getattr(row, x)))), x)
        return found + 0.0 if isinstance(found, float) else found

    return expected


def some_of(column: str, compute: Callable[[list[Any]], Any]) -> Callable[[list[Row]], Any]:
    """Return `compute` of the values that are not null, by time, then id, then value; null of none."""

    def expected(rows: list[Row]) -> Any:
        some = [row for row in rows if getattr(row, column) is not None]
        some.sort(key=lambda row: (*place(row), order_of(getattr(row, column))))
        return compute([getattr(row, column) for row in some]) if some else None

    return expected


def most_frequent(values: list[Any]) -> Any:
    counts = Counter(order_of(value) for value in values)
    best = min(counts, key=lambda known: (-counts[known], known))
    return next(value + 0.0 if isinstance(value, float) else value for value in values if order_of(value) == best)


def distinct(values: list[Any], limit: int) -> list[Any]:
    firsts = {order_of(value): value for value in reversed(values)}
    kept = sorted(firsts.values(), key=lambda value: [order_of(v) for v in values].index(order_of(value)))
    return [value + 0.0 if isinstance(value, float) else value for value in kept[:limit]]


def listed(compute: Callable[[list[Any]], Any], column: str) -> Callable[[list[Row]], Any]:
    return lambda rows: some_of(column, compute)(rows) or []


EXACT: dict[str, Callable[[list[Row]], Any]] = {
    "count_if(b)": lambda rows: sum(row.b is True for row in rows),
    "bool_and(b)": some_of("b", all),
    "every(b)": some_of("b", all),
    "bool_or(b)": some_of("b", any),
    "bit_and(i)": some_of("i", lambda v: functools.reduce(operator.and_, v)),
    "bit_or(i)": some_of("i", lambda v: functools.reduce(operator.or_, v)),
    "bit_xor(i)": some_of("i", lambda v: functools.reduce(operator.xor, v)),
    "any_value(s)": some_of("s", lambda v: v[0]),
    "max_by(s, i)": by("s", "i", largest=True),
    "min_by(s, d)": by("s", "d", largest=False),
    "arg_max(i, s)": by("i", "s", largest=True),
    "max_by(i, d)": by("i", "d", largest=True),
    "min_by(d, b)": by("d", "b", largest=False),
    "mode(s)": some_of("s", most_frequent),
    "mode(d)": some_of("d", most_frequent),
    "mode(i)": some_of("i", most_frequent),
    "collect_set(s, 2)": listed(lambda v: distinct(v, 2), "s"),
    "collect_set(i, 3)": listed(lambda v: distinct(v, 3), "i"),
    "collect_set(d, 30)": listed(lambda v: distinct(v, 30), "d"),
    "array_agg(i, 3)": listed(lambda v: v[:3], "i"),
    "string_agg(s, ' > ', 3)": some_of("s", lambda v: " > ".join(v[:3])),
    "approx_count_distinct(i, 0.02)": lambda rows: len({row.i for row in rows} - {None}),
}


@pytest.mark.parametrize("text", EXACT)
@examples(40)
@given(rows=ANY, random=randoms)
def test_values_are_those_of_plain_python(text: str, rows: list[Row], random: Random) -> None:
    check(text, rows, random, EXACT[text])


def spread(compute: Callable[[list[float]], float | None], least: int = 1) -> Callable[[list[Row]], Any]:
    def expected(rows: list[Row]) -> Any:
        values = [row.d for row in rows if row.d is not None]
        return compute(values) if len(values) >= least else None

    return expected


def shape(power: int, compute: Callable[[float, float], float]) -> Callable[[list[Row]], Any]:
    def expected(values: list[float]) -> float | None:
        mean = statistics.fmean(values)
        squares = statistics.fmean([(v - mean) ** 2 for v in values])
        return compute(statistics.fmean([(v - mean) ** power for v in values]), squares) if squares else None

    return spread(expected)


def of_two(compute: Callable[[list[float], list[float]], Any], least: int) -> Callable[[list[Row]], Any]:
    def expected(rows: list[Row]) -> Any:
        both = [(row.d, float(row.i)) for row in rows if row.d is not None and row.i is not None]
        if len(both) < least:
            return None
        y, x = (list(column) for column in zip(*both, strict=True))
        return compute(y, x)

    return expected


def line(y: list[float], x: list[float]) -> tuple[float, float] | tuple[None, None]:
    found = statistics.linear_regression(x, y) if len(set(x)) > 1 else (None, None)
    return found[0], found[1]


NEAR: dict[str, Callable[[list[Row]], Any]] = {
    "product(d)": spread(math.prod),
    "stddev(d)": spread(statistics.stdev, 2),
    "stddev_pop(d)": spread(statistics.pstdev),
    "var_samp(d)": spread(statistics.variance, 2),
    "var_pop(d)": spread(statistics.pvariance),
    "skewness(d)": shape(3, lambda m, squares: m / squares**1.5),
    "kurtosis(d)": shape(4, lambda m, squares: m / squares**2 - 3),
    "covar_samp(d, i)": of_two(statistics.covariance, 2),
    "covar_pop(d, i)": of_two(lambda y, x: statistics.covariance(y, x) * (len(x) - 1) / len(x) if x[1:] else 0.0, 1),
    "corr(d, i)": of_two(lambda y, x: statistics.correlation(y, x) if len(set(x)) > 1 and len(set(y)) > 1 else None, 2),
    "regr_slope(d, i)": of_two(lambda y, x: line(y, x)[0], 2),
    "regr_intercept(d, i)": of_two(lambda y, x: line(y, x)[1], 2),
}


@pytest.mark.parametrize("text", NEAR)
@examples(40)
@given(rows=PLAIN, random=randoms)
def test_spreads_are_near_those_of_plain_python(text: str, rows: list[Row], random: Random) -> None:
    check(text, rows, random, NEAR[text])


@examples(20)
@given(rows=ANY, random=randoms)
def test_spreads_of_infinities_and_nan_are_nan_in_any_order(rows: list[Row], random: Random) -> None:
    found = values_of("stddev(d)", rows, random)
    for group in {row.group for row in rows}:
        values = [row.d for row in rows if row.group == group and row.d is not None]
        if len(values) > 1 and not all(map(math.isfinite, values)):
            assert math.isnan(found[group])


@pytest.mark.parametrize("most", [1, 2000])
def test_a_product_whose_parts_are_beyond_doubles_is_exact(most: int) -> None:
    values = [1e200, 1e-200, -2.0] * most
    rows = [Row(0, n, None, None, value, None, None) for n, value in enumerate(values)]
    found = [values_of("product(d)", rows, Random(seed))[0] for seed in range(5)]
    assert found == pytest.approx([-2.0 if most == 1 else math.inf] * 5)


def test_a_spread_that_is_small_beside_the_mean_is_exact() -> None:
    rows = [Row(0, n, None, None, 1e9 + n % 7, None, None) for n in range(1000)]
    found = values_of("var_pop(d)", rows, Random(1))[0]
    assert found == pytest.approx(statistics.pvariance([n % 7 for n in range(1000)]), rel=1e-12)


@pytest.mark.parametrize(("error", "distinct"), [(0.02, 100), (0.02, 50_000), (0.1, 20_000), (0.0021, 30_000)])
def test_distinct_values_are_counted_within_four_errors(error: float, distinct: int) -> None:
    (aggregate,) = build_aggregates({"a": f"approx_count_distinct(i, {error})"}, TYPES)
    values = np.random.default_rng(2).permutation(np.repeat(np.arange(distinct), 2))
    parts = []
    for some in np.array_split(values, 7):
        columns = {"i": pa.array(some)}
        states = aggregate.lift(Events(pa.nulls(len(some), pa.string()), some, columns))
        parts.append(merged(aggregate, [Part(np.zeros(len(some), np.int64), states)], Random(1)))
    together = merged(aggregate, [merged(aggregate, parts[:3], Random(1)), *parts[3:]], Random(2))
    (found,) = aggregate.value(together.states).to_pylist()
    assert abs(found - distinct) <= 4 * error * distinct
    assert together.states[0].nbytes <= (1 << aggregate.bits) + 16


def test_a_histogram_has_each_bucket_with_its_count() -> None:
    rows = [Row(0, n, None, None, value, None, None) for n, value in enumerate([1.0, 1.0, -5.0, 0.0, None])]
    (buckets,) = values_of("histogram(d)", rows, Random(1)).values()
    assert [bucket["count"] for bucket in buckets] == [1, 1, 2]
    assert [bucket["value"] for bucket in buckets] == pytest.approx([-5.0, 0.0, 1.0], rel=0.01)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("count_if(i)", r"needs true or false, but i is int64; compare it, as in count_if\(i > 0\)$"),
        ("bool_and(s)", "needs true or false, but s is string"),
        ("bit_or(d)", "needs whole numbers, but d is double; cast it to bigint$"),
        ("stddev(s)", "needs numbers, but s is string"),
        ("corr(i, s)", "needs numbers, but s is string"),
        ("histogram(s)", r"histogram\(s\) needs numbers, but s is string"),
        ("string_agg(i, ', ', 3)", "needs texts, but i is int64; cast it to string$"),
        (
            "string_agg(s, 3)",
            r"'3' must be a text in quotes; write 'string_agg\(column, ' > ', 100\)' \(at character 15: '3\)'\)$",
        ),
        ("collect_set(s)", r"names no limit; write 'collect_set\(s, 100\)'$"),
        ("collect_list(i)", r"'collect_list\(i\)' names no limit; write 'collect_list\(i, 100\)'$"),
        ("string_agg(s)", r"names no separator; write 'string_agg\(s, ' > ', 100\)'$"),
        ("string_agg(s, ', ')", r"names no limit; write 'string_agg\(s, ', ', 100\)'$"),
        ("max_by(i)", r"names no second column; write 'max_by\(column, other\)'$"),
        ("max_by(i, d, 3)", r"max_by takes 2 columns only; remove '3' \(at character 14: '3\)'\)$"),
        ("approx_count_distinct(i, 0.5)", "'0.5' must be a number from 0.0021 to 0.26"),
    ],
)
def test_wrong_columns_are_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"^aggregates\.a: [^\n]*{told}"):
        build_aggregates({"a": text}, TYPES)


SOURCE = Path(aggregates.__file__).parent
BY_HAND = {"count", "count_if", "count_distinct", "first_position", "last_position"}
"""Functions that the grammar knows: those of FILTER and DISTINCT, and those that read a record's position."""


def test_an_aggregate_is_one_class_and_one_entry() -> None:
    assert set(ALIASES.values()) <= set(FUNCTIONS)
    assert not set(ALIASES) & set(FUNCTIONS)
    names = {
        (path.name, node.value)
        for path in SOURCE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in FUNCTIONS
    }
    assert {name for file, name in names if file == "spec.py"} == BY_HAND
    assert {name for file, name in names if file == "functions.py"} == set(FUNCTIONS)


def test_every_class_is_built_by_an_entry() -> None:
    used = {
        node.id
        for file in ("functions.py", "signed/functions.py")
        for node in ast.walk(ast.parse((SOURCE / file).read_text()))
        if isinstance(node, ast.Name)
    }
    of_users = {"Folded", "Reduced", "Evaluated"}
    made = {
        cls.__name__
        for cls in every_class(Aggregate)
        if cls.__module__.startswith("sessionlake.") and not inspect.isabstract(cls)
    }
    around_others = {"Added"}
    assert made - of_users - around_others <= used


def every_class(base: type) -> Iterator[type]:
    for cls in base.__subclasses__():
        yield cls
        yield from every_class(cls)


def test_every_function_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "aggregates.md").read_text()
    assert [name for name in (*FUNCTIONS, *ALIASES) if f"`{name}(" not in page and f"`{name}`" not in page] == []
