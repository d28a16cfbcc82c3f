"""Rows as bytes, below a store's serdes: their keys and times, on disk, in memory, or either with a log of changes.

A row's key in window and session stores has the entry's key, its time, and a rank, which distinguishes entries of one key and
time. The bytes sort as (key, time, rank) do. Zero bytes of the key become 00 FF and 00 01 ends the key, so no key's bytes are a
prefix of another's. Numbers are big endian, the sign bit flipped if they may be negative. Changelogs of all variants of a store
have rows by these bytes. Stores take times and durations as whole numbers of their unit, aware datetimes, and texts such as
"7 days".
"""

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final, Literal, Protocol

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError

LEAST: Final = -(1 << 63)
"""The smallest time, an int64."""
LARGEST: Final = (1 << 63) - 1
"""The largest time."""
_SIGN = 1 << 63
_END = b"\0\x01"
_PAST_END = b"\0\x02"


def escaped(key: bytes) -> bytes:
    r"""Return the bytes that all rows of a key begin with.

    >>> escaped(b"a\x00")
    b'a\x00\xff\x00\x01'
    """
    return key.replace(b"\0", b"\0\xff") + _END


def past(key: bytes) -> bytes:
    r"""Return the least bytes that come after all rows of a key.

    >>> escaped(b"a") < past(b"a") < escaped(b"a\x00")
    True
    """
    return key.replace(b"\0", b"\0\xff") + _PAST_END


def after_prefix(prefix: bytes) -> bytes | None:
    r"""Return the least bytes that come after all bytes with a prefix; None if no bytes come after them.

    >>> after_prefix(b"ab"), after_prefix(b"a\xff"), after_prefix(b"\xff")
    (b'ac', b'b', None)
    """
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


@dataclass(frozen=True)
class RowKeys:
    """The bytes of a kind of rows. A rank is from `least_rank` to `largest_rank`, inclusive."""

    tail: Struct
    least_rank: int
    largest_rank: int

    def row(self, key: bytes, time: int, rank: int) -> bytes:
        """Return the bytes of a row's key."""
        return key.replace(b"\0", b"\0\xff") + _END + self.tail.pack(time + _SIGN, rank - self.least_rank)

    def parts(self, row: bytes) -> tuple[bytes, int, int]:
        """Return the key, the time and the rank of a row's bytes.

        >>> WINDOW_KEYS.parts(WINDOW_KEYS.row(b"k", -5, 2))
        (b'k', -5, 2)
        """
        size = self.tail.size
        time, rank = self.tail.unpack(row[-size:])
        return row[: -size - 2].replace(b"\0\xff", b"\0"), time - _SIGN, rank + self.least_rank


WINDOW_KEYS = RowKeys(Struct(">QI"), 0, (1 << 32) - 1)
"""Time is a window's start, rank the number of a duplicate; 0 if the store keeps none."""
SESSION_KEYS = RowKeys(Struct(">QQ"), LEAST, LARGEST)
"""Time is a session's end, rank its start."""


class Rows(Protocol):
    """Rows of any kind of store."""

    persistent: bool

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again: (key, value) in their order, None if the row was removed."""

    def flush(self) -> None:
        """Write the rows in memory to files, if the variant has files."""

    def close(self) -> None:
        """Release the files and memory."""


class KeyValueRows(Rows, Protocol):
    """Values by key, in the order of the keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value."""

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values, None removes; on disk all of them or none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes."""

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - always named by callers
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with low <= key < high; None is open."""

    def count(self) -> int:
        """Return about how many rows there are."""


class TimedRows(Rows, Protocol):
    """Values by key, time and rank (`keys.RowKeys`). A value is live if its time is at least `live_from`."""

    keys: RowKeys
    dropped: int
    """Rows that were refused as expired."""

    @property
    def live_from(self) -> int:
        """The least time that is not expired, by the largest time that was ever put."""

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Write a row and return its rank, or None if it is expired; without a rank it gets the next rank of key and time."""

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Remove a row, if it is there."""

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        """Return a row's value, whether it is live or not; None if it is not there."""

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield (key, time, rank, value) of all rows within bounds, which are inclusive."""

    def is_empty(self) -> bool:
        """Say whether nothing is stored."""


Unit = Literal["us", "ms", "s"]
Time = int | datetime
"""An int64 in the store's unit, or a datetime with a time zone."""
Duration = int | str
"""A whole number of the store's unit, or a text such as "7 days"."""
_MICROSECONDS: Final = {"us": 1, "ms": 1000, "s": 1_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = 60_000_000


@dataclass(frozen=True)
class Units:
    """A store's unit of time."""

    microseconds: int

    def time(self, value: Time) -> int:
        """Return a time in this unit; a datetime is rounded down to whole units.

        >>> units("s").time(datetime(1970, 1, 1, 0, 1, 2, 900_000, tzinfo=UTC))
        62

        Raises ValueError for a datetime without a time zone, for a value that is no time, and for a time that does not fit an int64.
        """
        if type(value) is not int:
            value = self._converted(value)
        if not LEAST <= value <= LARGEST:
            raise ValueError(f"time {value} does not fit an int64; give it in the store's unit")
        return value

    def _converted(self, value: Time) -> int:
        if isinstance(value, datetime):
            if value.utcoffset() is None:
                raise ValueError(f"time {value} has no time zone; add one, as in datetime(2026, 1, 31, tzinfo=UTC)")
            return (value - _EPOCH) // timedelta(microseconds=1) // self.microseconds
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ValueError(f"time {value!r} is neither a whole number nor a datetime with a time zone")
        return operator.index(value)

    def duration(self, value: Duration, name: str) -> int:
        """Return a positive duration in this unit; ValueError, which names the argument, for anything else.

        >>> units("ms").duration("2 minutes", "retention")
        120000
        """
        if isinstance(value, str):
            try:
                micros = parse_duration(value, name)
            except ConfigError as error:
                raise ValueError(str(error)) from None
            if micros % self.microseconds:
                raise ValueError(f"{name}: {value!r} is no whole number of the store's unit; choose unit = 'us'")
            value = micros // self.microseconds
        if type(value) is not int or not 0 < value <= LARGEST:
            raise ValueError(f"{name}: {value!r} must be more than zero, a whole number or a text such as '7 days'")
        return value

    @property
    def minute(self) -> int:
        """A minute in this unit."""
        return _MINUTE // self.microseconds


def units(name: Unit) -> Units:
    """Return a unit by its name; ValueError for an unknown name."""
    if name not in _MICROSECONDS:
        raise ValueError(f"unit: {name!r} is not one of 'us', 'ms', 's'")
    return Units(_MICROSECONDS[name])
