"""Values of aggregates that can take rows back beside exact fractions, sorted lists and the forms that can't."""

import math
import statistics
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.signed.exact import root
from tests.aggregates.columns import INT64, order_of, randoms
from tests.aggregates.signed_rows import TYPES, Row, lifted, merged_parts, rows, signed, split
from tests.support import examples


def values_of(text: str, kept: list[Row], gone: list[Row], random: Random) -> dict[int, Any]:
    """Return each group's value after some rows came and went, in any order."""
    aggregate = signed(text)
    both = [*((row, 1) for row in [*kept, *gone]), *((row, -1) for row in gone)]
    parts = []
    for part in split(both, random):
        parts += [lifted(aggregate, [row for row, of in part if of == sign], sign) for sign in (1, -1)]
    last = merged_parts(aggregate, [part for part in parts if len(part.groups)], random)
    values = aggregate.value(last.states)
    values.validate(full=True)
    assert values.type == aggregate.value_type
    found = values.to_pylist()
    if aggregate.one is not None:
        states = zip(*(column.to_pylist() for column in last.states), strict=True)
        assert list(map(repr, map(aggregate.one, states))) == list(map(repr, found))
    return dict(zip(last.groups.tolist(), found, strict=True))


def as_float(exact: Fraction) -> float:
    """Return the nearest double, as IEEE 754 rounds."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def odd_sum(values: list[float]) -> float | None:
    """Return the sum if that is NaN or infinite whatever the finite values are."""
    odd = [value for value in values if not math.isfinite(value)]
    return sum(odd) if odd else None


def sum_of_doubles(values: list[float]) -> float:
    odd = odd_sum(values)
    return as_float(sum(map(Fraction, values), Fraction())) if odd is None else odd


def average_of_doubles(values: list[float]) -> float:
    odd = odd_sum(values)
    if odd is not None:
        return odd
    total = sum(map(Fraction, values), Fraction())
    rounded = as_float(total)
    return as_float(total / len(values)) if math.isinf(rounded) else rounded / len(values)


def clipped_sum(values: list[int]) -> int:
    return total if INT64.min <= (total := sum(values)) <= INT64.max else None


def exact_average(values: list[Any]) -> float:
    return as_float(sum(map(Fraction, values), Fraction()) / len(values))


def variance(ddof: int) -> Callable[[list[Any]], float | None]:
    def compute(values: list[Any]) -> float | None:
        if len(values) <= ddof:
            return None
        if odd_sum(values) is not None:
            return math.nan
        exact = [Fraction(value) for value in values]
        mean = sum(exact, Fraction()) / len(exact)
        return as_float(sum(((x - mean) ** 2 for x in exact), Fraction()) / (len(exact) - ddof))

    return compute


def sample_deviation(values: list[Any]) -> float | None:
    if len(values) < 2 or odd_sum(values) is not None:
        return None if len(values) < 2 else math.nan
    try:
        return statistics.stdev(map(Fraction, values))
    except OverflowError:
        return math.inf


def least(values: list[Any]) -> Any:
    return positive_zero(min(values, key=order_of))


def greatest(values: list[Any]) -> Any:
    return positive_zero(max(values, key=order_of))


def most_frequent(values: list[Any]) -> Any:
    counts = Counter(map(order_of, values))
    best = min(counts, key=lambda of: (-counts[of], of))
    return positive_zero(next(value for value in values if order_of(value) == best))


def positive_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


ORACLES: list[tuple[str, str, Callable[[list[Any]], Any]]] = [
    ("sum(n)", "n", clipped_sum),
    ("sum(c)", "c", sum),
    ("sum(d)", "d", sum_of_doubles),
    ("sum(f)", "f", sum_of_doubles),
    ("avg(n)", "n", exact_average),
    ("avg(c)", "c", exact_average),
    ("avg(d)", "d", average_of_doubles),
    ("min(n)", "n", least),
    ("max(c)", "c", greatest),
    ("min(d)", "d", least),
    ("max(d)", "d", greatest),
    ("max(s)", "s", greatest),
    ("mode(d)", "d", most_frequent),
    ("mode(s)", "s", most_frequent),
    ("bool_and(b)", "b", all),
    ("bool_or(b)", "b", any),
    ("variance(n)", "n", variance(1)),
    ("variance(d)", "d", variance(1)),
    ("var_pop(c)", "c", variance(0)),
    ("var_pop(f)", "f", variance(0)),
    ("stddev(d)", "d", sample_deviation),
    ("stddev(c)", "c", sample_deviation),
    ("count_distinct(d, 2)", "d", lambda values: len({order_of(value) for value in values})),
    ("count_distinct(s)", "s", lambda values: len(set(values))),
]


@pytest.mark.parametrize(("text", "column", "oracle"), ORACLES, ids=[text for text, *_ in ORACLES])
@given(kept=rows, gone=rows, random=randoms)
@examples(60)
def test_values_are_those_of_the_rows_that_are_left(
    text: str, column: str, oracle: Callable[[list[Any]], Any], kept: list[Row], gone: list[Row], random: Random
) -> None:
    if not kept and not gone:
        return
    for group, found in values_of(text, kept, gone, random).items():
        values = [value for row in kept if row.group == group and (value := getattr(row, column)) is not None]
        empty = 0 if text.startswith("count") else None
        wanted = oracle(values) if values else empty
        assert repr(found) == repr(wanted), (group, values)


SAME = ["percentile(d, 0.5)", "histogram(d)", "quantile(d, 0.3)", "median(c)", "median(n)", "max(t)", "min(b)"]
SAME += ["count(s)", "count()", "count_if(b)", "collect(s, 3)", "collect(n, 100)", "collect_set(d, 2)"]
SAME += ["collect_set(s, 100)", "string_agg(s, ' > ', 3)", "first(s)", "first(n)", "last(s)", "last(c)", "any_value(b)"]


@pytest.mark.parametrize("text", SAME)
@given(kept=rows, gone=rows, random=randoms)
@examples(40)
def test_values_are_those_of_the_form_that_keeps_all_rows(
    text: str, kept: list[Row], gone: list[Row], random: Random
) -> None:
    if not kept:
        return
    (plain,) = build_aggregates({"a": text}, TYPES, with_id=True)
    last = merged_parts(plain, [lifted(plain, part) for part in split(kept, random)], random)
    wanted = dict(zip(last.groups.tolist(), plain.value(last.states).to_pylist(), strict=True))
    found = values_of(text, kept, gone, random)
    assert {group: repr(found[group]) for group in wanted} == {group: repr(value) for group, value in wanted.items()}


def spread(pairs: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Return the sum of the products of the distances from the means."""
    y, x = (sum(column, Fraction()) / len(pairs) for column in zip(*pairs, strict=True))
    return sum(((a - y) * (b - x) for a, b in pairs), Fraction())


def correlation(pairs: list[tuple[Fraction, Fraction]]) -> float | None:
    if len(pairs) < 2:
        return None
    squares = spread([(y, y) for y, _ in pairs]) * spread([(x, x) for _, x in pairs])
    if not squares:
        return None
    ratio = spread(pairs) ** 2 / squares
    with localcontext(prec=60):
        root = float((Decimal(ratio.numerator) / Decimal(ratio.denominator)).sqrt())
    return -root if spread(pairs) < 0 else root


def slope(pairs: list[tuple[Fraction, Fraction]]) -> Fraction | None:
    if len(pairs) < 2:
        return None
    squares = spread([(x, x) for _, x in pairs])
    return spread(pairs) / squares if squares else None


def intercept(pairs: list[tuple[Fraction, Fraction]]) -> Fraction | None:
    of = slope(pairs)
    return None if of is None else (sum(y for y, _ in pairs) - of * sum(x for _, x in pairs)) / len(pairs)


OF_TWO: dict[str, Callable[[list[tuple[Fraction, Fraction]]], Any]] = {
    "covar_samp": lambda pairs: spread(pairs) / (len(pairs) - 1) if len(pairs) > 1 else None,
    "covar_pop": lambda pairs: spread(pairs) / len(pairs) if pairs else None,
    "corr": correlation,
    "regr_slope": slope,
    "regr_intercept": intercept,
}


@pytest.mark.parametrize("function", OF_TWO)
@pytest.mark.parametrize(("y", "x"), [("d", "f"), ("c", "n"), ("d", "c"), ("i", "d")])
@given(kept=rows, gone=rows, random=randoms)
@examples(20)
def test_functions_of_two_columns(
    function: str, y: str, x: str, kept: list[Row], gone: list[Row], random: Random
) -> None:
    if not kept:
        return
    for group, found in values_of(f"{function}({y}, {x})", kept, gone, random).items():
        pairs = [(getattr(row, y), getattr(row, x)) for row in kept if row.group == group]
        pairs = [pair for pair in pairs if None not in pair]
        finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
        if len(finite) < len(pairs):
            assert found is None if len(pairs) < 2 and function != "covar_pop" else math.isnan(found)
            continue
        wanted = OF_TWO[function]([(Fraction(a), Fraction(b)) for a, b in finite])
        assert repr(found) == repr(as_float(wanted) if isinstance(wanted, Fraction) else wanted), pairs


def small(values: list[float], column: str = "d") -> list[Row]:
    return [Row(0, *(value if name == column else None for name in TYPES)) for value in values]


def test_a_spread_that_is_small_beside_the_mean_is_exact() -> None:
    values = [1e15 + x / 8 for x in range(8)]
    found = values_of("variance(d)", small(values), small([1e300, -1e-300, 3.0]), Random(0))
    assert found == {0: statistics.variance([x / 8 for x in range(8)])}


def test_a_sum_beyond_doubles_comes_back() -> None:
    assert values_of("sum(d)", small([1e308, 1e308]), [], Random(0)) == {0: math.inf}
    assert values_of("sum(d)", small([1e308, 1e308, -1e308]), [], Random(0)) == {0: 1e308}
    assert values_of("avg(d)", small([1e308, 1.5e308]), [], Random(0)) == {0: 1.25e308}


def test_an_infinity_that_is_taken_back_leaves_the_rest() -> None:
    assert values_of("sum(d)", small([0.1]), small([math.inf, math.nan]), Random(0)) == {0: 0.1}
    both = values_of("sum(d)", small([0.1, math.inf, -math.inf]), [], Random(0))
    assert math.isnan(both[0])


def test_decimals_are_divided_once() -> None:
    cents = [Decimal("0.01"), Decimal("0.02")]
    assert values_of("avg(c)", small(cents, "c"), [], Random(0)) == {0: 0.015}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("tiny", [0.0, 2.0**-9, 2.0**-20, 2.0**-40, 2.0**-70, 5e-324])
@pytest.mark.parametrize("even", [2.0**53, 2.0**53 + 4])
def test_of_two_doubles_that_are_as_near_the_even_one_is_taken_else_the_nearer(
    even: float, tiny: float, sign: int
) -> None:
    up, down = small([sign * x for x in (even, 1.0, tiny)]), small([sign * x for x in (even + 2, -1.0, tiny)])
    assert values_of("sum(d)", up, [], Random(0)) == {0: sign * (even + 2 if tiny else even)}
    assert values_of("sum(d)", down, [], Random(0)) == {0: sign * (even + 2 if tiny else even)}


def test_a_quotient_of_large_numbers_is_rounded_once() -> None:
    values = [10144033133738945, 1, 1, 1, 1]
    assert float(sum(values)) / 5 != sum(values) / 5
    assert values_of("avg(n)", small(values, "n"), [], Random(0)) == {0: sum(values) / 5}


def test_a_root_just_above_the_middle_of_two_doubles_is_the_upper_one() -> None:
    middle = 2 * 8552258112220996 + 1
    assert root(middle**2, 0, 1) == middle - 1
    assert root(middle**2 + 1, 0, 1) == root(3 * 2**200 * middle**2 + 1, 0, 3 * 2**200) == middle + 1


def test_equal_rows_are_listed_as_often_as_they_are_left() -> None:
    (found,) = values_of(
        "collect(d, 3)", small([2.0, -0.0, 0.0, 2.0, 2.0]), small([-0.0, 0.0, 2.0]), Random(0)
    ).values()
    assert repr(found) == "[0.0, 0.0, 2.0]"
    assert values_of("collect(d, 9)", small([2.0, 2.0]), small([2.0]), Random(0)) == {0: [2.0, 2.0]}


def test_the_last_row_that_is_left_is_the_last_one() -> None:
    first, second, third = ([Row(0, n, *[None] * 6, n)] for n in (1, 2, 3))
    assert values_of("last(n)", [*first, *second], third, Random(0)) == {0: 2}
    assert values_of("first(n)", [*second, *third], first, Random(0)) == {0: 2}
    assert values_of("last(n)", [], [*first, *third], Random(0)) == {0: None}


def test_zeros_of_either_sign_are_one_value() -> None:
    aggregate = signed("collect(d, 9)")
    part = merged_parts(aggregate, [lifted(aggregate, small([0.0])), lifted(aggregate, small([-0.0]), -1)], Random(0))
    assert aggregate.value(part.states).to_pylist() == [[]]


@pytest.mark.parametrize("text", ["stddev(d)", "variance(d)", "corr(d, d)", "regr_slope(d, d)", "median(d)", "avg(d)"])
def test_a_row_that_never_came_is_no_crash(text: str) -> None:
    aggregate = signed(text)
    parts = [lifted(aggregate, small([1.0, 1.0, 1.0, 2.0])), lifted(aggregate, small([9.0]), -1)]
    (value,) = aggregate.value(merged_parts(aggregate, parts, Random(0)).states).to_pylist()
    assert value is None or isinstance(value, float)
