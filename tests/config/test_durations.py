import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.durations import format_duration, parse_duration, spoken_duration
from sessionlake.errors import ConfigError


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (5_400_000_000, "1h 30min"),
        (90_061_000_000, "1d 1h"),
        (250, "250us"),
        (-1, "-1us"),
        (-3_000_000, "-3s"),
        (-86_400_000_000, "-1d"),
    ],
)
def test_two_largest_units_and_a_sign(micros: int, text: str) -> None:
    assert format_duration(micros) == text


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0 s", 0),
        ("10 us", 10),
        ("1000 ns", 1),
        ("1.5 hours", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("1 day, 2 Hours", 93_600_000_000),
        ("1 week", 604_800_000_000),
        ("+5s", 5_000_000),
        ("00:30:00", 1_800_000_000),
        ("1 day 02:03:04.5", 93_784_500_000),
        ("-0 s", 0),
    ],
)
def test_texts(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text", ["", "30", "soon", "1 month", "5 M", "NaT", "1 s x", "x 1 s", "1e3 s", "02:03", "1 day 2", "300000 days"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"session\.gap: .* is not a duration; write a number and a unit"):
        parse_duration(text, "session.gap")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "is negative; write '0 seconds' or a longer time") for text in ("-1 s", "-00:00:01", "-0.5 us")),
        *((text, "is no whole number of microseconds") for text in ("0.5 us", "1 ns", "1500 ns")),
    ],
)
def test_negative_or_not_whole(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_duration(text)


UNITS = ("d", "days", "h", "hours", "min", "minutes", "m", "s", "seconds", "ms", "milliseconds", "us", "microseconds")


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(UNITS)), min_size=1, max_size=3))
def test_reads_what_pandas_reads(parts: list[tuple[int, str]]) -> None:
    pd = pytest.importorskip("pandas", reason="the core has none")
    text = " ".join(f"{number} {unit}" for number, unit in parts)
    assert parse_duration(text) == pd.Timedelta(text) // pd.Timedelta(1, "us")


@given(st.integers(0, 9 * 10**15))
def test_reads_what_is_shown(micros: int) -> None:
    shown = format_duration(micros)
    assert format_duration(parse_duration(shown)) == shown


@given(st.integers(0, 10**15))
def test_reads_what_is_spoken_to_the_microsecond(micros: int) -> None:
    assert parse_duration(spoken_duration(micros)) == micros


def test_what_is_spoken() -> None:
    spoken = [spoken_duration(micros) for micros in (0, 60_000_000, 90_061_000_001, -5_400_000_000)]
    assert spoken == ["0 seconds", "1 minute", "1 day 1 hour 1 minute 1 second 1 microsecond", "-1 hour 30 minutes"]
