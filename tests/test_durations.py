import pytest

from sessionlake.durations import format_duration


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
