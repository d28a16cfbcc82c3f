"""Times and dates in texts as Spark's casts read them, for forms that DuckDB reads in another way or not at all (`lenient_json` has the way)."""

import re
from datetime import datetime, timedelta

import pyarrow as pa

from sessionlake.columnar.zones import EPOCH, region_of, within_calendar

TIME_FUNCTION, DATE_FUNCTION = "lenient_time", "lenient_date"
"""The names under which DuckDB calls `lenient_times` and `lenient_dates`."""
_BLANKS = "".join(map(chr, range(0x21)))
_DATE = r"([+-]?)([0-9]{4,DIGITS})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:REST)?)?)?"
_TIME_TEXT = re.compile(
    _DATE.replace("DIGITS", "6").replace(
        "REST", r"[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?(?P<zone>[^0-9.].*)?)?)?"
    ),
    re.DOTALL,
)
_DATE_TEXT = re.compile(_DATE.replace("DIGITS", "7").replace("REST", "[ T].*"), re.DOTALL)
_MOST_DAYS, _MOST_US = 2**31 - 1, 2**63 - 1


def lenient_times(texts: pa.ChunkedArray) -> pa.Array:
    """Return each text as microseconds since 1970 in UTC; null if Spark does not read it, or reads it as a time of today.

    >>> lenient_times(pa.chunked_array([["1970-01-01 00:00:01 UTC", "1970-01-01 01:00:00.5+1", "12:30"]])).to_pylist()
    [1000000, 500000, None]
    """
    return pa.array([None if text is None else time_us(text) for text in texts.to_pylist()], pa.int64())


def lenient_dates(texts: pa.ChunkedArray) -> pa.Array:
    """Return each text as days since 1970; null if Spark does not read it.

    >>> lenient_dates(pa.chunked_array([["1970-02", "1970-1-2 at noon", "02.01.1970"]])).to_pylist()
    [31, 1, None]
    """
    return pa.array([None if text is None else _days_of(text) for text in texts.to_pylist()], pa.int32())


def _days_of(text: str) -> int | None:
    match = _DATE_TEXT.fullmatch(text.strip(_BLANKS))
    days = None if match is None else _days(*match.groups()[:4])
    return days if days is not None and -_MOST_DAYS - 1 <= days <= _MOST_DAYS else None


def time_us(text: str) -> int | None:
    """Return a text's microseconds."""
    match = _TIME_TEXT.fullmatch(text.strip(_BLANKS))
    days = None if match is None else _days(*match.groups()[:4])
    if match is None or days is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[4:7])
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    local_s = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    offset_s = _offset_s((match["zone"] or "Z").strip(_BLANKS), local_s)
    if offset_s is None:
        return None
    us = (local_s - offset_s) * 1_000_000 + int(((match[8] or "") + "000000")[:6])
    return us if -_MOST_US - 1 <= us <= _MOST_US else None


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    """Return the days from 1970 to a date of the Gregorian calendar, which Spark continues to all years."""
    y, m, d = int(sign + year), int(month or 1), int(day or 1)
    if not 1 <= m <= 12 or d < 1:
        return None
    # In cycles of 400 years, of which each has as many days.
    cycles, within = divmod(y, 400)
    try:
        return (datetime(within + 400, m, d) - datetime(1970, 1, 1)).days + (cycles - 1) * 146_097  # noqa: DTZ001 (days alone)
    except ValueError:
        return None


def _offset_s(zone: str, local_s: int) -> int | None:
    """Return the seconds of a zone ahead of UTC at a local time; None for no zone of Java's."""
    region = region_of(zone)
    if region is None or isinstance(region, int):
        return region
    offset = (EPOCH + timedelta(seconds=within_calendar(local_s))).replace(tzinfo=region).utcoffset()
    return None if offset is None else int(offset.total_seconds())
