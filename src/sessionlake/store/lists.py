"""Lists of a store: names of entries that are due once the frontier passes a place on the axis, or at a tick.

Lists lie in a separate segment, which never expires. Entries are bucketed by their start on the axis, so entries behind the
frontier are found without a scan. `ListedSessionStore` is the store of sessions with these lists, for changes that wait to be sent.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.store.api import OpenSegments, Segments
from sessionlake.store.blocks import BlockStore
from sessionlake.store.files import FileSegments
from sessionlake.store.segmented import WRITE_SCHEMA, SegmentedSessionStore

LISTS = (1 << 62) + 1
"""The segment of lists; others have numbers of times, which are far below."""
LIST_ROWS = 65_536
"""Rows of a list: more are parted."""
_SIGN = 1 << 63
_RESTORED = 1 << 62


def restored_list(part: int) -> int:
    """Return the number of the lists that a part of a restore makes: no other part has it, and no batch."""
    return _RESTORED + part


@dataclass(frozen=True)
class Listed:
    """The entries of a list: slices, by start and key."""

    start: Ints
    keys: pa.Array

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints) -> "Listed":
        """Return the given rows, in that order."""
        return Listed(self.start[rows], self.keys.take(pa.array(rows)))


NONE_LISTED = Listed(np.zeros(0, np.int64), pa.nulls(0, pa.string()))


def listed_together(parts: Sequence[Listed]) -> Listed:
    """Return the entries of all parts, part after part."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return some[0] if some else NONE_LISTED
    keys = pa.chunked_array([part.keys for part in some], pa.string())
    return Listed(np.concatenate([part.start for part in some]), combined(keys))


class HasLists:
    """The lists of a database; subclasses have other segments beside them."""

    _db: Segments
    bucket: int
    """Length of a list's stretch of the axis."""

    def list_writes(self, kind: str, number: int, start: Ints, keys: pa.Array) -> pa.Table:
        """Return the writes of lists of a kind (a letter) that name slices. `number` distinguishes the lists of different batches.

        Existing lists of the same kind, bucket and number are replaced.
        """
        bucket = start // self.bucket
        order = np.lexsort((start, bucket))
        bucket = bucket[order]
        # The prepended number differs from the first bucket, so the first row begins a list.
        cuts = [*np.flatnonzero(np.diff(bucket, prepend=bucket[:1] - 1)).tolist(), len(order)]
        names, values = [], []
        for low, high in itertools.pairwise(cuts):
            for part, first in enumerate(range(low, high, LIST_ROWS)):
                rows = order[first : min(high, first + LIST_ROWS)]
                table = pa.table({"start": start[rows], "key": keys.take(pa.array(rows))})
                names.append(_list_key(kind, int(bucket[low]), number, part))
                values.append(packed_list(table))
        return list_table(names, values)

    def lists(self, kind: str, low: int, high: int) -> Listed:
        """Return the entries of a kind's lists whose buckets overlap the times [low, high).

        An entry may lie outside of the times, and may occur more than once.
        """
        # `-(-high // bucket)` rounds up: the last bucket begins before `high`, which is exclusive.
        first, last = low // self.bucket, -(-high // self.bucket) - 1
        tables = [pa.ipc.open_stream(value).read_all() for _, value in self._lists(kind, first, last)]
        if not tables:
            return NONE_LISTED
        table = pa.concat_tables(tables)
        return Listed(table["start"].to_numpy(), combined(table["key"]))

    def ended_lists(self, kind: str, before: int) -> list[bytes]:
        """Return the names of the lists of a kind all of whose slices start strictly before a time."""
        return [name for name, _ in self._lists(kind, None, before // self.bucket - 1)]

    @staticmethod
    def list_deletes(names: Sequence[bytes]) -> pa.Table:
        """Return the writes that delete lists."""
        return list_table(list(names), [None] * len(names))

    def _lists(self, kind: str, first: int | None, last: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield names and bytes of lists by buckets, both inclusive."""
        if LISTS not in self._db.segments:
            return
        low = kind.encode() if first is None else _list_key(kind, first, 0, 0)
        yield from self._db.items(LISTS, low, _list_key(kind, last, _SIGN - 1, (1 << 32) - 1))


class ListedStore(HasLists, BlockStore):
    """A database of segments with lists. Subclasses define the content of the other segments."""

    def __init__(self, path: Path, bucket: int, opened: OpenSegments = FileSegments) -> None:
        super().__init__(path, opened)
        self.bucket = bucket


def _list_key(kind: str, bucket: int, number: int, part: int) -> bytes:
    return kind.encode() + (bucket + _SIGN).to_bytes(8, "big") + number.to_bytes(8, "big") + part.to_bytes(4, "big")


def list_table(names: list[bytes], values: Sequence[bytes | None]) -> pa.Table:
    """Return the writes of lists by name; None deletes a list."""
    arrays = [pa.array(np.full(len(names), LISTS)), pa.array(names, pa.binary()), pa.array(values, pa.binary())]
    return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)


def packed_list(table: pa.Table) -> bytes:
    """Return a list's entries as bytes, which `pa.ipc.open_stream` reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class ListedSessionStore(HasLists, SegmentedSessionStore):
    """Records and lists of a shard."""

    def __init__(
        self,
        path: Path,
        interval_us: int,
        bucket: int,
        opened: OpenSegments = FileSegments,
        *,
        with_until: bool = False,
    ) -> None:
        """`bucket` is the length of a list's stretch of time, microseconds."""
        super().__init__(path, interval_us, opened, with_until=with_until)
        self.bucket = bucket

    @property
    def segments(self) -> Sequence[int]:
        """The segments that have sessions."""
        return [number for number in super().segments if number != LISTS]
