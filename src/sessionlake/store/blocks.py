"""Values in blocks of an axis, read for many keys at once. Whole segments of old blocks are dropped without a scan.

A block's key is the bytes of the key, a letter if a store has blocks of several kinds, and the block's number in eight bytes
that sort as the number does.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, binary_array, combined, taken
from sessionlake.store.api import OpenSegments, Segments
from sessionlake.store.files import FileSegments
from sessionlake.store.segmented import WRITE_SCHEMA

_SIGN = 1 << 63


def block_keys(keys: pa.Array, codes: Ints, blocks: Ints, letter: str = "") -> pa.Array:
    """Return the database's keys of blocks, of the keys that codes name."""
    suffix = np.empty(len(blocks), np.dtype([("letter", f"S{len(letter)}"), ("number", ">u8")]))
    suffix["letter"] = letter.encode()
    suffix["number"] = blocks.astype(np.uint64) ^ np.uint64(_SIGN)
    text = binary_array(suffix, np.arange(len(blocks) + 1) * suffix.dtype.itemsize)
    return pa.compute.binary_join_element_wise(keys.take(pa.array(codes)).cast(pa.binary()), text, b"")


def block_number(block: int) -> bytes:
    """Return the bytes of a block's number."""
    return (block + _SIGN).to_bytes(8, "big")


def key_of(block_key: bytes) -> tuple[bytes, str]:
    """Return the key and the letter of a database's key."""
    return block_key[:-9], block_key[-9:-8].decode()


def read_blocks(db: Segments, segment: Ints, names: pa.Array) -> tuple[Ints, pa.Array]:
    """Return the indices of blocks in live segments, in order, and their values, null for missing blocks."""
    values: list[pa.Array] = []
    rows: list[Ints] = []
    for number in db.segments:
        at = np.flatnonzero(segment == number)
        if len(at):
            values.append(db.find(number, names.take(pa.array(at))))
            rows.append(at)
    if not rows:
        return np.zeros(0, np.int64), pa.array([], pa.binary())
    if len(rows) == 1:
        return rows[0], values[0]
    at = np.concatenate(rows)
    # Each block is found in one segment at most, so no two are equal.
    order = np.argsort(at)
    return at[order], combined(pa.chunked_array(values)).take(pa.array(order))


def items_of(db: Segments, segment: int, key: bytes | None, suffix: int) -> list[tuple[bytes, bytes]]:
    """Return the database's keys and values in a live segment, of all keys or a given key; `suffix` bytes of each follow the key."""
    if key is None:
        return db.items(segment)
    stored_items = db.items(segment, key, key + b"\xff" * suffix)
    return [(name, value) for name, value in stored_items if len(name) == len(key) + suffix]


def block_writes(segment: Ints, names: pa.Array, values: pa.Array) -> pa.Table:
    """Return writes of blocks, ascending by segment, and within a segment in their order."""
    # Stable, as callers order the writes within a segment.
    order = np.argsort(segment, kind="stable")
    index = pa.array(order)
    return pa.Table.from_arrays(
        [pa.array(segment[order]), names.take(index), taken(values, index)], schema=WRITE_SCHEMA
    )


class BlockStore:
    """A database of segments, whose content subclasses say."""

    def __init__(self, path: Path, opened: OpenSegments = FileSegments) -> None:
        self._db = opened(path)

    def commit(self, writes: pa.Table, meta: dict[str, bytes], oldest: int) -> None:
        """Apply writes, ascending by segment, and metadata atomically, then drop the segments numbered below `oldest`.

        Writes to segments that would be dropped at once are left out.
        """
        numbers, starts = np.unique(writes["segment"].to_numpy(), return_index=True)
        ends = np.append(starts, len(writes))[1:]
        batch = {}
        for number, low, high in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if number >= oldest:
                part = writes.slice(low, high - low)
                batch[number] = (combined(part["key"]), combined(part["value"]))
        self._db.write(batch, meta)
        self._db.drop_before(oldest)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._db.meta(name)

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return not self._db.segments

    def clear(self) -> None:
        """Remove everything."""
        self._db.clear()

    def close(self) -> None:
        """Flush and release the database."""
        self._db.close()
