import pytest

from sessionlake.config.times import parse_time
from sessionlake.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:00.000001", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59Z", -1_000_000),
        ("9999-12-31", 253_402_214_400_000_000),
    ],
)
def test_iso_dates_and_times_are_utc_microseconds(text: str, micros: int) -> None:
    assert parse_time(text) == micros


def test_what_is_no_time_is_refused_in_one_line() -> None:
    with pytest.raises(
        ConfigError, match=r"^--from: 'yesterday' is no ISO date or time; write for example '2026-01-31'$"
    ):
        parse_time("yesterday", "--from")
