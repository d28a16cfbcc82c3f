"""Texts of keys: equal if and only if the values are, whatever their types, beside exact fractions and DuckDB (docs/rules.md, rule 465)."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.equality import BY_TEXT, INSTANT, IdOrder, asked_text, instant, text_of
from tests.support import examples

EDGES = [
    0.0,
    -0.0,
    0.1,
    0.5,
    1e-5,
    1e-7,
    1.5e-38,
    1e-39,
    5e-324,
    1e15,
    1e16,
    1e22,
    2.0**53,
    2.0**63,
    -(2.0**63),
    2.0**64,
]
EDGES += [4503599627370495.5, -1125899906842623.9, 9.99e37, 1e38, 1e300, math.inf, -math.inf, math.nan]
LONGS = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**16]
WIDE = pa.decimal128(38, 10)

doubles = st.one_of(
    st.sampled_from(EDGES),
    st.floats(),
    st.integers(-(2**60), 2**60).map(float),
    st.decimals(-1000, 1000, places=2).map(float),
)
longs = st.one_of(st.sampled_from(LONGS), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
decimals = st.one_of(
    st.sampled_from([Decimal("1.00"), Decimal("0E-10"), Decimal("0.1"), Decimal("1E-7")]),
    st.decimals(-(10**18), 10**18, places=10),
)


def texts(values: list[Any], type_: pa.DataType) -> list[Any]:
    return text_of(pa.array(values, type_)).to_pylist()


def exact(value: Any) -> Any:
    """Return the number that a value stands for: of a double with a fraction the shortest decimal that reads back as it."""
    if not isinstance(value, float):
        return Fraction(value)
    if math.isnan(value) or math.isinf(value):
        return repr(value)
    return Fraction(value) if value.is_integer() else Fraction(repr(value))


@given(st.lists(doubles, max_size=8), st.lists(longs, max_size=8), st.lists(decimals, max_size=8))
@examples(150)
def test_numbers_have_one_text_if_and_only_if_they_are_equal(a: list[float], b: list[int], c: list[Decimal]) -> None:
    found = [*texts(a, pa.float64()), *texts(b, pa.int64()), *texts(c, WIDE)]
    values = [exact(value) for value in (*a, *b, *c)]
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            assert (found[i] == found[j]) == (one == other), (found[i], found[j])


@given(st.integers(-(10**16), 10**16), st.integers(1, 12))
@examples(300)
def test_a_double_with_a_fraction_has_the_text_of_its_shortest_decimal(digits: int, places: int) -> None:
    value = digits / 10**places
    same = Decimal(repr(value))
    if not value.is_integer() and abs(same.as_tuple().exponent) <= WIDE.scale:
        assert texts([value], pa.float64()) == texts([same], WIDE), value


def test_doubles_of_ten_to_sixteen_digits_before_the_point_have_no_exponent() -> None:
    values = ["12345678901.25", "1700000000000.5", "-99999999999999.75", "123456789012345.6", "4503599627370495.5"]
    assert texts(list(map(float, values)), pa.float64()) == values == texts(list(map(Decimal, values)), WIDE)


@pytest.mark.filterwarnings("error")
def test_nans_of_any_bits_are_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001, 0xFFF0000000000001], np.uint64)
    assert text_of(pa.array(bits.view(np.float64))).to_pylist() == ["nan"] * 4


@given(st.lists(longs))
@examples(50)
def test_whole_numbers_and_texts_have_the_text_of_before(values: list[int]) -> None:
    assert texts(values, pa.int64()) == list(map(str, values))
    told = pa.array(list(map(str, values)), pa.string())
    assert text_of(told) is told


@given(st.lists(st.one_of(st.none(), doubles)))
@examples(100)
def test_doubles_read_back_from_their_texts(values: list[float | None]) -> None:
    for value, text in zip(values, texts(values, pa.float64()), strict=True):
        assert (value is None) == (text is None)
        if value is not None and text is not None:
            assert float(text) == value or math.isnan(value)
            assert not text.startswith("-0") or "." in text or "e" in text


@pytest.mark.parametrize(
    "type_",
    [
        pa.decimal128(38, 0),
        pa.decimal128(38, 38),
        pa.decimal128(5, 2),
        pa.decimal128(3, -2),
        pa.decimal32(5, 2),
        pa.decimal256(76, 3),
    ],
)
def test_decimals_of_any_scale(type_: pa.DataType) -> None:
    unit = Decimal(1).scaleb(-type_.scale)
    values = [n * unit for n in (0, 1, -1, 10, 120, -990)]
    found = texts([*values, None], type_)
    assert found[-1] is None
    assert [Fraction(text) for text in found[:-1]] == [Fraction(value) for value in values]
    assert not any("E" in text or text.endswith(".") or (text.endswith("0") and "." in text) for text in found[:-1])
    assert text_of(pa.array([None, *values], type_).slice(2, 2)).to_pylist() == found[1:3]


@given(st.lists(st.tuples(st.decimals(-100, 100, places=2), st.decimals(-100, 100, places=3)), max_size=20))
@examples(60)
def test_doubles_and_decimals_are_equal_where_duckdb_finds_them_equal(pairs: list[tuple[Decimal, Decimal]]) -> None:
    for one, other in pairs:
        for value in (one, other):
            (right,) = (
                duckdb.execute("select ?::decimal(12, 3) = ?::double", [str(other), float(value)]).fetchone() or ()
            )
            ours = texts([other], pa.decimal128(12, 3)) == texts([float(value)], pa.float64())
            assert ours == right


def test_a_date_is_its_midnight_where_it_is_compared_with_a_time() -> None:
    days, midnight = [date(2026, 1, 1), date(1, 1, 1)], datetime(2026, 1, 1, tzinfo=UTC)
    assert instant(pa.date32(), INSTANT) == INSTANT
    assert instant(INSTANT, pa.date32()) is instant(pa.date32(), pa.date32()) is None
    as_times = text_of(pa.array(days), INSTANT).to_pylist()
    assert as_times == text_of(pa.array([midnight, datetime(1, 1, 1, tzinfo=UTC)], INSTANT)).to_pylist()
    assert as_times[0] not in text_of(pa.array([midnight + timedelta(microseconds=1)], INSTANT)).to_pylist()


NUMBERS = [
    "",
    "-10",
    "-9",
    "-0.5",
    "0",
    "0.25",
    "9",
    "9.5",
    "10",
    "99",
    "100",
    "9007199254740993",
    "1e+300",
    "nan",
    "else",
]


@given(st.lists(st.sampled_from(NUMBERS), min_size=1), st.sampled_from([pa.string(), pa.binary()]))
@examples(200)
def test_ids_that_are_numbers_are_ordered_by_number(ids: list[str], type_: pa.DataType) -> None:
    found = IdOrder.of([pa.float64()]).ranks(pa.array(ids, pa.string()).cast(type_))
    order = [NUMBERS.index(text) for text in ids]
    assert np.array_equal(np.sign(np.subtract.outer(found, found)), np.sign(np.subtract.outer(order, order)))


def test_what_is_no_number_comes_after_numbers_whatever_else_there_is() -> None:
    for more in ([], ["9.5"], ["else"]):
        found = IdOrder((True,)).ranks(pa.array(["9", "10", "1e1", "0x5", "1_0", *more]))
        assert found[0] < found[1] == found[2] < min(found[3:5]), more


def test_ids_of_several_columns_are_ordered_column_by_column() -> None:
    order = IdOrder.of([pa.string(), pa.int64()])
    ids = ["", '["a","9"]', '["a","10"]', '["b","-1"]', '["b","2"]']
    assert np.argsort(order.ranks(pa.array(ids))).tolist() == [0, 1, 2, 3, 4]
    assert order.compared(pa.array(ids[1:]), pa.array(ids[:-1])).tolist() == [1, 1, 1, 1]


def test_ids_that_are_texts_are_ordered_by_bytes() -> None:
    assert IdOrder.of([pa.string()]) == IdOrder.of([INSTANT]) == BY_TEXT
    assert BY_TEXT.ranks(pa.array(["9", "10"])).tolist() == [2, 1]


@given(
    st.one_of(
        st.tuples(doubles, st.just(pa.float64())),
        st.tuples(longs, st.just(pa.int64())),
        st.tuples(decimals, st.just(WIDE)),
    )
)
@examples(200)
def test_a_number_that_somebody_writes_has_the_text_of_its_key(drawn: tuple[Any, pa.DataType]) -> None:
    value, type_ = drawn
    (text,) = texts([value], type_)
    assert asked_text(text, type_) == text
    assert asked_text(str(value), type_) == text
    assert asked_text("1.00", pa.string()) == "1.00"
    assert asked_text("ann", type_) == "ann"


def test_a_whole_number_that_is_written_asks_for_no_double_beside_it() -> None:
    assert asked_text("9007199254740993", pa.float64()) == "9007199254740993"
    assert asked_text("9007199254740992.0", pa.float64()) == "9007199254740992"
    assert asked_text("1e23", pa.float64()) == texts([1e23], pa.float64())[0]
    assert asked_text("1" + "0" * 39, pa.float64()) != texts([1e39], pa.float64())[0]


@pytest.mark.parametrize("text", ["1_000", " 1", "1 ", "\u0663", "0x10", "1e400", "++1", "1.e", "sNaN", "nan1"])
def test_what_sql_does_not_write_as_a_number_is_asked_for_as_it_is(text: str) -> None:
    assert asked_text(text, pa.float64()) == text
    if text != "1e400":
        assert asked_text(text, pa.int64()) == text


@pytest.mark.parametrize(
    ("text", "key"), [("-0", "0"), ("01", "1"), ("1e0", "1"), ("+1.0", "1"), (".5", "0.5"), ("0e9999999", "0")]
)
@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), WIDE])
def test_a_number_may_be_written_in_any_form(text: str, key: str, type_: pa.DataType) -> None:
    assert asked_text(text, type_) == key
