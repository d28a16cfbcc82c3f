"""Byte layout of a store's values: the sessions of one key that end in one segment, ordered by (end, start).

A value is the number of its sessions (u32), for each session start, end, event count and revision (i64) and the length
of its state (u32), and then the states. Little endian. Of pipelines whose sessions' `open_until` does not follow from the end
it stands, as another i64, before the length: a store has one of the two layouts for all its life. `pack` and `unpack` work on many values at once; `pack_heads` and
`unpack_heads` do so for records with other fields.
"""

from collections.abc import Iterator
from itertools import accumulate
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, binary_array, byte_slices, offsets_of
from sessionlake.columnar.records import Records

FORMAT = 1
"""Version of this layout and of the segments' and metadata's names; another one's stores are restored, never read."""

# All heads stand before all states, so that numpy reads them as one structured array.
_HEAD = np.dtype([("start", "<i8"), ("end", "<i8"), ("count", "<i8"), ("revision", "<i8"), ("length", "<u4")])
_HEAD_UNTIL = np.dtype([*_HEAD.descr[:-1], ("until", "<i8"), _HEAD.descr[-1]])
_COUNT = np.dtype("<u4")
_ONE_HEAD, _ONE_HEAD_UNTIL, _ONE_COUNT = Struct("<qqqqI"), Struct("<qqqqqI"), Struct("<I")
Heads = npt.NDArray[Any]
"""Heads of records, a structured array whose last field is `length`, u32."""


def pack(sessions: Records, sizes: Ints) -> pa.Array:
    """Return one value for each run of sessions; run i has sizes[i] >= 1 sessions, which come in (end, start) order."""
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


def each(value: bytes, *, backward: bool) -> Iterator[tuple[int, int, bytes]]:
    """Yield of the sessions of one value start, end, and the rest: event count and revision as in the head, then the state.

    For few values: numpy takes longer to begin than this to end.
    """
    parts = _parts(value, _ONE_HEAD)
    for (start, end, *_), head, low, high in reversed(list(parts)) if backward else parts:
        yield start, end, value[head + 16 : head + 32] + value[low:high]


def count_of(value: bytes) -> int:
    """Return how many sessions a value has."""
    return int(_ONE_COUNT.unpack_from(value)[0])


def sessions_of(value: bytes, *, with_until: bool) -> list[tuple[tuple[int, ...], bytes]]:
    """Return of the sessions of one value start, end, event count and revision, `open_until` where the layout has it, and the state.

    `unpack` does so of many values; for few this takes less.
    """
    return [
        (head[:-1], value[low:high])
        for head, _, low, high in _parts(value, _ONE_HEAD_UNTIL if with_until else _ONE_HEAD)
    ]


def _parts(value: bytes, head: Struct) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    """Return of the sessions of one value the head, where in the value that begins, and where the state begins and ends."""
    (count,) = _ONE_COUNT.unpack_from(value)
    first = _ONE_COUNT.size
    states = first + count * head.size
    heads = list(head.iter_unpack(memoryview(value)[first:states]))
    ends = list(accumulate((fields[-1] for fields in heads), initial=states))
    return zip(heads, range(first, states, head.size), ends, ends[1:], strict=False)


def heads_of(value: bytes, *, with_until: bool) -> Heads:
    """Return the heads of the sessions of one value, in place: fields start, end, count, revision, `until` if the layout has it, and length."""
    return np.frombuffer(value, _HEAD_UNTIL if with_until else _HEAD, count_of(value), _COUNT.itemsize)


def states_of(value: bytes, heads: Heads, places: Ints) -> list[bytes]:
    """Return the states of those sessions of one value that stand at some places."""
    ends = np.cumsum(heads["length"], dtype=np.int64) + (_COUNT.itemsize + heads.nbytes)
    lows = (ends - heads["length"])[places]
    return [value[low:high] for low, high in zip(lows.tolist(), ends[places].tolist(), strict=True)]


def pack_heads(head: Heads, state: pa.Array, sizes: Ints) -> pa.Array:
    """Return one value for each run of records, of sizes[i] >= 1; fills the heads' field `length`."""
    offsets, data = offsets_of(state)
    head["length"] = np.diff(offsets)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    counts = binary_array(sizes.astype(_COUNT), np.arange(len(sizes) + 1) * _COUNT.itemsize)
    return pc.binary_join_element_wise(
        counts, binary_array(head, ends * head.dtype.itemsize), binary_array(data, offsets[ends]), b""
    )


def unpack_heads(values: pa.Array, dtype: np.dtype[Any]) -> tuple[Ints, Heads, pa.Array]:
    """Return for each record of all values its value's position, its head, and its state; null stands for no records."""
    offsets, data = offsets_of(values)
    lengths = np.diff(offsets)
    owner = np.flatnonzero(lengths)
    at = offsets[owner]
    counts = _fields(data, at, _COUNT).astype(np.int64)
    first = np.cumsum(counts) - counts
    # The place of each record within its value, then the bytes at which its head and its state begin.
    order = np.arange(counts.sum()) - np.repeat(first, counts)
    head = _fields(data, np.repeat(at + _COUNT.itemsize, counts) + order * dtype.itemsize, dtype)
    size = head["length"].astype(np.int64)
    running = np.cumsum(size) - size
    states = (
        np.repeat(at + _COUNT.itemsize + counts * dtype.itemsize, counts)
        + running
        - np.repeat(running[first] if len(size) else running, counts)
    )
    return np.repeat(owner, counts), head, byte_slices(data, states, size)


def _fields(data: npt.NDArray[np.uint8], at: Ints, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the structures that begin at the given bytes, which need not be aligned: they are copied first."""
    return offsets_of(byte_slices(data, at, np.full(len(at), dtype.itemsize)))[1].view(dtype)
