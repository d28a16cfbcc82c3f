"""Durations as people write them ("30 minutes") and as the engine counts them (microseconds)."""

import re
import warnings
from fractions import Fraction

from sessionlake.errors import ConfigError

MINUTE_US = 60_000_000
_UNITS = {
    "w week weeks": Fraction(604_800_000_000),
    "d day days": Fraction(86_400_000_000),
    "h hr hrs hour hours": Fraction(3_600_000_000),
    "m min mins minute minutes": Fraction(60_000_000),
    "s sec secs second seconds": Fraction(1_000_000),
    "ms milli millis millisecond milliseconds": Fraction(1000),
    "us µs micro micros microsecond microseconds": Fraction(1),
    "ns nano nanos nanosecond nanoseconds": Fraction(1, 1000),
}
_SIZES = {name: size for names, size in _UNITS.items() for name in names.split()}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?) *([A-Za-zµ]+)[ ,]*")
_CLOCK = re.compile(r"([0-9]+):([0-9]{1,2}):([0-9]{1,2}(?:\.[0-9]+)?)")
_ROUGH_DAYS = 2
_LONGEST_US = (1 << 63) // 1000
"""292 years: counted in nanoseconds, as pandas and Arrow may do, a duration still fits 64 bits."""


def parse_duration(text: str, setting: str = "duration") -> int:
    """Return the microseconds in a text such as "30 minutes", "1h 30min" or "00:30:00".

    Raises ConfigError, which names `setting`, for a negative duration or a fraction of a microsecond; zero is allowed.

    >>> parse_duration("1h 30min"), parse_duration("00:00:01.5")
    (5400000000, 1500000)
    """
    text = str(text).strip()
    micros = _micros(text.lstrip("+-").lstrip())
    if micros is None or micros > _LONGEST_US:
        raise ConfigError(f"{setting}: {text!r} is not a duration; write a number and a unit, as in '30 minutes'")
    if text.startswith("-") and micros:
        raise ConfigError(f"{setting}: {text!r} is negative; write '0 seconds' or a longer time, as in '30 minutes'")
    if micros.denominator != 1:
        raise ConfigError(
            f"{setting}: {text!r} is no whole number of microseconds; write a longer unit, as in '30 minutes'"
        )
    return int(micros)


def _micros(text: str) -> Fraction | None:
    """Return the exact sum of a text's numbers with units and of the clock time at its end; None if it is anything else."""
    total, at = Fraction(0), 0
    while part := _PART.match(text, at):
        # M alone would be months as much as minutes.
        size = None if part[2] == "M" else _SIZES.get(part[2].lower())
        if size is None:
            return None
        total, at = total + Fraction(part[1]) * size, part.end()
    if clock := _CLOCK.fullmatch(text, at):
        hours, minutes, seconds = (Fraction(number) for number in clock.groups())
        return total + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    return total if at and at == len(text) else None


def spoken_duration(micros: int) -> str:
    """Return the exact text of a duration as people write it into a config: for example "30 minutes".

    >>> spoken_duration(5_400_000_000)
    '1 hour 30 minutes'
    """
    units = ("day", "hour", "minute", "second", "millisecond", "microsecond")
    parts, rest = [], abs(micros)
    for unit in units:
        amount, rest = divmod(rest, int(_SIZES[unit]))
        if amount:
            parts.append(f"{amount} {unit}{'' if amount == 1 else 's'}")
    return ("-" if micros < 0 else "") + (" ".join(parts) or "0 seconds")


def format_duration(micros: int) -> str:
    """Return a short text for people, of its two largest units.

    >>> format_duration(5_400_000_000), format_duration(-3_000_000), format_duration(250)
    ('1h 30min', '-3s', '250us')
    """
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


def rough_duration(micros: int) -> str:
    """Return a duration for people who want its size: "92 days", "3 h 20 min", "1 min", "39 s"; below a second "0 s".

    >>> rough_duration(92 * 86_400_000_000), rough_duration(39_400_000)
    ('92 days', '39 s')
    """
    seconds = abs(micros) // 1_000_000
    days, hours, minutes = seconds // 86_400, seconds // 3600, seconds // 60
    if days >= _ROUGH_DAYS:
        return f"{days:,} days"
    if hours:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{minutes} min" if minutes else f"{seconds} s"


def retention_of(retention: str | None, retention_time: str | None) -> str | None:
    """Return an argument that may be given by its old name, with a warning then; ConfigError if both are given."""
    if retention_time is None:
        return retention
    if retention is not None:
        raise ConfigError("retention_time: is the old name of retention, which is given, too; leave it out")
    told = "retention_time: is called retention now; write retention, the old name will go"
    warnings.warn(told, DeprecationWarning, stacklevel=3)
    return retention_time
