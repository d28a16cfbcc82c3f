"""The clock of `Harness`, and times of rows that are datetimes."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pyarrow as pa
import pytest

from sessionlake import Event, Files, Pipeline, Sessions
from sessionlake.config.operators import OPERATORS
from sessionlake.local.rows import Datetimes, plain_rows
from sessionlake.testing import Harness
from tests.local.configs import CONFIGS, SIDED, SOURCE, given

NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001 (rows of tests may have such)
NOON_US = 1_769_860_800_000_000
SKEW = {"max_future_skew": "1 minute"}
SESSION = {
    "source": SOURCE,
    "event": {"key": "key", "time": "at", "time_unit": "us", **SKEW},
    "session": {"gap": "1 minute", "retention": "1 day"},
}


def with_skew(operator: str) -> dict[str, Any]:
    """Return a config whose inputs refuse events of the future."""
    config = CONFIGS[operator]
    if operator not in SIDED:
        return {**config, "event": {**config["event"], **SKEW}}
    section = config[operator]
    sides = {side: {**section[side], "event": {**section[side]["event"], **SKEW}} for side in ("left", "right")}
    return {operator: {**section, **sides}}


def rows(*minutes: float, zone: tzinfo | None = None, name: str = "at") -> list[dict[str, Any]]:
    return [{"key": "a", name: NOON.replace(tzinfo=zone) + timedelta(minutes=m), "v": 1} for m in minutes]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_limit_of_the_future_refuses_no_event_of_a_test(operator: str) -> None:
    with Harness(with_skew(operator)) as harness:
        for hours in (0, 0.1, 3):
            some = [{"key": "a", "time_us": NOON_US + int(hours * 3_600_000_000), "v": 1}]
            out = harness.process(given(operator, some))
            assert (out.dead, out.late, out.counts["dead"]) == ([], [], 0)
            assert out.changes


def test_a_second_process_after_the_test_of_a_pipeline_has_its_clock() -> None:
    pipeline = Pipeline(
        "sittings",
        warehouse="lake",
        source=Files("events", format="json"),
        event=Event(key="key", time="at", max_future_skew="1 hour"),
        operator=Sessions(gap="1 minute"),
    )
    with pipeline.test(rows(0)) as harness:
        assert not harness.last.dead
        assert not harness.process(rows(10_000_000)).dead  # nineteen years later


def test_the_clock_is_the_newest_time_so_far_and_goes_not_back() -> None:
    with Harness(SESSION) as harness:
        harness.process(rows(60, 10))
        assert not harness.process(rows(0)).dead
        assert [len(harness.process(rows(m), NOON).dead) for m in (1, 1.1)] == [0, 1]
        # A time that is given holds until newer events come.
        assert not harness.process(rows(200)).dead
        harness.advance(NOON + timedelta(minutes=100))
        assert harness.watermark_us == NOON_US + 200 * 60_000_000
        assert not harness.process(rows(150)).dead


def test_only_rows_that_count_move_the_clock() -> None:
    config = {
        **SESSION,
        "event": {**SESSION["event"], "where": "v > 0", "time": "moved", "columns": {"moved": "at + 60000000"}},
    }
    with Harness(config) as harness:
        harness.process(
            [
                {"key": "a", "at": NOON_US, "v": 1},
                {"key": "a", "at": 2 * NOON_US, "v": 0},
                {"key": "a", "at": None, "v": 1},
            ]
        )
        assert not harness.process([{"key": "a", "at": NOON_US, "v": 1}]).dead
        late = [{"key": "a", "at": NOON_US + 61_000_000, "v": 1}]
        (dead,) = harness.process(late, clock_us=NOON_US + 60_000_000).dead
        assert dead == {**late[0], "reason": "too far in the future"}


@pytest.mark.parametrize("zone", [None, UTC])
@pytest.mark.parametrize("operator", OPERATORS)
def test_datetimes_in_rows_give_datetimes(operator: str, zone: tzinfo | None) -> None:
    with Harness(CONFIGS[operator]) as ints, Harness(CONFIGS[operator]) as datetimes:
        for minutes in ((0, 1), (200,)):
            at = rows(*minutes, zone=zone, name="time_us")
            numbers = [{**row, "time_us": NOON_US + int(m * 60_000_000)} for row, m in zip(at, minutes, strict=True)]
            as_ints = ints.process(given(operator, numbers)).changes
            as_times = datetimes.process(given(operator, at)).changes
            assert as_times != as_ints != []
            found = {type(value) for row in as_times for value in row.values()}
            assert datetime in found
            zones = {v.tzinfo for row in as_times for v in row.values() if isinstance(v, datetime)}
            assert zones == {zone}
            assert [{name: in_us(value) for name, value in row.items()} for row in as_times] == as_ints


def in_us(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_datetime_is_that_time_whatever_the_unit(unit: str) -> None:
    with Harness({**SESSION, "event": {**SESSION["event"], "time_unit": unit}}) as harness:
        (row,) = harness.process(rows(0)).changes
    assert row["session_start"] == NOON


def test_times_that_python_has_no_datetime_for_stay_numbers() -> None:
    far = 300_000_000_000_000_000
    table = pa.table({"at": pa.array([NOON_US, far, None], pa.timestamp("us", "UTC")), "n": [far, 1, 2]})
    shown = Datetimes(UTC).shown(plain_rows(table), table)
    assert shown == [{"at": NOON.replace(tzinfo=UTC), "n": far}, {"at": far, "n": 1}, {"at": None, "n": 2}]
