import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sources.decoding.casting import cast_or_null, parse_times

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US = 253_402_300_799_999_999
FIRST_US = -62_135_596_800_000_000
NOON = 1_577_880_000_000_000


def cast(values: list | pa.Array, target: pa.DataType) -> list[tuple[object, bool]]:
    array, bad = cast_or_null(values if isinstance(values, pa.Array) else pa.array(values), target)
    return list(zip(array.to_pylist(), bad.tolist(), strict=True))


def times(values: list | pa.Array, unit: str | None = None) -> list[int | None]:
    micros, bad = parse_times(values if isinstance(values, pa.Array) else pa.array(values), unit)
    assert micros[bad].tolist() == [0] * bad.sum()
    return [None if wrong else one for one, wrong in zip(micros.tolist(), bad.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        ("1", pa.int64(), 1),
        ("1.00", pa.int64(), 1),
        ("-7.", pa.int64(), -7),
        ("9223372036854775807", pa.int64(), 2**63 - 1),
        ("2.5", pa.float64(), 2.5),
        ("TRUE", pa.bool_(), True),
        ("0", pa.bool_(), False),
        ("2020-02-29", pa.date32(), date(2020, 2, 29)),
        ("1.25", pa.decimal128(10, 2), Decimal("1.25")),
        ("2020-01-01T12:00:00+01:00", pa.timestamp("us", "UTC"), datetime(2020, 1, 1, 11, tzinfo=UTC)),
    ],
)
def test_good_text_is_cast_whether_or_not_beside_bad(text: str, target: pa.DataType, value: object) -> None:
    assert cast([text, None], target) == [(value, False), (None, False)]
    assert cast(["x", text, None], target) == [(None, True), (value, False), (None, False)]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("9223372036854775808", pa.int64()),
        ("1.5", pa.int64()),
        ("", pa.int64()),
        ("yes", pa.bool_()),
        ("2021-02-29", pa.date32()),
        ("1.257", pa.decimal128(10, 2)),
        ("123456789.5", pa.decimal128(10, 2)),
        ("noon", pa.timestamp("us", "UTC")),
    ],
)
def test_bad_text_is_null_and_flagged(text: str, target: pa.DataType) -> None:
    assert cast([text, None], target) == [(None, True), (None, False)]


def test_numbers_keep_their_value_or_are_bad() -> None:
    assert cast([1.0, 1.5, None], pa.int64()) == [(1, False), (None, True), (None, False)]
    assert cast([2**60 + 1], pa.float64()) == [(2.0**60, False)]
    assert cast([1, 10**8], pa.decimal128(10, 2)) == [(Decimal("1.00"), False), (None, True)]
    assert cast(pa.array([2**64 - 1, 1], pa.uint64()), pa.int64()) == [(None, True), (1, False)]


def test_type_that_can_not_be_cast_is_bad_but_where_null() -> None:
    assert cast(pa.array([[1], None]), pa.int64()) == [(None, True), (None, False)]


@given(st.lists(st.none() | st.sampled_from(["1", "x", "1x", "2.0", "99999999999999999999", "-3"]), max_size=300))
def test_exactly_the_bad_values_are_flagged(texts: list[str | None]) -> None:
    known = {"1": 1, "2.0": 2, "-3": -3}
    expected = [(known.get(text), text is not None and text not in known) for text in texts]
    assert cast(pa.array(texts, pa.string()), pa.int64()) == expected


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2020-01-01T12:00:00Z", NOON),
        ("2020-01-01 12:00:00Z", NOON),
        ("2020-01-01T12:00:00", NOON),
        ("2020-01-01 12:00:00", NOON),
        ("2020-01-01T12:00", NOON),
        ("2020-01-01T13:30:00+01:30", NOON),
        ("2020-01-01T13:30:00+0130", NOON),
        ("2020-01-01T11:00:00-01", NOON),
        ("2020-01-01", NOON - 43_200_000_000),
        (" 2020-01-01T12:00:00Z ", NOON),
        ("2020-01-01 12:00:00 UTC", NOON),
        ("2020-01-01 12:00:00UTC", NOON),
        ("2020-01-01 12:00:00.123456 UTC", NOON + 123_456),
        ("2020-01-01 12:00:00.123456789 UTC", NOON + 123_456),
        ("2020-01-01 12:00 Z", NOON),
        ("2020-01-01t12:00:00z", NOON),
        ("2020-01-01 13:30:00 +01:30", NOON),
        ("2020-01-01 13:30:00 +0130", NOON),
        ("2020-01-01 11:00:00.5 -01", NOON + 500_000),
        *(
            (f"2020-01-01T12:00:00.{'123456789'[:digits]}Z", NOON + int("123456000"[:digits].ljust(6, "0")[:6]))
            for digits in range(1, 10)
        ),
        ("2020-01-01T12:00:00.999999999", NOON + 999_999),
        ("1969-12-31T23:59:59.999999999+00:00", -1),
        ("0001-01-01T00:00:00Z", FIRST_US),
        ("9999-12-31T23:59:59.999999999Z", LAST_US),
    ],
)
def test_iso_text_alone_and_in_a_mixed_column(text: str, micros: int) -> None:
    assert times([text]) == [micros]
    assert times([text, "2020-01-01", None, "2020-01-01T12:00:00Z", "x", text]) == [
        micros, NOON - 43_200_000_000, None, NOON, None, micros
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "1", "2020", "2020-13-01", "2020-02-30", "2020-01-01T24:00:00Z", "2020-01-01T00:00:60Z", "2020-01-01Z",
        "0000-12-31T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "10000-01-01",
        "2020-01-01T12:00:00.1234567890Z", "2020-01-01T12:00:00+25:00",
        "2020-01-01 UTC", "2020-01-01 12:00:00 CET", "2020-01-01 12:00:00 UTC Z", "2020-01-01 12:00:00 UTC+1", "t12:00:00z",
    ],
)  # fmt: skip
def test_text_that_is_no_time_is_bad(text: str) -> None:
    assert times([text]) == [None]
    assert times(["2020-01-01T12:00:00Z", text]) == [NOON, None]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_epoch_numbers_as_ints_floats_and_text(unit: str, per_second: int) -> None:
    whole = NOON // 10**6 * per_second
    assert times([whole, None], unit) == [NOON, None]
    assert times([float(whole)], unit) == [NOON]
    assert times([str(whole), f"{whole}.0", "2020-01-01T12:00:00Z", "x", None], unit) == [NOON, NOON, NOON, None, None]
    assert times([whole]) == [None]
    assert times([str(whole)]) == [None]


def test_timestamps_and_dates_of_any_unit_and_zone() -> None:
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Berlin"):
            stamps = pa.array([NOON, None], pa.timestamp("us")).cast(pa.timestamp(unit)).cast(pa.int64())
            assert times(stamps.cast(pa.timestamp(unit, zone))) == [NOON, None]
    assert times(pa.array([date(2020, 1, 1), None])) == [NOON - 43_200_000_000, None]
    assert times(pa.array(["2020-01-01"]).dictionary_encode()) == [NOON - 43_200_000_000]
    assert times(pa.array([date(2020, 1, 1)], pa.date64())) == [NOON - 43_200_000_000]


def test_nanoseconds_are_floored_before_the_epoch_too() -> None:
    assert times(pa.array([-1, -1000, -1001, 999], pa.timestamp("ns"))) == [-1, -1, -2, 0]
    assert times([-1, 999], "ns") == [-1, 0]


def test_float_seconds_are_rounded_to_the_nearest_microsecond() -> None:
    assert times([1_700_000_000.123456, 1.5e-7, -0.5], "s") == [1_700_000_000_123_456, 0, -500_000]
    assert times([0.000498, 1.0048], "s") == [498, 1_004_800]
    assert times(["1700000000.123456"], "s") == [1_700_000_000_123_456]


def test_bounds_of_years_1_and_9999_exact() -> None:
    values = [FIRST_US - 1, FIRST_US, LAST_US, LAST_US + 1, 2**63 - 1, -(2**63)]
    assert times(values, "us") == [None, FIRST_US, LAST_US, None, None, None]
    seconds = [FIRST_US // 10**6 - 1, FIRST_US // 10**6, LAST_US // 10**6, LAST_US // 10**6 + 1, 2**63 - 1]
    assert times(seconds, "s") == [None, FIRST_US, LAST_US - 999_999, None, None]
    assert times([1e300, -1e300, float("nan"), float("inf")], "s") == [None] * 4
    assert times(pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("s"))) == [None]


@pytest.mark.parametrize("values", [[True], [[1]], [{"a": 1}]])
def test_other_types_are_bad(values: list) -> None:
    assert times(values, "s") == [None]


ZONES = st.none() | st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES)  # noqa: DTZ001


@given(st.lists(st.tuples(MOMENTS, st.sampled_from("T ")) | st.none() | st.just("x"), max_size=30))
def test_mixed_iso_text_agrees_with_python(moments: list) -> None:
    texts, expected = [], []
    for moment in moments:
        if moment is None or moment == "x":
            texts.append(moment)
            expected.append(None)
            continue
        texts.append(moment[0].isoformat(moment[1]))
        known = moment[0] if moment[0].tzinfo else moment[0].replace(tzinfo=UTC)
        expected.append((known - EPOCH) // timedelta(microseconds=1))
    assert times(pa.array(texts, pa.string())) == expected


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S"])
def test_million_iso_texts_take_well_under_half_a_second(form: str) -> None:
    stamps = pa.array(np.arange(1_000_000) + 10**9).cast(pa.timestamp("s", "UTC"))
    texts = pc.strftime(stamps, format=form)
    began = time.process_time()
    micros, bad = parse_times(texts, None)
    assert time.process_time() - began < 0.5
    assert (int(bad.sum()), int(micros[0]), int(micros[-1])) == (0, 10**15, (10**9 + 999_999) * 10**6)
