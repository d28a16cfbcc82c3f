"""The marks of a stored session that is sent by policy: by them follows what was sent of it (docs/rules.md, rules 260 to 262).

They stand before its packed states in one byte string, little endian: the time up to which sessions were full before
its last change (i64), the number of starts under which it is shown (u32), and these starts (i64).
"""

from dataclasses import dataclass
from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import States
from sessionlake.aggregates.codec import Scalar, StateCodec
from sessionlake.columnar.arrays import Ints, binary_array, byte_slices, exploded, offsets_of, packed, within_group

_HEAD = np.dtype([("reach", "<i8"), ("shown", "<u4")])
_ONE_HEAD = Struct("<qI")
_START = np.dtype("<i8")


@dataclass(frozen=True)
class Marks:
    """Marks in columns, one for each session."""

    reach: Ints
    """The time up to which sessions were full before the session's last change."""
    number: Ints
    """How many starts are shown of the session as of its last change, if it was not sent since."""
    shown: Ints
    """These starts of all sessions, one after the other."""

    def __len__(self) -> int:
        return len(self.reach)

    def take(self, rows: Ints) -> "Marks":
        """Return those of some sessions, in that order."""
        number = self.number[rows]
        first = (np.cumsum(self.number) - self.number)[rows]
        return Marks(self.reach[rows], number, self.shown[np.repeat(first, number) + within_group(number)])

    @property
    def owner(self) -> Ints:
        """For each of `shown` the row of its session."""
        return np.repeat(np.arange(len(self.reach)), self.number)


def with_marks(marks: Marks, states: pa.Array) -> pa.Array:
    """Return packed states with marks before them.

    >>> marks = Marks(np.array([7]), np.array([2]), np.array([3, 5]))
    >>> found, states = split_marks(with_marks(marks, pa.array([b"state"])))
    >>> found.reach.tolist(), found.shown.tolist(), states.to_pylist()
    ([7], [3, 5], [b'state'])
    """
    head = np.zeros(len(marks), _HEAD)
    head["reach"], head["shown"] = marks.reach, marks.number
    heads = binary_array(head, np.arange(len(marks) + 1) * _HEAD.itemsize)
    shown = packed(marks.shown.astype(_START), marks.number)
    return pc.binary_join_element_wise(heads, shown, states, b"")


def split_marks(marked: pa.Array) -> tuple[Marks, pa.Array]:
    """Return the marks and the packed states of byte strings that `with_marks` made; none is null."""
    n = len(marked)
    offsets, data = offsets_of(marked)
    if not n:
        none = np.zeros(0, np.int64)
        return Marks(none, none, none), marked
    head = offsets_of(byte_slices(data, offsets[:-1], np.full(n, _HEAD.itemsize)))[1].view(_HEAD)
    number = head["shown"].astype(np.int64)
    at = offsets[:-1] + _HEAD.itemsize
    shown = exploded(byte_slices(data, at, number * _START.itemsize), _START)[0].astype(np.int64)
    at = at + number * _START.itemsize
    return Marks(head["reach"].astype(np.int64), number, shown), byte_slices(data, at, offsets[1:] - at)


class MarkedCodec(StateCodec):
    """Read packed states that have marks before them, and leave the marks out; see `StateCodec`."""

    def decode(self, packed: pa.Array) -> States:
        """Return the state columns."""
        return super().decode(split_marks(packed)[1])

    def decode_one(self, packed: bytes) -> list[Scalar]:
        """Return one row of the state columns."""
        _, number = _ONE_HEAD.unpack_from(packed)
        return super().decode_one(packed[_ONE_HEAD.size + number * _START.itemsize :])
