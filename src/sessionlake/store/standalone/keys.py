"""Bytes of a row's key in window and session stores: the entry's key, its time, and a rank.

The rank distinguishes entries of one key and time. The bytes sort as (key, time, rank) do. Zero bytes of the key become 00 FF
and 00 01 ends the key, so no key's bytes are a prefix of another's. Numbers are big endian, the sign bit flipped if they may be
negative. Changelogs of all variants of a store have rows by these bytes.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

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
    """The bytes of one kind of rows. A rank is from `least_rank` to `largest_rank`, inclusive."""

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
