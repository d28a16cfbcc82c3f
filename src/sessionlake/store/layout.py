"""Byte layout of a store's values: a key's sessions that end in a segment, ordered by (end, start).

A value has three parts, all little endian: the number of its sessions (u32); a head for each session, with start, end, event
count and revision (i64) and the length of its state (u32); then the states. If a session's `open_until` does not follow from
its end, the head has it as another i64 before the length. A store has one of the two layouts for all its life. `pack` and
`unpack` work on many values at once. `pack_heads` and `unpack_heads` do so for records with other fields.
"""

from collections.abc import Iterator
from itertools import accumulate
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, binary_array, bounds_of, byte_slices, offsets_of, starts_of
from sessionlake.columnar.records import Records

FORMAT = 4
"""Version of this layout, of `CURRENT`, of the runs, and of the names of segments and metadata; stores of another version are restored, never read."""
EARLIER = (3,)
"""Formats that are read, too. Opening such a store makes it this format. Format 3 named its files otherwise in `CURRENT`."""

# All heads stand before all states, so numpy reads them as a structured array.
_HEAD = np.dtype([("start", "<i8"), ("end", "<i8"), ("count", "<i8"), ("revision", "<i8"), ("length", "<u4")])
_HEAD_UNTIL = np.dtype([*_HEAD.descr[:-1], ("until", "<i8"), _HEAD.descr[-1]])
_COUNT = np.dtype("<u4")
_ONE_HEAD, _ONE_HEAD_UNTIL, _ONE_COUNT = Struct("<qqqqI"), Struct("<qqqqqI"), Struct("<I")
Heads = npt.NDArray[Any]
"""Heads of records, a structured array whose last field is `length`, u32."""


def pack(sessions: Records, sizes: Ints) -> pa.Array:
    """Return one value for each run of sessions; run i has sizes[i] >= 1 sessions, in (end, start) order.

    >>> ints, state = (lambda *some: np.array(some)), pa.array([b"x", b"yz"])
    >>> sessions = Records(ints(0, 0), ints(10, 30), ints(20, 40), ints(2, 1), ints(7, 7), state)
    >>> values = pack(sessions, ints(2))
    >>> count_of(values[0].as_py()), unpack(values).end.tolist(), unpack(values).state.to_pylist()
    (2, [20, 40], [b'x', b'yz'])
    """
    head = np.empty(len(sessions.start), _HEAD if sessions.until is None else _HEAD_UNTIL)
    for name in ("start", "end", "count", "revision", *(() if sessions.until is None else ("until",))):
        head[name] = getattr(sessions, name)
    return pack_heads(head, sessions.state, sizes)


def unpack(values: pa.Array, *, with_until: bool = False) -> Records:
    """Return the sessions of all values, in order; null stands for no sessions. `with_until` says which layout they have."""
    owner, head, state = unpack_heads(values, _HEAD_UNTIL if with_until else _HEAD)
    start, end, count, revision = (head[name].astype(np.int64) for name in ("start", "end", "count", "revision"))
    until = head["until"].astype(np.int64) if with_until else None
    return Records(owner, start, end, count, revision, state, until)


def count_of(value: bytes) -> int:
    """Return how many sessions a value has."""
    return int(_ONE_COUNT.unpack_from(value)[0])


def sessions_of(value: bytes, *, with_until: bool) -> list[tuple[tuple[int, ...], bytes]]:
    """Return a value's sessions: tuples of start, end, event count, revision and, with `with_until`, `open_until`; and the state.

    It is faster than `unpack` for few values.
    """
    return [
        (head[:-1], value[low:high])
        for head, _, low, high in _parts(value, _ONE_HEAD_UNTIL if with_until else _ONE_HEAD)
    ]


def _parts(value: bytes, head: Struct) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """Yield for each session of a value its head, the head's offset in the value, and the offsets [begin, end) of its state."""
    (count,) = _ONE_COUNT.unpack_from(value)
    first = _ONE_COUNT.size
    states = first + count * head.size
    heads = list(head.iter_unpack(memoryview(value)[first:states]))
    # The lengths, added up from the first state's offset, are the states' bounds: one more than there are states, so that
    # `zip` (not strict) pairs each begin with its end.
    ends = list(accumulate((fields[-1] for fields in heads), initial=states))
    return zip(heads, range(first, states, head.size), ends, ends[1:], strict=False)


def heads_of(value: bytes, *, with_until: bool) -> Heads:
    """Return the heads of a value's sessions, in place: fields start, end, count, revision, `until` if the layout has it, and length."""
    return np.frombuffer(value, _HEAD_UNTIL if with_until else _HEAD, count_of(value), _COUNT.itemsize)


def states_of(value: bytes, heads: Heads, places: Ints) -> list[bytes]:
    """Return the states of a value's sessions at the given indices."""
    # States follow the heads, one after the other.
    ends = np.cumsum(heads["length"], dtype=np.int64) + (_COUNT.itemsize + heads.nbytes)
    lows = (ends - heads["length"])[places]
    return [value[low:high] for low, high in zip(lows.tolist(), ends[places].tolist(), strict=True)]


def pack_heads(head: Heads, state: pa.Array, sizes: Ints) -> pa.Array:
    """Return one value for each run of records; run i has sizes[i] >= 1 records. It sets the heads' field `length`."""
    offsets, data = offsets_of(state)
    head["length"] = np.diff(offsets)
    # Run i has the records [ends[i], ends[i + 1]). Heads have a fixed width and states lie at `offsets`, so both buffers are
    # cut at the runs' bounds without a copy of single records.
    ends = bounds_of(sizes)
    counts = binary_array(sizes.astype(_COUNT), np.arange(len(sizes) + 1) * _COUNT.itemsize)
    return pc.binary_join_element_wise(
        counts, binary_array(head, ends * head.dtype.itemsize), binary_array(data, offsets[ends]), b""
    )


def unpack_heads(values: pa.Array, dtype: np.dtype[Any]) -> tuple[Ints, Heads, pa.Array]:
    """Return each record's value position, head, and state, for all values; null stands for no records."""
    offsets, data = offsets_of(values)
    lengths = np.diff(offsets)
    owner = np.flatnonzero(lengths)
    at = offsets[owner]
    counts = _fields(data, at, _COUNT).astype(np.int64)
    first = starts_of(counts)
    # `order` is a record's index within its value. Its head begins `order` heads after the value's count.
    order = np.arange(counts.sum()) - np.repeat(first, counts)
    head = _fields(data, np.repeat(at + _COUNT.itemsize, counts) + order * dtype.itemsize, dtype)
    size = head["length"].astype(np.int64)
    # `running` is the bytes of all states before a record's. Less its value's first one, it is the state's offset within the
    # states of its value, which begin after the value's last head.
    running = starts_of(size)
    states = (
        np.repeat(at + _COUNT.itemsize + counts * dtype.itemsize, counts)
        + running
        - np.repeat(running[first] if len(size) else running, counts)
    )
    return np.repeat(owner, counts), head, byte_slices(data, states, size)


def _fields(data: npt.NDArray[np.uint8], at: Ints, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the structures that begin at the given bytes, which need not be aligned: they are copied first."""
    return offsets_of(byte_slices(data, at, np.full(len(at), dtype.itemsize)))[1].view(dtype)
