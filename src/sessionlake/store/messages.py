"""The store of a join: the messages of two sides by key, in blocks of the join's axis, and lists of waiting messages.

A message has a place x on that axis: its time, or its number. Messages of a side and key lie in blocks of equal length, one
value each. The messages near a place are read by one sorted multi-get of few blocks, however many the key has. A block lies in
one segment. Messages too old for any partner are dropped as whole segments, without a scan.

Lists name messages whose pairs are sent later. They lie in a separate segment, which never expires.

If messages of all keys are read by place, the store also has an index: each segment has, next to its blocks, a row without a
value for each block, ordered by the block's number and then its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints, combined, concatenated, within_group
from sessionlake.columnar.groups import group_events
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import BlockStore, block_keys, block_number, block_writes, key_of, read_blocks
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import Heads, pack_heads, unpack_heads
from sessionlake.store.lists import LIST_ROWS, LISTS, list_table, packed_list
from sessionlake.store.segmented import WRITE_SCHEMA

HEAD = np.dtype(
    [("x", "<i8"), ("time", "<i8"), ("position", "<i8"), ("revision", "<i8"), ("flags", "u1"), ("length", "<u4")]
)
"""Heads of messages: place; time; position; the batch that brought it; IS_LATE and other flags, as far as they hold."""
IS_LATE, MATCHED, SENT, MAYBE_SENT = 1, 2, 4, 8
"""Of a message: it is of the policy `late`; of an outer join: it has had a partner; of a session of one: it was sent without a partner,
or may have been, which a store that was restored can't tell if the session goes on."""
_INDEX = b"\xff"
"""The first byte of the index's rows. No key begins with it, because UTF-8 has no such byte."""
_SUFFIX = 9
"""Bytes of a block's name behind the key: the side's letter and the number."""


@dataclass(frozen=True)
class Messages:
    """A side's messages in columns; `codes` give each message's key, and columns stay packed."""

    codes: Ints
    head: Heads
    columns: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, name: str) -> Ints:
        return self.head[name].astype(np.int64, copy=False)

    def has(self, flag: int) -> Bools:
        """Say which messages have a flag."""
        has_flag: Bools = (self.head["flags"] & flag) > 0
        return has_flag

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
class ListedMessages:
    """The entries of lists: messages of both sides, by the side's letter, place and key."""

    sides: pa.Array
    x: Ints
    keys: pa.Array

    @classmethod
    def empty(cls) -> "ListedMessages":
        """Return no entries."""
        return cls(pa.array([], pa.string()), np.zeros(0, np.int64), pa.array([], pa.string()))

    def take(self, rows: Ints) -> "ListedMessages":
        """Return the given entries, in that order."""
        return ListedMessages(self.sides.take(pa.array(rows)), self.x[rows], self.keys.take(pa.array(rows)))


def listed_together(parts: Sequence[ListedMessages]) -> ListedMessages:
    """Return the entries of all parts."""
    sides, keys = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("sides", "keys"))
    return ListedMessages(sides, np.concatenate([part.x for part in parts]), keys)


class MessageStore(BlockStore):
    """Messages and lists of a shard. Reads and the `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(self, path: Path, *, block: int, segment: int, opened: OpenSegments = FileSegments) -> None:
        super().__init__(path, opened)
        self.block = block
        self._blocks = -(-segment // block)
        """The number of blocks in a segment, rounded up, so a segment is at least as long as the parameter `segment`."""
        self._indexed = False

    def index(self) -> None:
        """Keep an index by place from now on; blocks already stored are indexed first."""
        self._indexed = True
        for segment in self._db.segments:
            if segment == LISTS or self._db.items(segment, _INDEX, limit=1):
                continue
            names = [_index_row(name) for name, _ in self._db.items(segment)]
            self._db.write({segment: (names, [b""] * len(names))}, {})

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
        """Return the writes that make messages the whole content of their blocks; messages are sorted by (code, x, position)."""
        block = messages["x"] // self.block
        # Codes are at least 0, so the first row differs from the prepended -1 and begins a block.
        new = (np.diff(messages.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0)
        at = np.flatnonzero(new)
        if not len(at):
            return WRITE_SCHEMA.empty_table()
        values = pack_heads(messages.head.copy(), messages.columns, np.diff(at, append=len(messages)))
        segment, names = block[at] // self._blocks, block_keys(keys, messages.codes[at], block[at], side)
        if self._indexed:
            index = pa.array([_index_row(name) for name in names.to_pylist()], pa.binary())
            names, values = concatenated([names, index]), concatenated([values, pa.repeat(b"", len(index))])
            segment = np.concatenate([segment, segment])
        return block_writes(segment, names, values)

    def list_writes(self, kind: bytes, number: int, waiting: ListedMessages) -> pa.Table:
        """Return the writes of lists of a kind; of the same kind and number, a batch's, others are replaced."""
        table = pa.table({"side": waiting.sides, "x": waiting.x, "key": waiting.keys})
        names, values = [], []
        for part, first in enumerate(range(0, len(table), LIST_ROWS)):
            names.append(kind + number.to_bytes(8, "big") + part.to_bytes(4, "big"))
            values.append(packed_list(table.slice(first, LIST_ROWS)))
        return list_table(names, values)

    def placed_lists(self, kind: bytes, place: Ints, number: int, waiting: ListedMessages) -> list[pa.Table]:
        """Return the writes of lists, a list for each place with entries; `lists` reads lists up to the kind and a place's `block_number`."""
        # Stable: the entries of a place stay in their order.
        order = np.argsort(place, kind="stable")
        tables = []
        for rows in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
            if len(rows):
                some = waiting.take(rows)
                tables.append(self.list_writes(kind + block_number(int(place[rows[0]])), number, some))
        return tables

    def lists(self, kind: bytes, last: bytes | None = None) -> tuple[list[bytes], ListedMessages]:
        """Return the names and entries of lists of a kind, or of all kinds up to a last one; an entry may occur more than once."""
        listed = []
        if LISTS in self._db.segments:
            listed = self._db.items(LISTS, kind, (kind if last is None else last) + b"\xff" * 12)
        empty = pa.table(
            {"side": pa.array([], pa.string()), "x": np.zeros(0, np.int64), "key": pa.array([], pa.string())}
        )
        table = pa.concat_tables([empty, *(pa.ipc.open_stream(value).read_all() for _, value in listed)])
        named = ListedMessages(combined(table["side"]), table["x"].to_numpy(), combined(table["key"]))
        return [name for name, _ in listed], named

    @staticmethod
    def list_deletes(names: Sequence[bytes]) -> pa.Table:
        """Return the writes that delete lists."""
        return list_table(list(names), [None] * len(names))

    def apply(self, writes: pa.Table, meta: dict[str, bytes], oldest: int) -> None:
        """Apply writes, ascending by segment, and metadata atomically, then drop the whole segments before a place."""
        self.commit(writes, meta, oldest // self.block // self._blocks)

    def scan(self, side: str, low: int, high: int, key: bytes | None = None) -> tuple[list[bytes], Messages]:
        """Return the messages of a side with places in [low, high], by place, and their keys, which codes point into.

        It reads the blocks that these places lie in; of all keys only if there is an index, else whole segments.
        """
        first, last = (place // self.block // self._blocks for place in (low, high))
        items = [
            item
            for segment in self._db.segments
            if first <= segment <= last
            for item in self._blocks_in(segment, side, low // self.block, high // self.block, key)
        ]
        messages = Messages(*unpack_heads(pa.array([value for _, value in items], pa.binary()), HEAD))
        rows = np.flatnonzero((messages["x"] >= low) & (messages["x"] <= high))
        rows = rows[np.lexsort((messages["position"][rows], messages["x"][rows]))]
        return [key_of(name)[0] for name, _ in items], messages.take(rows)

    def _blocks_in(self, segment: int, side: str, low: int, high: int, key: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return a side's blocks from a number to another in a segment, of a given key or all."""
        begin, end = (side.encode() + block_number(block) for block in (low, high))
        if key is not None:
            stored_items = self._db.items(segment, key + begin, key + end)
            return [(name, value) for name, value in stored_items if len(name) == len(key) + len(begin)]
        if self._indexed:
            index = self._db.items(segment, _INDEX + begin, _INDEX + end + b"\xff")
            names = [_block_of(name) for name, _ in index]
            values = self._db.get(segment, names) if names else []
            return [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
        return [item for item in self._db.items(segment) if key_of(item[0])[1] == side]


def _index_row(block_key: bytes) -> bytes:
    """Return the name of a block's row in the index."""
    return _INDEX + block_key[-_SUFFIX:] + block_key[:-_SUFFIX]


def _block_of(index_row: bytes) -> bytes:
    """Return the block's name of a row of the index."""
    suffix = len(_INDEX) + _SUFFIX
    return index_row[suffix:] + index_row[len(_INDEX) : suffix]
