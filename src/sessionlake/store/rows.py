"""The store of a keyed table: each key's row, or the marker of its deletion.

A key has a row, a marker or nothing. Without a TTL, rows lie in a separate segment, which never expires. With a TTL that counts
from the last write, rows lie in segments by the time of writing, which are dropped as a whole (`hidden_us`). A marker lies in the
segment of its time. Markers that no event can meet any more are dropped as whole segments, without a scan.
The store may also have an index of the rows: entries without values, a number in eight bytes that sort as it does, then the key.

A value is a head (HEAD), an event's id with the length that the head says, and the packed columns. A marker has no id and no
columns.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, binary_array, byte_slices, offsets_of
from sessionlake.store.api import Bytes, OpenSegments, as_array
from sessionlake.store.blocks import BlockStore
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import Heads
from sessionlake.store.segmented import WRITE_SCHEMA, segment_interval

ROWS, EXPIRY, RECENCY = (1 << 62) + 2, (1 << 62) + 3, (1 << 62) + 4
"""The segments of rows, and of indexes of them, by their expiry and by their last change; those of markers have numbers of
times, which are far below."""
_WRITTEN, _MARKERS_END = 1 << 61, 1 << 60
"""The first number of row segments by the time of writing. Numbers below it are segments of markers."""
_SIGN = 1 << 63
_FIRST = b"\0"
"""The key in an index whose value no entry is less than; all entries are greater."""
_COUNT = "entries"
"""The metadata that have the number of an index' entries."""
HEAD = np.dtype(
    [
        *((name, "<i8") for name in ("time", "offset", "revision", "written", "inserted")),
        ("partition", "<i4"),
        ("id", "<u4"),
    ]
)
"""The event's time and offset; the batch that wrote the value, and its clock; the clock of the batch that gave the key a row, if
it had none (0 of markers); the event's source partition; the length of its id."""

_ONE_HEAD = Struct("<5qiI")


class StoredRow(NamedTuple):
    """A row; the names are HEAD's."""

    time: int
    offset: int
    revision: int
    written: int
    partition: int
    id: bytes
    """The event's id; empty if there is none."""
    packed: bytes
    """The columns."""


@dataclass(frozen=True)
class Stored:
    """Rows or markers in columns; `codes` say which of some keys each belongs to, ascending, and values stay packed."""

    codes: Ints
    head: Heads
    values: pa.Array

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, name: str) -> Ints:
        return self.head[name].astype(np.int64, copy=False)

    def where(self, which: Bools) -> "Stored":
        """Return the rows for which a mask is true."""
        return Stored(self.codes[which], self.head[which], self.values.filter(pa.array(which)))

    def ids(self, at: Ints) -> pa.Array:
        """Return the ids, as text, of the rows at the given indices; empty if a row has no id."""
        return self._parts(at, ids=True).cast(pa.string())

    def packed(self, at: Ints) -> pa.Array:
        """Return the packed columns of the rows at the given indices; empty for markers."""
        return self._parts(at, ids=False)

    def _parts(self, at: Ints, *, ids: bool) -> pa.Array:
        offsets, data = offsets_of(self.values.take(pa.array(at)))
        lengths = self["id"][at]
        first = offsets[:-1] + HEAD.itemsize
        if ids:
            return byte_slices(data, first, lengths)
        return byte_slices(data, first + lengths, offsets[1:] - first - lengths)


@dataclass(frozen=True)
class Values:
    """The writes for some keys, by their codes."""

    codes: Ints
    head: Heads
    ids: pa.Array
    """Text, no nulls."""
    packed: pa.Array


def has_rows(segment: int) -> bool:
    """Say whether a segment holds rows, and not markers or an index."""
    return _WRITTEN <= segment <= ROWS


class RowStore(BlockStore):
    """Rows and markers of a shard. `rows`, `markers` and `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(
        self,
        path: Path,
        *,
        retention_us: int,
        row_interval_us: int | None = None,
        opened: OpenSegments = FileSegments,
    ) -> None:
        """`row_interval_us` is the time for which a segment of rows is written; None for a segment that never expires."""
        super().__init__(path, opened)
        self._interval, self._row_interval = segment_interval(retention_us), row_interval_us

    def rows(self, keys: pa.Array) -> Stored:
        """Return the rows of distinct keys, bytes, ascending; also hidden rows, while they exist."""
        return self._looked_up(self._row_segments(), keys, np.arange(len(keys)))

    def markers(self, keys: pa.Array, codes: Ints) -> Stored:
        """Return the markers of the keys that `codes`, ascending, name. Only keys without a row have a marker."""
        return self._looked_up([number for number in self._db.segments if number < _MARKERS_END], keys, codes)

    def _row_segments(self) -> list[int]:
        return [number for number in self._db.segments if has_rows(number)]

    def _row_segment(self, written_us: Ints) -> Ints:
        """Return the segments that rows written at some times lie in."""
        if self._row_interval is None:
            return np.full(len(written_us), ROWS)
        return _WRITTEN + written_us // self._row_interval

    def _looked_up(self, segments: list[int], keys: pa.Array, codes: Ints) -> Stored:
        parts = [self._stored(number, keys, codes) for number in segments]
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return stored_of(codes[:0], [])
        codes = np.concatenate([part.codes for part in parts])
        # A key is found once at most, so no two codes are equal.
        order = np.argsort(codes)
        head = np.concatenate([part.head for part in parts])[order]
        return Stored(codes[order], head, pa.concat_arrays([part.values for part in parts]).take(pa.array(order)))

    def _stored(self, segment: int, keys: pa.Array, codes: Ints) -> Stored:
        asked = keys if len(codes) == len(keys) else keys.take(pa.array(codes))
        return stored_of(codes, self._db.find(segment, asked))

    def writes(self, keys: pa.Array, rows: Values, replaced: Stored, markers: Values, freed: Stored) -> pa.Table:
        """Return the writes to put rows, remove other rows of the store, put markers, and remove `freed` markers.

        `replaced` are the store's removed rows, and the rows of keys that get new rows.
        """
        row_put = self._row_segment(rows.head["written"].astype(np.int64))
        row_was = self._row_segment(replaced["written"])
        row_place = np.full(len(keys), -1)
        row_place[rows.codes] = row_put
        gone = row_place[replaced.codes] != row_was
        put, free = markers.head["time"].astype(np.int64) // self._interval, freed["time"] // self._interval
        # A marker that is replaced by another in the same segment is written once.
        place = np.full(len(keys), ROWS)
        place[markers.codes] = put
        left = place[freed.codes] != free
        segments = [row_put, row_was[gone], put, free[left]]
        codes = np.concatenate([rows.codes, replaced.codes[gone], markers.codes, freed.codes[left]])
        nothing = [pa.nulls(int(some.sum()), pa.binary()) for some in (gone, left)]
        values = pa.concat_arrays([_value(rows), nothing[0], _value(markers), nothing[1]])
        segment = np.concatenate(segments)
        order = np.lexsort((codes, segment))
        index = pa.array(order)
        return pa.Table.from_arrays(
            [pa.array(segment[order]), keys.take(pa.array(codes[order])), values.take(index)], schema=WRITE_SCHEMA
        )

    def apply(self, writes: pa.Table, meta: dict[str, bytes], horizon_us: int, hidden_us: int) -> None:
        """Apply writes and metadata atomically, then drop markers of before a time and hidden rows, by whole segments."""
        self.commit(writes, {**meta, **self._counted(writes)}, horizon_us // self._interval)
        self._db.drop(self.hidden_segments(hidden_us))

    def hidden_segments(self, hidden_us: int) -> list[int]:
        """Return the segments whose rows are all hidden: rows written at the given time or before."""
        if self._row_interval is None:
            return []
        first_kept = _WRITTEN + (hidden_us + 1) // self._row_interval
        return [number for number in self._row_segments() if number < first_kept]

    def page(
        self, after: bytes | None = None, limit: int | None = None, high: bytes | None = None
    ) -> tuple[pa.Array, Stored]:
        """Return the first `limit` keys with rows strictly after a key, up to `high`, inclusive, ascending, and the rows."""
        low = None if after is None else after + b"\0"
        if ROWS not in self._db.segments:
            return pa.array([], pa.binary()), stored_of(np.zeros(0, np.int64), [])
        keys, values = self._db.page(ROWS, low, high, limit)
        return keys, stored_of(np.arange(len(keys)), values)

    def entries(
        self, index: int, high: bytes | None = None, limit: int | None = None, after: bytes | None = None
    ) -> pa.Array:
        """Return the first `limit` entries of an index strictly after an entry, bytes, ascending; `high` is inclusive."""
        if index not in self._db.segments:
            return pa.array([], pa.binary())
        low = after + b"\0" if after is not None else self._first(index) or _FIRST + b"\0"
        return self._db.page(index, low, high, limit)[0]

    def entry_count(self, index: int) -> int:
        """Return how many entries an index has whose writes put none that is there, and remove none that is not."""
        known = self._db.meta(f"{_COUNT}{index}")
        return len(self.entries(index)) if known is None else int(known)

    def _counted(self, writes: pa.Table) -> dict[str, bytes]:
        of_entries = pc.and_(pc.equal(writes["segment"], RECENCY), pc.not_equal(writes["key"], _FIRST))
        values = writes["value"].filter(of_entries)
        if not len(values):
            return {}
        return {f"{_COUNT}{RECENCY}": str(self.entry_count(RECENCY) + len(values) - 2 * values.null_count).encode()}

    def index_writes(self, index: int, added: pa.Array, removed: pa.Array, first: bytes | None) -> pa.Table:
        """Return the writes to put entries into an index and remove others: distinct entries, ascending by their first number.

        `first` is the first entry that was read, or None. Later reads begin there.
        """
        # Entries are removed at the start of an index. RocksDB keeps deletion marks of them, over which each scan from the start
        # would have to step again.
        entries = pa.concat_arrays([added, removed])
        is_removed = np.arange(len(entries)) >= len(added)
        numbers = parted(entries, 1)[0][0]
        # Writes ascend by their first number, as the index does; for one number removals follow additions.
        order = np.argsort(numbers, kind="stable")
        nothing = binary_array(np.zeros(0, np.uint8), np.zeros(len(entries) + 1, np.int64))
        values = pc.if_else(pa.array(is_removed[order]), pa.scalar(None, pa.binary()), nothing)
        names = entries.take(pa.array(order))
        known = self._first(index)
        begins = known if first is None else first
        if begins is not None and len(added):
            begins = min(begins, sorted_numbers(numbers[: len(added)].min(keepdims=True))[0].as_py())
        if begins != known:
            names, values = (
                pa.concat_arrays([pa.array([one], pa.binary()), of]) for one, of in ((_FIRST, names), (begins, values))
            )
        segment = pa.repeat(pa.scalar(index, pa.int64()), len(names))
        return pa.Table.from_arrays([segment, names, values], schema=WRITE_SCHEMA)

    def _first(self, index: int) -> bytes | None:
        """Return a lower bound of an index's entries; None if no bound is known."""
        return self._db.get(index, [_FIRST])[0] if index in self._db.segments else None

    def scan(self) -> tuple[list[bytes], Stored, list[bytes], Stored]:
        """Return all keys that have rows and these, then all that have markers and these; for inspection."""
        rows, markers = (
            sorted(item for number in segments for item in self._db.items(number))
            for segments in (self._row_segments(), [n for n in self._db.segments if n < _MARKERS_END])
        )
        return *_listed(rows), *_listed(markers)


def sorted_numbers(*columns: Ints) -> pa.Array:
    """Return each row's numbers as bytes that sort as they do, the first number first."""
    data = np.empty((len(columns[0]), len(columns)), ">u8")
    for i, column in enumerate(columns):
        data[:, i] = column.astype(np.uint64) ^ np.uint64(_SIGN)
    return binary_array(data, np.arange(len(data) + 1) * data.dtype.itemsize * len(columns))


def parted(entries: pa.Array, numbers: int) -> tuple[list[Ints], pa.Array]:
    """Return the numbers that entries of an index begin with, the given number for each entry, and the entries' keys as bytes."""
    offsets, data = offsets_of(entries)
    lengths = np.full(len(entries), 8 * numbers)
    begun = offsets_of(byte_slices(data, offsets[:-1], lengths))[1].view(">u8").reshape(-1, numbers).astype(np.uint64)
    found = (begun ^ np.uint64(_SIGN)).astype(np.int64)
    first = offsets[:-1] + lengths
    return [found[:, i] for i in range(numbers)], byte_slices(data, first, offsets[1:] - first)


def _listed(items: list[tuple[bytes, bytes]]) -> tuple[list[bytes], Stored]:
    return [key for key, _ in items], stored_of(np.arange(len(items)), [value for _, value in items])


def row_of(value: bytes) -> StoredRow:
    """Return a value's content in the segment of rows; `stored_of` does so for many."""
    time, offset, revision, written, _, partition, length = _ONE_HEAD.unpack_from(value)
    end = _ONE_HEAD.size + length
    return StoredRow(time, offset, revision, written, partition, value[_ONE_HEAD.size : end], value[end:])


def stored_of(codes: Ints, values: Bytes) -> Stored:
    """Return the value found for each code, null if there is none."""
    array = as_array(values)
    if array.null_count:
        codes, array = codes[array.is_valid().to_numpy(zero_copy_only=False)], array.drop_null()
    offsets, data = offsets_of(array)
    heads = byte_slices(data, offsets[:-1], np.full(len(codes), HEAD.itemsize))
    return Stored(codes, offsets_of(heads)[1].view(HEAD), array)


def _value(values: Values) -> pa.Array:
    head = binary_array(values.head, np.arange(len(values.head) + 1) * HEAD.itemsize)
    return pc.binary_join_element_wise(head, values.ids.cast(pa.binary()), values.packed, b"")
