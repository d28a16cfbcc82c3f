"""Durations as people write them ("30 minutes") and as the engine counts them (microseconds)."""

import pandas as pd

from sessionlake.errors import ConfigError

MICROSECOND = pd.Timedelta(1, "us")


def parse_duration(text: str, setting: str = "duration") -> int:
    """Return the microseconds in a text such as "30 minutes", "1 day" or "10 us"; zero is allowed, negative is not."""
    try:
        if str(text).strip().lstrip("+-").replace(".", "", 1).isdigit():
            raise ValueError("a number without a unit")  # pandas would read it as nanoseconds
        delta = pd.Timedelta(text)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{setting}: {text!r} is not a duration; write a number and a unit, as in '30 minutes'"
        ) from error
    if pd.isna(delta) or delta.value < 0 or delta.value % 1000:
        raise ConfigError(f"{setting}: {text!r} must be zero or more whole microseconds, as in '30 minutes'")
    return int(delta // MICROSECOND)


def format_duration(micros: int) -> str:
    """Return a short text for people, such as "1h 30min", "250us" or "-3s"."""
    sign, micros = "-" if micros < 0 else "", abs(micros)
    units = (
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
        ("us", 1),
    )
    parts: list[str] = []
    for name, size in units:
        amount, micros = divmod(micros, size)
        if amount:
            parts.append(f"{amount}{name}")
    return sign + (" ".join(parts[:2]) or "0s")
