import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.columnar.arrays import Groups, concatenated
from sessionlake.errors import ConfigError
from tests.aggregates.columns import INT64, TYPED, cents, every_type, order_of, randoms, same, typed
from tests.operators.sessions.merging import Event, by_group, events, lifted, merged, values_of
from tests.support import examples


def check(text: str, kind: str, rows: list[Event], random: Random, expected: Callable[[list[Event]], Any]) -> None:
    type_, _ = TYPED[kind]
    found = values_of(text, type_, rows, random)
    assert found.keys() == by_group(rows).keys()
    for group, members in by_group(rows).items():
        assert same(found[group], expected([m for m in members if m.value is not None])), (group, members)


@every_type
@examples(40)
@given(data=st.data(), random=randoms)
def test_min_and_max_ignore_nulls_and_order_nan_last(kind: str, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    check("min(x)", kind, rows, random, lambda some: min((m.value for m in some), key=order_of, default=None))
    check("max(x)", kind, rows, random, lambda some: max((m.value for m in some), key=order_of, default=None))


@every_type
@examples(40)
@given(data=st.data(), random=randoms)
def test_first_and_last_by_time_then_id_then_value(kind: str, data: st.DataObject, random: Random) -> None:
    def place(m: Event) -> Any:
        return (m.time, m.id or "", order_of(m.value))

    def value(m: Event | None) -> Any:
        return None if m is None else m.value

    rows = data.draw(typed(kind))
    check("first(x)", kind, rows, random, lambda some: value(min(some, key=place, default=None)))
    check("last(x)", kind, rows, random, lambda some: value(max(some, key=place, default=None)))


@every_type
@examples(25)
@given(data=st.data(), random=randoms)
def test_first_without_ids_breaks_ties_by_value(kind: str, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    found = values_of("first(x)", TYPED[kind][0], rows, random, with_id=False)
    for group, members in by_group(rows).items():
        some = [(m.time, order_of(m.value), m) for m in members if m.value is not None]
        assert same(found[group], min(some, key=lambda s: s[:2])[2].value if some else None)


@every_type
@examples(25)
@given(data=st.data(), random=randoms)
def test_count_of_a_column_and_of_events(kind: str, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    check("count(x)", kind, rows, random, len)
    assert values_of("count()", TYPED[kind][0], rows, random) == {g: len(m) for g, m in by_group(rows).items()}


@given(rows=events(st.integers(-(2**40), 2**40)), random=randoms)
def test_sum_of_integers(rows: list[Event], random: Random) -> None:
    check("sum(x)", "long", rows, random, lambda some: sum(m.value for m in some) if some else None)


@given(rows=events(cents), random=randoms)
def test_sum_of_decimals_is_exact_beyond_64_bits(rows: list[Event], random: Random) -> None:
    check("sum(x)", "decimal", rows, random, lambda some: sum((m.value for m in some), Decimal(0)) if some else None)


def test_sum_of_large_decimals_in_any_order() -> None:
    rows = [Event(0, 0, None, Decimal("9999999999999999.99") * sign) for sign in [1] * 40 + [-1] * 20]
    random = Random(4)
    for _ in range(20):
        random.shuffle(rows)
        assert values_of("sum(x)", pa.decimal128(18, 2), rows, random) == {0: Decimal("199999999999999999.80")}


LARGE = st.integers(INT64.min, INT64.max) | st.sampled_from(
    [INT64.min, INT64.max, INT64.max - 9, 10, -20, 2**62, -(2**62)]
)


def in_64_bits(total: int) -> int | None:
    return total if INT64.min <= total <= INT64.max else None


@examples(200)
@given(rows=events(LARGE), random=randoms)
def test_sum_of_large_integers_in_any_order_and_grouping(rows: list[Event], random: Random) -> None:
    check("sum(x)", "long", rows, random, lambda some: in_64_bits(sum(m.value for m in some)) if some else None)


@examples(200)
@given(rows=events(LARGE), random=randoms)
def test_avg_of_large_integers_is_the_exact_quotient_rounded_once(rows: list[Event], random: Random) -> None:
    check("avg(x)", "long", rows, random, lambda some: sum(m.value for m in some) / len(some) if some else None)


def test_avg_goes_on_from_totals_of_before_that_are_doubles_of_any_size() -> None:
    (mean,) = build_aggregates({"a": "avg(x)"}, {"x": pa.int64()})
    before = [pa.array([2.0**70, 6.0]), pa.array([3, 2]), pa.nulls(2, pa.binary())]
    states = mean.merge(before, Groups(np.array([0, 1]), 2))
    assert mean.value(states).to_pylist() == [2.0**70 / 3, 3.0]
    assert mean.one([column[0].as_py() for column in states]) == 2.0**70 / 3
    states = mean.merge(states, Groups(np.array([0]), 2))
    assert mean.value(states).to_pylist() == [(2**70 + 6) / 5]


DECIMALS = {
    type_: st.integers(-(10**type_.precision) + 1, 10**type_.precision - 1)
    | st.sampled_from([10**15 - 1, 10**15, -(10**15), 10**17 + 1, -1, 3]).filter(
        lambda n, t=type_: abs(n) < 10**t.precision
    )
    for type_ in (
        pa.decimal128(18, 2),
        pa.decimal128(18, 0),
        pa.decimal128(18, 18),
        pa.decimal128(15, 6),
        pa.decimal32(9, 4),
    )
}


@pytest.mark.parametrize("type_", DECIMALS, ids=str)
@examples(60)
@given(data=st.data(), random=randoms)
def test_avg_of_decimals_is_the_exact_quotient_rounded_once(
    type_: pa.DataType, data: st.DataObject, random: Random
) -> None:
    unit = Decimal(1).scaleb(-type_.scale)
    rows = data.draw(events(st.none() | DECIMALS[type_].map(lambda n: n * unit)))
    expected = {}
    for group, members in by_group(rows).items():
        some = [Fraction(m.value) for m in members if m.value is not None]
        expected[group] = float(sum(some, Fraction(0)) / len(some)) if some else None
    for _ in range(3):
        assert values_of("avg(x)", type_, rows, random) == expected


def test_avg_of_decimals_goes_on_from_totals_of_before_that_are_sums_of_doubles() -> None:
    (mean,) = build_aggregates({"a": "avg(x)"}, {"x": pa.decimal128(18, 2)})
    rounded = 0.1 + 0.2 - 0.3
    assert rounded != 0
    before = [pa.array([rounded, 0.01, 12345678901234567.0]), pa.array([3, 1, 2]), pa.nulls(3, pa.binary())]
    states = mean.merge(before, Groups(np.array([0, 2]), 3))
    assert mean.value(states).to_pylist() == [0.0025, 12345678901234567.0 / 2]
    packed = StateCodec([mean]).encode(states, 2)
    assert len(packed[0].as_py()) == 17
    assert [column.to_pylist() for column in StateCodec([mean]).decode(packed)] == [c.to_pylist() for c in states]
    states = mean.merge(states, Groups(np.array([0]), 2))
    assert mean.value(states).to_pylist() == [(1 + int(12345678901234567.0 * 100)) / 600]


@examples(100)
@given(values=st.lists(st.none() | LARGE, min_size=1, max_size=9), data=st.data())
def test_a_sum_that_leaves_64_bits_comes_back_from_its_packed_state(
    values: list[int | None], data: st.DataObject
) -> None:
    (total,) = build_aggregates({"a": "sum(x)"}, {"x": pa.int64()})
    codec, states, before = StateCodec([total]), None, []
    for value in values:
        one = total.from_value(pa.array([value], pa.int64()), np.zeros(1, np.int64))
        states = one if states is None else [concatenated(pair) for pair in zip(states, one, strict=True)]
        if data.draw(st.booleans()):
            states = total.merge(states, Groups(np.zeros(1, np.int64), len(states[0])))
            packed = codec.encode(states, 1)
            assert [codec.decode_one(packed[0].as_py())] == [[column[0].as_py() for column in states]]
            states = codec.decode(packed)
        before.append(value)
    states = total.merge(states, Groups(np.zeros(1, np.int64), len(states[0])))
    there = [value for value in before if value is not None]
    assert total.value(states).to_pylist() == [in_64_bits(sum(there)) if there else None]
    assert codec.encode(states, 1).equals(codec.encode(total.merge(states, Groups(np.zeros(1, np.int64), 1)), 1))


def test_many_groups_of_which_few_leave_64_bits() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(-(2**40), 2**40, 6000)
    values[::97] = INT64.max - 5
    values[50::97] = INT64.min + 7
    sizes = rng.integers(1, 40, 400)
    starts = np.cumsum(sizes) - sizes
    starts = starts[starts < len(values)]
    (total,) = build_aggregates({"a": "sum(x)"}, {"x": pa.int64()})
    groups = Groups(starts, len(values))
    states = total.merge(total.from_value(pa.array(values), values), groups)
    right = [sum(part.tolist()) for part in np.split(values, starts[1:])]
    assert total.value(states).to_pylist() == [in_64_bits(one) for one in right]
    wide = {
        n: int.from_bytes(one, "little", signed=True) for n, one in enumerate(states[1].to_pylist()) if one is not None
    }
    assert wide == {n: one for n, one in enumerate(right) if in_64_bits(one) is None}
    assert 0 < len(wide) < len(right)


@given(rows=events(st.floats(-1e12, 1e12)), random=randoms)
def test_sum_and_avg_of_floats_within_tolerance(rows: list[Event], random: Random) -> None:
    sums, means = (values_of(f"{name}(x)", pa.float64(), rows, random) for name in ("sum", "avg"))
    for group, members in by_group(rows).items():
        some = [m.value for m in members if m.value is not None]
        scale = sum(map(abs, some)) or 1.0
        if not some:
            assert sums[group] is None
            assert means[group] is None
            continue
        assert math.isclose(sums[group], math.fsum(some), abs_tol=1e-12 * scale)
        assert math.isclose(means[group], math.fsum(some) / len(some), abs_tol=1e-12 * scale)


@given(rows=events(st.sampled_from([math.inf, math.nan, 1.0, 1e308])), random=randoms)
def test_sum_and_avg_carry_nan_and_overflow_without_a_warning(rows: list[Event], random: Random) -> None:
    sums = values_of("sum(x)", pa.float64(), rows, random)
    means = values_of("avg(x)", pa.float64(), rows, random)
    for group, members in by_group(rows).items():
        some = [m.value for m in members if m.value is not None]
        assert same(sums[group], sum(some) if some else None)
        assert same(means[group], sum(some) / len(some) if some else None)


@pytest.mark.parametrize("kind", ["long", "decimal", "int"])
@examples(40)
@given(data=st.data(), random=randoms)
def test_avg_of_exact_numbers(kind: str, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    found = values_of("avg(x)", TYPED[kind][0], rows, random)
    for group, members in by_group(rows).items():
        some = [float(m.value) for m in members if m.value is not None]
        if some:
            scale = sum(map(abs, some)) or 1.0
            assert math.isclose(found[group], math.fsum(some) / len(some), abs_tol=1e-12 * scale)
        else:
            assert found[group] is None


@pytest.mark.parametrize(
    "text", ["count()", "sum(x)", "min(x)", "avg(x)", "last(x)", "count_distinct(x)", "collect(x, 3)", "median(x)"]
)
def test_no_events_give_no_states_and_no_values(text: str) -> None:
    for type_ in (pa.int64(), pa.float64(), pa.decimal128(9, 1)):
        (aggregate,) = build_aggregates({"a": text}, {"x": type_}, with_id=True)
        none = np.zeros(0, np.int64)
        states = aggregate.lift(
            Events(pa.array([], pa.string()), none, {"x": pa.array([], type_)}, pa.array([], pa.string()))
        )
        assert [s.type for s in states] == list(aggregate.state)
        assert aggregate.value(states).to_pylist() == []


@every_type
@pytest.mark.parametrize("text", ["min(x)", "max(x)", "first(x)", "last(x)", "count_distinct(x)", "collect(x, 2)"])
def test_thousands_of_groups(kind: str, text: str) -> None:
    random = Random(7)
    type_, _ = TYPED[kind]
    pool = {
        "decimal": [Decimal("0.01"), Decimal("-7.50")], "string": ["", "b"], "binary": [b"", b"b"], "bool": [True, False],
        "date": [date(1, 1, 1), date(9999, 12, 31)], "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    }.get(kind, [1, 2])  # fmt: skip
    rows = [
        Event(random.randrange(5000), random.randrange(9), "i", random.choice([None, *pool])) for _ in range(12_000)
    ]
    (aggregate,) = build_aggregates({"a": text}, {"x": type_}, with_id=True)
    whole = merged(aggregate, [lifted(aggregate, rows, type_, random)], random)
    halves = [merged(aggregate, [lifted(aggregate, half, type_, random)], random) for half in (rows[::2], rows[1::2])]
    parts = merged(aggregate, halves, random)
    assert whole.groups.tolist() == parts.groups.tolist()
    assert aggregate.value(whole.states).equals(aggregate.value(parts.states))


def test_sum_of_text_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"aggregates\.a: sum\(x\) needs numbers, but x is string"):
        build_aggregates({"a": "sum(x)"}, {"x": pa.string()})
