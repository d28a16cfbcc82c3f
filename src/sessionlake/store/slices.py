"""The store of windows: slices of keys, packed in blocks, in segments of their start; and lists of what is to be sent.

A slice is the longest stretch of time that no window's bound cuts; windows are merges of consecutive slices, and none is
stored. Slices of a key lie in blocks of equal length, one value each, so that a change rewrites few of them whatever the
retention is; a block lies in one segment, and what is older than the horizon goes by whole segments, without a scan.

Lists name slices (start and key) whose windows have something to send. They lie in a segment of their own, which never
expires, by the stretch of time (bucket) that the slices lie in, so that what the frontier passes is found without a scan.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, binary_array, combined, concatenated, taken
from sessionlake.store.layout import Heads, pack_heads, unpack_heads
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.segmented import WRITE_SCHEMA, segment_interval

_FIELDS = [("start", "<i8"), ("count", "<i8"), ("revision", "<i8"), ("reach", "<i8")]
GRID = np.dtype([*_FIELDS, ("length", "<u4")])
"""Heads of slices of windows on a grid: start; events; the batch of the last change; the frontier before that batch."""
SLIDING = np.dtype([*_FIELDS, ("born", "<i8"), ("born_reach", "<i8"), ("length", "<u4")])
"""Heads of slices of sliding windows, which also tell the batch that made the slice, and the frontier before that one."""
_LISTS = (1 << 62) + 1
"""The segment of lists; those of slices have numbers of times, which are far below."""
_LIST_ROWS = 65_536
_SIGN = 1 << 63


@dataclass(frozen=True)
class Slices:
    """Slices in columns; `codes` say which of some keys each belongs to, and states stay packed."""

    codes: Ints
    head: Heads
    state: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, field: str) -> Ints:
        return self.head[field].astype(np.int64, copy=False)

    def take(self, rows: Ints) -> "Slices":
        """Return the given rows, in that order."""
        return Slices(self.codes[rows], self.head[rows], self.state.take(pa.array(rows)))


@dataclass(frozen=True)
class Blocks:
    """Blocks by their numbers; `codes` say which of some keys each belongs to."""

    codes: Ints
    number: Ints


@dataclass(frozen=True)
class Listed:
    """What a list names: slices by start and key."""

    start: Ints
    keys: pa.Array

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints) -> "Listed":
        """Return the given rows, in that order."""
        return Listed(self.start[rows], self.keys.take(pa.array(rows)))


NONE_LISTED = Listed(np.zeros(0, np.int64), pa.array([], pa.string()))


class SliceStore:
    """Slices and lists of one shard. `find`, `lists` and the `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(
        self, path: Path, *, block_us: int, bucket_us: int, retention_us: int, head: "np.dtype[np.void]"
    ) -> None:
        self._db = RocksSegments(path)
        self.block_us, self.bucket_us, self._head = block_us, bucket_us, head
        self._blocks = -(-segment_interval(retention_us) // block_us)
        """Blocks of a segment: at least KIP-94's interval."""

    def find(self, keys: pa.Array, codes: Ints, blocks: Ints) -> Slices:
        """Return the slices of pairs of a key's code and a block's number, which are distinct and ascending, in that order.

        Within a pair slices are ascending by start.
        """
        values: list[pa.Array] = []
        rows: list[Ints] = []
        segment = blocks // self._blocks
        for number in self._db.segments:
            at = np.flatnonzero(segment == number)
            if len(at):
                asked = _block_keys(keys, codes[at], blocks[at]).to_pylist()
                values.append(pa.array(self._db.get(number, asked), pa.binary()))
                rows.append(at)
        if not rows:
            return Slices(np.zeros(0, np.int64), np.zeros(0, self._head), pa.array([], pa.binary()))
        at = np.concatenate(rows)
        order = np.argsort(at)
        owner, head, state = unpack_heads(combined(pa.chunked_array(values)).take(pa.array(order)), self._head)
        return Slices(codes[at[order]][owner], head, state)

    def writes(self, keys: pa.Array, slices: Slices, emptied: Blocks | None = None) -> pa.Table:
        """Return the writes that make `slices` the whole content of their blocks, and remove blocks that hold none.

        Slices are ascending by (code, start).
        """
        start = slices["start"]
        block = start // self.block_us
        at = np.flatnonzero((np.diff(slices.codes, prepend=-1) != 0) | (np.diff(block, prepend=0) != 0))
        values = pack_heads(slices.head.copy(), slices.state, np.diff(at, append=len(slices)))
        codes, block = slices.codes[at], block[at]
        if emptied is not None:
            codes, block = np.concatenate([codes, emptied.codes]), np.concatenate([block, emptied.number])
            values = concatenated([values, pa.nulls(len(emptied.codes), values.type)])
        segment = block // self._blocks
        order = np.argsort(segment, kind="stable")
        index = pa.array(order)
        arrays = [pa.array(segment[order]), _block_keys(keys, codes, block).take(index), taken(values, index)]
        return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)

    def list_writes(self, kind: str, number: int, start: Ints, keys: pa.Array) -> pa.Table:
        """Return the writes of lists of a kind, a letter, that name slices; `number` tells a batch's lists from others'.

        Lists of another batch with the same number are replaced.
        """
        bucket = start // self.bucket_us
        order = np.lexsort((start, bucket))
        bucket = bucket[order]
        cuts = [*np.flatnonzero(np.diff(bucket, prepend=bucket[:1] - 1)).tolist(), len(order)]
        names, values = [], []
        for low, high in itertools.pairwise(cuts):
            for part, first in enumerate(range(low, high, _LIST_ROWS)):
                rows = order[first : min(high, first + _LIST_ROWS)]
                table = pa.table({"start": start[rows], "key": keys.take(pa.array(rows))})
                names.append(_list_key(kind, int(bucket[low]), number, part))
                values.append(_ipc(table))
        return _list_table(names, values)

    def lists(self, kind: str, low: int, high: int) -> Listed:
        """Return what the lists of a kind name whose buckets overlap the times [low, high).

        What is named may lie outside of the times, and more than once.
        """
        first, last = low // self.bucket_us, -(-high // self.bucket_us) - 1
        tables = [pa.ipc.open_stream(value).read_all() for _, value in self._lists(kind, first, last)]
        if not tables:
            return NONE_LISTED
        table = pa.concat_tables(tables)
        return Listed(table["start"].to_numpy(), combined(table["key"]))

    def ended_lists(self, kind: str, before: int) -> list[bytes]:
        """Return the names of the lists of a kind all of whose slices start strictly before a time."""
        return [name for name, _ in self._lists(kind, None, before // self.bucket_us - 1)]

    @staticmethod
    def list_deletes(names: Sequence[bytes]) -> pa.Table:
        """Return the writes that delete lists."""
        return _list_table(list(names), [None] * len(names))

    def apply(self, writes: pa.Table, meta: dict[str, bytes], oldest_start_us: int) -> None:
        """Apply writes, ascending by segment, and metadata atomically, then drop what starts before a time by whole segments.

        Writes to segments that would be dropped at once are left out.
        """
        oldest = oldest_start_us // self.block_us // self._blocks
        numbers, starts = np.unique(writes["segment"].to_numpy(), return_index=True)
        batch = {}
        ends = np.append(starts, len(writes))[1:]
        for number, low, high in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if number >= oldest:
                part = writes.slice(low, high - low)
                batch[number] = (part["key"].to_pylist(), part["value"].to_pylist())
        self._db.write(batch, meta)
        self._db.drop_before(oldest)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._db.meta(name)

    def scan(self) -> tuple[list[bytes], Slices]:
        """Return the key of every stored slice, as a list that codes point into, and the slices; for inspection."""
        keys: list[bytes] = []
        values: list[bytes] = []
        for segment in self._db.segments:
            if segment != _LISTS:
                for key, value in self._db.items(segment):
                    keys.append(key[:-8])
                    values.append(value)
        return keys, Slices(*unpack_heads(pa.array(values, pa.binary()), self._head))

    def clear(self) -> None:
        """Remove everything."""
        self._db.clear()

    def close(self) -> None:
        """Flush and release the database."""
        self._db.close()

    def _lists(self, kind: str, first: int | None, last: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield names and bytes of lists by buckets, both inclusive."""
        if _LISTS not in self._db.segments:
            return
        low = kind.encode() if first is None else _list_key(kind, first, 0, 0)
        yield from self._db.items(_LISTS, low, _list_key(kind, last, _SIGN - 1, (1 << 32) - 1))


def _block_keys(keys: pa.Array, codes: Ints, blocks: Ints) -> pa.Array:
    """Return the database's keys: a key's bytes, then the block's number in 8 bytes that sort as the number does."""
    numbers = (blocks.astype(np.uint64) ^ np.uint64(_SIGN)).astype(">u8")
    suffix = binary_array(numbers, np.arange(len(blocks) + 1) * 8)
    return pa.compute.binary_join_element_wise(keys.take(pa.array(codes)).cast(pa.binary()), suffix, b"")


def _list_key(kind: str, bucket: int, number: int, part: int) -> bytes:
    return kind.encode() + (bucket + _SIGN).to_bytes(8, "big") + number.to_bytes(8, "big") + part.to_bytes(4, "big")


def _list_table(names: list[bytes], values: Sequence[bytes | None]) -> pa.Table:
    arrays = [pa.array(np.full(len(names), _LISTS)), pa.array(names, pa.binary()), pa.array(values, pa.binary())]
    return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
