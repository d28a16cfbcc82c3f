"""Zones of times as Java has them: their names and offsets, and the times of columns moved between a zone's clock and UTC."""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined, nullable, numbers

FROM_UTC_FUNCTION, TO_UTC_FUNCTION = "from_utc_us", "to_utc_us"
"""The names under which DuckDB calls `from_utc` and `to_utc`."""
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (without a zone, as the times of a zone's clock)
_DAY_S = 86_400
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])"
    r"(?:([0-9])|([0-9]{1,2})(?::([0-9]{1,2}))?|([0-9]{2})(?::([0-9]{2}):([0-9]{2})|([0-9]{2})([0-9]{2})?))"
)
_UTC = frozenset(("Z", "UTC", "GMT", "UT"))
_MOST_OFFSET_S = 18 * 3600
_CYCLE_S, _YEAR_400_S, _YEAR_9600_S = 146_097 * 86_400, -49_544_438_400, 240_779_520_000
"""400 years of the calendar, and the first seconds of two years from 1970 on."""
_SHORT = {
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's short names of zones."""


def from_utc(times: pa.ChunkedArray | pa.Array, zones: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return times in UTC as the clocks of the named zones show them, both in microseconds since 1970; null for no zone of Java's.

    >>> from_utc(pa.array([0, 0]), pa.array(["Europe/Berlin", "Nowhere"])).to_pylist()
    [3600000000, None]
    """
    return _moved(times, zones, local=False)


def to_utc(times: pa.ChunkedArray | pa.Array, zones: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the times in UTC at which clocks show the given ones: of two the earlier; one that is left out has the offset of before.

    >>> to_utc(pa.array([3600000000]), pa.array(["+01:00"])).to_pylist()
    [0]
    """
    return _moved(times, zones, local=True)


def _moved(times: pa.ChunkedArray | pa.Array, zones: pa.ChunkedArray | pa.Array, *, local: bool) -> pa.Array:
    names = combined(zones).dictionary_encode()
    codes = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False)
    us, valid = numbers(combined(times))
    moved, known = us.copy(), np.zeros(len(us), bool)
    for code, name in enumerate(names.dictionary.to_pylist()):
        region = region_of(name)
        if region is not None:
            rows = np.flatnonzero(codes == code)
            offsets = _offsets_s(region, us[rows] // 1_000_000, local=local) * (-1_000_000 if local else 1_000_000)
            moved[rows] += offsets
            # A sum beyond 64 bits has come out on the other side.
            known[rows] = (moved[rows] >= us[rows]) == (offsets >= 0)
    return nullable(moved, known if valid is None else known & valid)


def _offsets_s(region: ZoneInfo | int, seconds: Ints, *, local: bool) -> Ints:
    """Return the seconds of a region ahead of UTC at each time, which is in UTC, or on the region's clock."""
    if isinstance(region, int):
        return np.full(len(seconds), region)
    days, which = np.unique(seconds // _DAY_S, return_inverse=True)
    # The bounds in UTC of what may be such a day. No region has two changes within these three days.
    bounds = [(day - 1, day + 2) if local else (day, day + 1) for day in days.tolist()]
    before, after = (np.array([_at_day(region, pair[end]) for pair in bounds], np.int64) for end in (0, 1))
    changes = np.zeros(len(days), np.int64)
    for number in np.flatnonzero(before != after).tolist():
        changes[number] = _change_s(region, *bounds[number])
    # A local time is of after if it is so by both clocks.
    changes += np.maximum(before, after) if local else 0
    return np.where(seconds < changes[which], before[which], after[which])


@lru_cache(maxsize=10_000)
def _at_day(region: ZoneInfo, day: int) -> int:
    return _at(region, day * _DAY_S)


@lru_cache(maxsize=1000)
def _change_s(region: ZoneInfo, first: int, last: int) -> int:
    """Return the second of the change between two days."""
    low, high = first * _DAY_S, last * _DAY_S
    before = _at(region, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at(region, middle) == before else (low, middle)
    return high


def _at(region: ZoneInfo, second: int) -> int:
    time = EPOCH.replace(tzinfo=region) + timedelta(seconds=within_calendar(second))
    offset = region.fromutc(time).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def within_calendar(seconds: int) -> int:
    """Return a time with the same offset in the years that Python knows: before the first and after the last change of a zone, 400 years repeat."""
    if _YEAR_400_S <= seconds < _YEAR_9600_S:
        return seconds
    return (_YEAR_400_S if seconds < 0 else _YEAR_9600_S - _CYCLE_S) + (seconds - _YEAR_400_S) % _CYCLE_S


def region_of(zone: str) -> ZoneInfo | int | None:
    """Return a zone of Java's by its name, or the seconds of an offset ahead of UTC; None for another text."""
    zone = _SHORT.get(zone, zone)
    if zone in _UTC:
        return 0
    fixed = _fixed(zone)
    return ZoneInfo(zone) if fixed is None and zone in _regions() else fixed


@lru_cache(maxsize=1000)
def _fixed(zone: str) -> int | None:
    """Return the seconds of an offset; None if a zone is none."""
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    sign, one, two, minutes, hours, *rest = match.groups()
    parts = [int(part or 0) for part in (one or two or hours, minutes or rest[0] or rest[2], rest[1] or rest[3])]
    total = parts[0] * 3600 + parts[1] * 60 + parts[2]
    if parts[1] > 59 or parts[2] > 59 or total > _MOST_OFFSET_S:
        return None
    return -total if sign == "-" else total


@lru_cache(maxsize=1)
def _regions() -> frozenset[str]:
    return frozenset(available_timezones()) - {"EST", "MST", "HST", "localtime", "Factory"}
