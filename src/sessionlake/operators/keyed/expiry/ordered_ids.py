"""Keys that begin with their creation time, and sort by it: UUIDv7 (RFC 9562) and ULID, as text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, offsets_of
from sessionlake.operators.shared.cleanups.rule import NEVER

KeyFormat = Literal["uuid7", "ulid"]
_HEX, _CROCKFORD = b"0123456789abcdef", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_MOST_MS = (1 << 48) - 1


@dataclass(frozen=True)
class IdFormat:
    """The layout of an id's text; 48 bits of it are milliseconds since 1970."""

    name: str
    """The name of the format in messages."""
    pattern: str
    """The pattern of all ids in their canonical form: another form of the same id would be another key."""
    length: int
    digits: bytes
    places: tuple[int, ...]
    """The places of the digits of the milliseconds, the first digit first."""

    def matches(self, keys: pa.Array) -> Bools:
        """Return which keys, text, are ids of this format."""
        return pc.match_substring_regex(keys, self.pattern).to_numpy(zero_copy_only=False)

    def made_us(self, keys: pa.Array) -> Ints:
        """Return the creation time in each key, text, in microseconds since 1970; NEVER for a key that is no such id.

        >>> FORMATS["ulid"].made_us(pa.array(["01ARZ3NDEKTSV4RRFFQ69G5FAV"])).tolist()
        [1469922850259000]
        """
        made = np.full(len(keys), NEVER)
        ids = np.flatnonzero(self.matches(keys))
        # All ids have one length: their bytes are a matrix with a row for each id.
        _, data = offsets_of(keys.take(pa.array(ids)).cast(pa.binary()))
        # The value of each digit by its byte.
        values = np.zeros(256, np.int64)
        values[np.frombuffer(self.digits, np.uint8)] = np.arange(len(self.digits))
        text: npt.NDArray[np.uint8] = data.reshape(len(ids), self.length)
        ms = np.zeros(len(ids), np.int64)
        for place in self.places:
            ms = ms * len(self.digits) + values[text[:, place]]
        made[ids] = ms * 1000
        return made

    def first_at(self, us: int) -> bytes | None:
        """Return a text that sorts after all ids created before a time (microseconds), and before all of its millisecond.

        None if all ids were created before it.

        >>> FORMATS["ulid"].first_at(1469922850259000)
        b'01ARZ3NDEK'
        """
        # Rounded up: ids of the millisecond in which the time lies may be older than it.
        ms = max(-(-us // 1000), 0)
        if ms > _MOST_MS:
            return None
        text = bytearray(b"-" * (self.places[-1] + 1))
        for place in reversed(self.places):
            ms, digit = divmod(ms, len(self.digits))
            text[place] = self.digits[digit]
        return bytes(text)


FORMATS: Mapping[KeyFormat, IdFormat] = {
    "uuid7": IdFormat(
        "UUIDv7",
        r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z",
        36,
        _HEX,
        (*range(8), *range(9, 13)),
    ),
    "ulid": IdFormat("ULID", r"^[0-7][0-9A-HJKMNP-TV-Z]{25}\z", 26, _CROCKFORD, tuple(range(10))),
}
