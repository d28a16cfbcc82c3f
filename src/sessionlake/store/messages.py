"""The store of a join: the messages of two sides by key, in blocks of the axis they are joined on; and lists of what waits.

A message has a place x on that axis: its time, or its number. Messages of a side and key lie in blocks of equal length, one
value each: what is near a place is read by one sorted multi-get of few blocks, whatever else the key has. A block lies in
one segment, and what is older than any partner can be goes by whole segments, without a scan.

Lists name messages whose pairs are to be made later. They lie in a segment of their own, which never expires.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined, within_group
from sessionlake.columnar.groups import group_events
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import BlockStore, block_keys, block_writes, items_of, key_of, read_blocks
from sessionlake.store.layout import Heads, pack_heads, unpack_heads
from sessionlake.store.lists import LIST_ROWS, LISTS, list_table, packed_list
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.segmented import WRITE_SCHEMA

HEAD = np.dtype(
    [("x", "<i8"), ("time", "<i8"), ("position", "<i8"), ("revision", "<i8"), ("late", "u1"), ("length", "<u4")]
)
"""Heads of messages: place; time; position; the batch that brought it; whether it is of the late policy."""


@dataclass(frozen=True)
class Messages:
    """Messages of one side in columns; `codes` say which of some keys each belongs to, and columns stay packed."""

    codes: Ints
    head: Heads
    columns: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, name: str) -> Ints:
        return self.head[name].astype(np.int64, copy=False)

    @classmethod
    def empty(cls) -> "Messages":
        """Return no messages."""
        return cls(np.zeros(0, np.int64), np.zeros(0, HEAD), pa.array([], pa.binary()))

    def take(self, rows: Ints) -> "Messages":
        """Return the given rows, in that order."""
        return Messages(self.codes[rows], self.head[rows], self.columns.take(pa.array(rows)))


def together(parts: Sequence[Messages]) -> Messages:
    """Return the messages of all parts, by (code, x, position)."""
    head = np.concatenate([np.zeros(0, HEAD), *(part.head for part in parts)])
    codes = np.concatenate([np.zeros(0, np.int64), *(part.codes for part in parts)])
    columns = pa.concat_arrays([pa.array([], pa.binary()), *(part.columns for part in parts)])
    return Messages(codes, head, columns).take(np.lexsort((head["position"], head["x"], codes)))


@dataclass(frozen=True)
class Waiting:
    """What lists name: messages of either side by side's letter, place and key."""

    sides: pa.Array
    x: Ints
    keys: pa.Array


class MessageStore(BlockStore):
    """Messages and lists of one shard. Reads and the `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(self, path: Path, *, block: int, segment: int, opened: OpenSegments = RocksSegments) -> None:
        super().__init__(path, opened)
        self.block = block
        self._blocks = -(-segment // block)
        """Blocks of a segment: it is as long as was asked for, at least."""

    def around(self, side: str, keys: pa.Array, codes: Ints, low: Ints, high: Ints) -> Messages:
        """Return the messages of a side, a letter, in all blocks that stretches [low, high] of the keys' axes touch.

        They come by (code, x, position), each once; some lie outside of the stretches, but in blocks of theirs.
        """
        first = low // self.block
        number = np.maximum(high // self.block - first + 1, 0)
        codes, blocks = np.repeat(codes, number), np.repeat(first, number) + within_group(number)
        order, starts = group_events(codes, blocks, 0)
        codes, blocks = codes[order[starts]], blocks[order[starts]]
        at, values = read_blocks(self._db, blocks // self._blocks, block_keys(keys, codes, blocks, side))
        owner, head, columns = unpack_heads(values, HEAD)
        return Messages(codes[at][owner], head, columns)

    def writes(self, side: str, keys: pa.Array, messages: Messages) -> pa.Table:
        """Return the writes that make messages the whole content of their blocks; they come by (code, x, position)."""
        block = messages["x"] // self.block
        new = (np.diff(messages.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0)
        at = np.flatnonzero(new)
        if not len(at):
            return WRITE_SCHEMA.empty_table()
        values = pack_heads(messages.head.copy(), messages.columns, np.diff(at, append=len(messages)))
        block = block[at]
        return block_writes(block // self._blocks, block_keys(keys, messages.codes[at], block, side), values)

    def list_writes(self, letter: str, number: int, waiting: Waiting) -> pa.Table:
        """Return the writes of lists of a kind, a letter; of the same kind and number, a batch's, others are replaced."""
        table = pa.table({"side": waiting.sides, "x": waiting.x, "key": waiting.keys})
        names, values = [], []
        for part, first in enumerate(range(0, len(table), LIST_ROWS)):
            names.append(letter.encode() + number.to_bytes(8, "big") + part.to_bytes(4, "big"))
            values.append(packed_list(table.slice(first, LIST_ROWS)))
        return list_table(names, values)

    def lists(self, letter: str) -> tuple[list[bytes], Waiting]:
        """Return the names of the lists of a kind, and what they name, which may be more than once."""
        found = []
        if LISTS in self._db.segments:
            found = self._db.items(LISTS, letter.encode(), letter.encode() + b"\xff" * 12)
        empty = pa.table(
            {"side": pa.array([], pa.string()), "x": np.zeros(0, np.int64), "key": pa.array([], pa.string())}
        )
        table = pa.concat_tables([empty, *(pa.ipc.open_stream(value).read_all() for _, value in found)])
        named = Waiting(combined(table["side"]), table["x"].to_numpy(), combined(table["key"]))
        return [name for name, _ in found], named

    @staticmethod
    def list_deletes(names: Sequence[bytes]) -> pa.Table:
        """Return the writes that delete lists."""
        return list_table(list(names), [None] * len(names))

    def apply(self, writes: pa.Table, meta: dict[str, bytes], oldest: int) -> None:
        """Apply writes, ascending by segment, and metadata atomically, then drop what lies before a place by whole segments."""
        self.commit(writes, meta, oldest // self.block // self._blocks)

    def scan(self, side: str, low: int, high: int, key: bytes | None = None) -> tuple[list[bytes], Messages]:
        """Return the messages of a side with places in [low, high], by place, and their keys, which codes point into.

        Without a key it reads whole segments: for inspection and for queries without one.
        """
        keys: list[bytes] = []
        values: list[bytes] = []
        first, last = (place // self.block // self._blocks for place in (low, high))
        for segment in self._db.segments:
            for name, value in items_of(self._db, segment, key, 9) if first <= segment <= last else []:
                owner, letter = key_of(name)
                if letter == side:
                    keys.append(owner)
                    values.append(value)
        found = Messages(*unpack_heads(pa.array(values, pa.binary()), HEAD))
        rows = np.flatnonzero((found["x"] >= low) & (found["x"] <= high))
        return keys, found.take(rows[np.lexsort((found["position"][rows], found["x"][rows]))])
