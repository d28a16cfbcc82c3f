"""median, quantile and classes with evaluate, against plain Python, numpy and DuckDB."""

import base64
import json
import math
import pickle
import statistics
import sys
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.errors import AggregateError, BadEventsError, ConfigError
from tests.aggregates.columns import TYPED, order_of, randoms, same, typed
from tests.operators.sessions.merging import Event, by_group, events, lifted, merged, values_of
from tests.support import examples

HERE = __name__
FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)


def exact(values: list[Any], fraction: float) -> float | None:
    """Interpolate in fractions; only the result is rounded."""
    if not values:
        return None
    ordered = sorted(Fraction(v) for v in values)
    rank = Fraction(fraction) * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return float(low + (rank - math.floor(rank)) * (high - low))


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("kind", ["long", "int", "decimal", "bool"])
@examples(25)
@given(data=st.data(), random=randoms)
def test_quantile_of_exact_numbers(kind: str, fraction: float, data: st.DataObject, random: Random) -> None:
    rows = data.draw(typed(kind))
    found = values_of(f"quantile(x, {fraction})", TYPED[kind][0], rows, random)
    for group, members in by_group(rows).items():
        some = [m.value for m in members if m.value is not None]
        expected = exact(some, fraction)
        if expected is None:
            assert found[group] is None
        else:
            # The two neighbours are rounded to doubles before the interpolation.
            around = max(abs(float(v)) for v in some)
            assert math.isclose(found[group], expected, rel_tol=1e-12, abs_tol=1e-14 * around)


@examples(40)
@given(rows=events(st.floats(allow_nan=False) | st.floats(-1000, 1000)), random=randoms)
def test_median_of_doubles_is_the_middle_or_halfway(rows: list[Event], random: Random) -> None:
    found = values_of("median(x)", pa.float64(), rows, random)
    for group, members in by_group(rows).items():
        some = sorted(m.value for m in members if m.value is not None)
        if len(some) % 2:
            assert found[group] == statistics.median(some)
        elif some:
            low, high = some[len(some) // 2 - 1 : len(some) // 2 + 1]
            halfway = low if low == high else low / 2 + high / 2
            assert same(found[group], min(max(halfway, low), high))
        else:
            assert found[group] is None


@pytest.mark.parametrize("fraction", FRACTIONS)
@examples(25)
@given(rows=events(st.floats(-1e6, 1e6)), random=randoms)
def test_quantile_equals_numpy_and_duckdb(fraction: float, rows: list[Event], random: Random) -> None:
    found = values_of(f"quantile(x, {fraction})", pa.float64(), rows, random)
    table = pa.table({"g": [r.group for r in rows], "x": pa.array([r.value for r in rows], pa.float64())})
    with duckdb.connect() as database:
        database.register("t", table)
        of_duckdb = dict(database.sql(f"SELECT g, quantile_cont(x, {fraction}::DOUBLE) FROM t GROUP BY g").fetchall())
    for group, members in by_group(rows).items():
        some = [m.value for m in members if m.value is not None]
        if not some:
            assert found[group] is of_duckdb[group] is None
            continue
        assert math.isclose(found[group], np.quantile(some, fraction), rel_tol=1e-9, abs_tol=1e-9)
        assert math.isclose(found[group], of_duckdb[group], rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        ([1.0, math.nan], 0.0, 1.0),
        ([1.0, math.nan], 0.5, math.nan),
        ([1.0, 2.0, math.nan], 0.5, 2.0),
        ([math.inf, math.inf], 0.5, math.inf),
        ([1.0, 2.0, math.inf], 0.5, 2.0),
        ([1.0, math.inf], 0.5, math.inf),
        ([-math.inf, 1.0], 0.5, -math.inf),
        ([-math.inf, math.inf], 0.5, math.nan),
        ([-sys.float_info.max, sys.float_info.max], 0.5, 0.0),
        ([sys.float_info.max] * 2, 0.9, sys.float_info.max),
        ([5e-324] * 2, 0.5, 5e-324),
        ([0.1] * 4, 0.7, 0.1),
    ],
)
def test_quantile_at_the_ends_of_double(values: list[float], fraction: float, expected: float) -> None:
    rows = [Event(0, 0, None, value) for value in values]
    assert same(values_of(f"quantile(x, {fraction})", pa.float64(), rows, Random(1))[0], expected)


def test_quantile_of_decimals_is_the_nearest_double() -> None:
    rows = [Event(0, 0, None, Decimal("0.35"))]
    assert values_of("median(x)", pa.decimal128(18, 2), rows, Random(1)) == {0: 0.35}


@given(rows=events(st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.0]), groups=1), random=randoms)
def test_state_does_not_show_the_order_of_arrival(rows: list[Event], random: Random) -> None:
    (aggregate,) = build_aggregates({"a": "median(x)"}, {"x": pa.float64()})
    parts = [merged(aggregate, [lifted(aggregate, r, pa.float64(), random)], random) for r in (rows, rows[::-1])]
    assert parts[0].states[0].equals(parts[1].states[0])


def test_quantile_of_many_values_in_many_groups() -> None:
    random = Random(5)
    rows = [
        Event(random.randrange(300), 0, None, random.choice([None, random.randrange(10**6)])) for _ in range(20_000)
    ]
    found = values_of("quantile(x, 0.3)", pa.int64(), rows, random)
    for group, members in by_group(rows).items():
        assert math.isclose(found[group], np.quantile([m.value for m in members if m.value is not None], 0.3))


@pytest.mark.parametrize(
    ("text", "type_", "message"),
    [
        ("median(x)", pa.string(), r"aggregates\.a: median\(x\) needs numbers, but x is string"),
        ("quantile(x, 0.5)", pa.date32(), r"aggregates\.a: quantile\(x\) needs numbers, but x is date32"),
        ("quantile(x, 1.5)", pa.int64(), r"aggregates\.a: '1\.5' must be a number from 0\.0 to 1\.0; write 'quantile\(column"),
        ("quantile(x)", pa.int64(), r"aggregates\.a: 'quantile\(x\)' names no fraction; write 'quantile\(x, 0\.99\)'"),
        ("median(x, 0.5)", pa.int64(), r"aggregates\.a: median takes one column only; remove '0\.5'"),
    ],
)  # fmt: skip
def test_what_can_not_be_asked_for_is_one_line(text: str, type_: pa.DataType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_aggregates({"a": text}, {"x": type_})


class Everyone:
    """The key, and the values in the order that rows come in."""

    columns = ("x",)

    def evaluate(self, key: str, rows: list[dict[str, Any]]) -> list[Any]:
        return [key, *(row["x"] for row in rows)]


class Spread:
    """Half the distance between the least and the greatest value; None for one row. Rows have a form of their own."""

    columns = "x"
    value_type = "double"

    def evaluate(self, _key: str, rows: list[dict[str, Any]]) -> float | None:
        values = [row["x"] for row in rows]
        return (max(values) - min(values)) / 2 if len(values) > 1 else None

    def serialize(self, row: dict[str, Any]) -> bytes:
        return b"%d" % (row["x"] or 0)

    def deserialize(self, data: bytes) -> dict[str, Any]:
        return {"x": int(data)}


class Everything:
    """All columns of the first row."""

    def evaluate(self, _key: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return rows[0]


class Inverse:
    """It raises where a value is 0, and can't store those above 8."""

    columns = "x"

    def evaluate(self, _key: str, rows: list[dict[str, Any]]) -> float:
        return sum(1 / row["x"] for row in rows)

    def serialize(self, row: dict[str, Any]) -> bytes:
        if row["x"] > 8:
            raise ValueError("above 8")
        return json.dumps(row).encode()


class Worded(Spread):
    def evaluate(self, key: str, rows: list[dict[str, Any]]) -> Any:
        return f"{super().evaluate(key, rows)} apart"


class Folds(Spread):
    """KIP-94's three methods, and one that happens to be called evaluate."""

    def initializer(self) -> Any:
        return {"x": 0}

    def aggregator(self, _key: str, event: dict[str, Any], aggregate: Any) -> Any:
        return {"x": aggregate["x"] + event["x"]}

    def merger(self, _key: str, left: Any, right: Any) -> Any:
        return {"x": left["x"] + right["x"]}

    def result(self, aggregate: Any) -> float:
        return float(aggregate["x"])


class Half:
    def initializer(self) -> Any:
        return 0


@given(rows=events(st.integers(-9, 9) | st.sampled_from([10, 100])), random=randoms)
def test_rows_come_by_time_then_id_then_as_stored(rows: list[Event], random: Random) -> None:
    found = values_of(f"{HERE}:Everyone", pa.int64(), rows, random)
    for group, members in by_group(rows).items():
        members.sort(key=lambda m: (m.time, m.id or "", json.dumps({"x": m.value}).encode()))
        assert json.loads(found[group]) == [f"k{group}", *(m.value for m in members)]


@given(rows=events(st.integers(-9, 9)), random=randoms)
def test_evaluate_with_a_serde_of_its_own_and_none_as_null(rows: list[Event], random: Random) -> None:
    found = values_of(f"{HERE}:Spread", pa.int64(), rows, random)
    for group, members in by_group(rows).items():
        values = [m.value or 0 for m in members]
        assert found[group] == ((max(values) - min(values)) / 2 if len(values) > 1 else None)


@pytest.mark.parametrize("kind", TYPED)
@examples(25)
@given(data=st.data(), random=randoms)
def test_rows_of_every_type_can_be_stored(kind: str, data: st.DataObject, random: Random) -> None:
    def shown(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, Decimal):
            return str(value)
        return value.isoformat() if hasattr(value, "isoformat") else value

    rows = data.draw(typed(kind))
    found = values_of(f"{HERE}:Everyone", TYPED[kind][0], rows, random)
    for group, members in by_group(rows).items():
        expected = sorted(repr(order_of(shown(m.value))) for m in members)
        assert sorted(repr(order_of(v)) for v in json.loads(found[group])[1:]) == expected


def test_a_class_with_evaluate_reads_every_column_and_sees_events_without_any() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Everything"}, {})
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    columns = {"x": pa.array([1, 2]), "at": pa.array([moment] * 2, pa.timestamp("us", "UTC"))}
    assert aggregate.inputs == ()
    for some, expected in ((columns, {"at": moment.isoformat(), "x": 1}), ({}, {})):
        states = aggregate.lift(Events(pa.array(["k", "l"]), np.array([1, 2]), some))
        assert json.loads(aggregate.value(states)[0].as_py()) == expected


def test_a_class_with_evaluate_takes_no_events_and_survives_pickling() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Everyone"}, {})
    again = pickle.loads(pickle.dumps(aggregate))  # noqa: S301, our own object
    none = again.lift(Events(pa.array([], pa.string()), np.zeros(0, np.int64), {"x": pa.array([], pa.int64())}))
    assert [column.type for column in none] == list(aggregate.state)
    assert again.value(none).to_pylist() == []
    keys = pa.array(["k", "é"]).dictionary_encode()
    states = again.lift(Events(keys, np.array([1, 2]), {"x": pa.array([1, 2])}))
    assert [json.loads(v) for v in again.value(states).to_pylist()] == [["k", 1], ["é", 2]]


def test_evaluate_that_raises_is_named_by_file_and_line_but_not_the_key() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Inverse"}, {})
    states = aggregate.lift(Events(pa.array(["secret"]), np.array([1]), {"x": pa.array([0])}))
    line = Inverse.evaluate.__code__.co_firstlineno + 1
    with pytest.raises(AggregateError) as raised:
        aggregate.value(states)
    assert str(raised.value) == (
        f"aggregates.a: {HERE}:Inverse.evaluate raised ZeroDivisionError: division by zero at test_full.py:{line}, "
        f"for a key whose CRC-32 is {zlib.crc32(b'secret'):08x}; correct the class and start again: the batch is not committed"
    )


def test_rows_that_can_not_be_stored_are_named_each() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Inverse"}, {})
    with pytest.raises(BadEventsError) as raised:
        aggregate.lift(Events(pa.array(["a"] * 3), np.arange(3), {"x": pa.array([9, 1, 10])}))
    reason = "aggregate a raised ValueError: above 8"
    assert raised.value.reasons == {0: reason, 2: reason}
    (aggregate,) = build_aggregates({"a": f"{HERE}:Everyone"}, {})
    with pytest.raises(BadEventsError, match="TypeError: a value of type timedelta has no form in JSON"):
        aggregate.lift(Events(pa.array(["a"]), np.arange(1), {"x": pa.array([1], pa.duration("us"))}))


def test_evaluate_of_another_type_than_declared_is_told() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Worded"}, {})
    states = aggregate.lift(Events(pa.array(["k"]), np.array([1]), {"x": pa.array([0])}))
    with pytest.raises(ConfigError, match=r"aggregates\.a: .*Worded\.evaluate does not fit its value_type double"):
        aggregate.value(states)


def test_a_class_with_the_methods_of_kip_94_is_folded_whatever_else_it_has() -> None:
    rows = [Event(0, 0, None, n) for n in (1, 2, 3)]
    assert values_of(f"{HERE}:Folds", pa.int64(), rows, Random(2)) == {0: 6.0}


def test_a_class_with_neither_is_told_what_it_lacks() -> None:
    with pytest.raises(
        ConfigError,
        match=r"Half' lacks aggregator, merger; add these methods, or in their place reducer\(left, right\)",
    ):
        build_aggregates({"a": f"{HERE}:Half"}, {})
