"""The store of a join of tables: the rows of each side by key, in buckets by the hash of their content.

A key of a side has 2^bits buckets, one value each, and a directory: the number of its rows, and `bits`. So a row of a key with a
million rows is changed without reading the others, and all rows of many keys are read at once. Buckets are cut again if they have
more than FULL rows in the mean, or fewer than SPARSE.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, binary_array, concatenated, offsets_of, within_group
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.identity import hash_bytes
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import BlockStore, block_keys
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import pack_heads, unpack_heads
from sessionlake.store.segmented import WRITE_SCHEMA

SEGMENT = 0
"""The number of the only segment: nothing ever expires."""
FULL, SPARSE = 64, 8
HEAD = np.dtype([("position", "<i8"), ("length", "<u4")])
_DIRECTORY = np.dtype([("rows", "<i8"), ("bits", "<i8")])


@dataclass(frozen=True)
class SideRows:
    """Rows of one side in columns; `codes` say which of some keys each belongs to."""

    codes: Ints
    position: Ints
    content: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def empty(cls) -> "SideRows":
        """Return no rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], pa.binary()))

    def take(self, rows: Ints) -> "SideRows":
        """Return the given rows, in that order."""
        return SideRows(self.codes[rows], self.position[rows], self.content.take(pa.array(rows)))


def together(parts: Sequence[SideRows]) -> SideRows:
    """Return the rows of all parts, by (code, position)."""
    codes, position = (np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "position"))
    content = concatenated([part.content for part in parts])
    return SideRows(codes, position, content).take(np.lexsort((position, codes)))


@dataclass(frozen=True)
class Directory:
    """Of each of some keys how many rows of a side it has, and into how many buckets, 2^bits, they are cut."""

    rows: Ints
    bits: Ints

    def after(self, rows: Ints) -> "Directory":
        """Return the directory of other numbers of rows: buckets are cut again only if they have become too full or too sparse."""
        least = np.ceil(np.log2(np.maximum(rows, FULL) / FULL)).astype(np.int64)
        cut = (rows > FULL << self.bits) | ((rows < SPARSE << self.bits) & (least < self.bits))
        # Into buckets that are half full at most, so that the next row is no reason to cut again.
        half = np.ceil(np.log2(np.maximum(rows, FULL // 2) / (FULL // 2))).astype(np.int64)
        return Directory(rows, np.where(cut, np.where(rows > FULL << self.bits, half, least), self.bits))


class SideStore(BlockStore):
    """The rows of both sides of one shard. Reads and the `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(self, path: Path, opened: OpenSegments = FileSegments) -> None:
        super().__init__(path, opened)

    def directory(self, letter: str, keys: pa.Array) -> Directory:
        """Return the directory of a side, a small letter."""
        n = len(keys)
        values = self._found(block_keys(keys, np.arange(n), np.zeros(n, np.int64), letter.upper()))
        offsets, data = offsets_of(values)
        there = np.diff(offsets) > 0
        found = np.zeros(n, _DIRECTORY)
        found[there] = data.view(_DIRECTORY)
        return Directory(found["rows"].astype(np.int64), found["bits"].astype(np.int64))

    def rows(self, letter: str, keys: pa.Array, codes: Ints, buckets: Ints) -> SideRows:
        """Return the rows in some buckets, each named once, by (code, position)."""
        owner, head, content = unpack_heads(self._found(block_keys(keys, codes, buckets, letter)), HEAD)
        return together([SideRows(codes[owner], head["position"].astype(np.int64), content)])

    def writes(self, letter: str, keys: pa.Array, codes: Ints, buckets: Ints, bits: Ints, rows: SideRows) -> pa.Table:
        """Return the writes that make rows the whole content of some buckets, each named once; `bits` are by code."""
        bucket = bucket_of(rows.content, bits[rows.codes])
        # An empty bucket is deleted. The stable order of groups is that of the rows, by (code, position).
        order, starts = group_events(np.concatenate([codes, rows.codes]), np.concatenate([buckets, bucket]), 0)
        named = order[starts]
        sizes = np.diff(starts, append=len(order)) - 1
        if (named >= len(codes)).any():
            raise ValueError("a row lies in a bucket that is not named")
        rows = rows.take(order[order >= len(codes)] - len(codes))
        head = np.zeros(len(rows), HEAD)
        head["position"] = rows.position
        filled = sizes > 0
        values = pack_heads(head, rows.content, sizes[filled]) if filled.any() else pa.array([], pa.binary())
        place = pa.array(np.cumsum(filled) - 1, mask=~filled)
        names = block_keys(keys, codes[named], buckets[named], letter)
        return _writes(names, values.take(place))

    def directory_writes(self, letter: str, keys: pa.Array, codes: Ints, of: Directory) -> pa.Table:
        """Return the writes of the directories of some keys."""
        found = np.zeros(len(codes), _DIRECTORY)
        found["rows"], found["bits"] = of.rows[codes], of.bits[codes]
        values = binary_array(found, np.arange(len(codes) + 1) * _DIRECTORY.itemsize)
        gone = pa.array(np.arange(len(codes)), mask=found["rows"] == 0)
        names = block_keys(keys, codes, np.zeros(len(codes), np.int64), letter.upper())
        return _writes(names, values.take(gone))

    def apply(self, writes: pa.Table, meta: dict[str, bytes]) -> None:
        """Apply writes and metadata atomically."""
        self.commit(writes, meta, SEGMENT)

    def _found(self, names: pa.Array) -> pa.Array:
        if not len(names) or SEGMENT not in self._db.segments:
            return pa.nulls(len(names), pa.binary())
        return self._db.find(SEGMENT, names)


def bucket_of(content: pa.Array, bits: Ints) -> Ints:
    """Return the bucket of each row, of 2^bits."""
    low = hash_bytes(content) & ((np.uint64(1) << bits.astype(np.uint64)) - np.uint64(1))
    return low.astype(np.int64)


def buckets_of(codes: Ints, bits: Ints) -> tuple[Ints, Ints]:
    """Return the codes and numbers of all buckets of some codes."""
    number = 1 << bits
    return np.repeat(codes, number), within_group(number)


def _writes(names: pa.Array, values: pa.Array) -> pa.Table:
    return pa.Table.from_arrays([pa.array(np.full(len(names), SEGMENT)), names, values], schema=WRITE_SCHEMA)
