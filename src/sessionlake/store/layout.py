"""Byte layout of a store's values: the sessions of one key that end in one segment, ordered by (end, start).

A value is the number of its sessions (u32), for each session start, end, event count and revision (i64) and the length
of its state (u32), and then the states. Little endian. `pack` and `unpack` work on many values at once.
"""

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
_COUNT = np.dtype("<u4")


def pack(sessions: Records, sizes: Ints) -> pa.Array:
    """Return one value for each run of sessions; run i has sizes[i] >= 1 sessions, which come in (end, start) order."""
    head = np.empty(len(sessions.start), _HEAD)
    for name in ("start", "end", "count", "revision"):
        head[name] = getattr(sessions, name)
    offsets, data = offsets_of(sessions.state)
    head["length"] = np.diff(offsets)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    counts = binary_array(sizes.astype(_COUNT), np.arange(len(sizes) + 1) * _COUNT.itemsize)
    return pc.binary_join_element_wise(
        counts, binary_array(head, ends * _HEAD.itemsize), binary_array(data, offsets[ends]), b""
    )


def unpack(values: pa.Array) -> Records:
    """Return the sessions of all values, in order; null stands for no sessions."""
    offsets, data = offsets_of(values)
    lengths = np.diff(offsets)
    owner = np.flatnonzero(lengths)
    at = offsets[owner]
    counts = _fields(data, at, _COUNT).astype(np.int64)
    first = np.cumsum(counts) - counts
    # The place of each session within its value, then the bytes at which its head and its state begin.
    order = np.arange(counts.sum()) - np.repeat(first, counts)
    head = _fields(data, np.repeat(at + _COUNT.itemsize, counts) + order * _HEAD.itemsize, _HEAD)
    size = head["length"].astype(np.int64)
    running = np.cumsum(size) - size
    states = (
        np.repeat(at + _COUNT.itemsize + counts * _HEAD.itemsize, counts)
        + running
        - np.repeat(running[first] if len(size) else running, counts)
    )
    start, end, count, revision = (head[name].astype(np.int64) for name in ("start", "end", "count", "revision"))
    return Records(np.repeat(owner, counts), start, end, count, revision, byte_slices(data, states, size))


def _fields(data: npt.NDArray[np.uint8], at: Ints, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the structures that begin at the given bytes, which need not be aligned: they are copied first."""
    return offsets_of(byte_slices(data, at, np.full(len(at), dtype.itemsize)))[1].view(dtype)
