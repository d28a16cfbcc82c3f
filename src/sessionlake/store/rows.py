"""The store of a keyed table: of each key its row, or the marker of its deletion.

Rows lie in a segment of their own, which never expires: a table keeps what nobody deletes. A marker lies in the segment of its
time, so that those nothing can meet any more go by whole segments, without a scan. A key has a row, a marker or nothing.

A value is a head (HEAD), as many bytes of an event's id as the head says, and then the packed columns; a marker has none of
these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, binary_array, byte_slices, offsets_of
from sessionlake.store.blocks import BlockStore
from sessionlake.store.layout import Heads
from sessionlake.store.segmented import WRITE_SCHEMA, segment_interval

ROWS = (1 << 62) + 2
"""The segment of rows; those of markers have numbers of times, which are far below."""
HEAD = np.dtype([("time", "<i8"), ("offset", "<i8"), ("partition", "<i4"), ("revision", "<i8"), ("id", "<u4")])
"""The event's time, offset and source partition; the batch that wrote the value; the length of the event's id."""


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

    def ids(self, at: Ints) -> pa.Array:
        """Return the ids, text, of what stands at some places; empty for none."""
        return self._parts(at, ids=True).cast(pa.string())

    def packed(self, at: Ints) -> pa.Array:
        """Return the packed columns of what stands at some places; empty of markers."""
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
    """What is to be written for some keys, by their codes."""

    codes: Ints
    head: Heads
    ids: pa.Array
    """Text, no nulls."""
    packed: pa.Array


class RowStore(BlockStore):
    """Rows and markers of one shard. `rows`, `markers` and `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(self, path: Path, *, retention_us: int) -> None:
        super().__init__(path)
        self._interval = segment_interval(retention_us)

    def rows(self, keys: pa.Array) -> Stored:
        """Return the rows of distinct keys, bytes, ascending."""
        codes = np.arange(len(keys))
        return self._found(ROWS, keys, codes) if ROWS in self._db.segments else stored_of(codes[:0], [])

    def markers(self, keys: pa.Array, codes: Ints) -> Stored:
        """Return the markers of those of the keys that codes, ascending, name: of keys without a row."""
        found = [self._found(number, keys, codes) for number in self._db.segments if number != ROWS]
        found = [part for part in found if len(part)]
        if not found:
            return stored_of(codes[:0], [])
        codes = np.concatenate([part.codes for part in found])
        order = np.argsort(codes)
        head = np.concatenate([part.head for part in found])[order]
        return Stored(codes[order], head, pa.concat_arrays([part.values for part in found]).take(pa.array(order)))

    def _found(self, segment: int, keys: pa.Array, codes: Ints) -> Stored:
        asked = keys if len(codes) == len(keys) else keys.take(pa.array(codes))
        return stored_of(codes, self._db.get(segment, asked.to_pylist()) if len(asked) else [])

    def writes(self, keys: pa.Array, rows: Values, gone: Ints, markers: Values, freed: Stored) -> pa.Table:
        """Return the writes that put rows, remove those of the codes `gone`, put markers, and remove `freed` ones."""
        put, free = markers.head["time"].astype(np.int64) // self._interval, freed["time"] // self._interval
        # A marker that another one takes the place of, in the same segment, is written once.
        place = np.full(len(keys), ROWS)
        place[markers.codes] = put
        left = place[freed.codes] != free
        segments = [np.full(len(rows.codes) + len(gone), ROWS), put, free[left]]
        codes = np.concatenate([rows.codes, gone, markers.codes, freed.codes[left]])
        nothing = [pa.nulls(n, pa.binary()) for n in (len(gone), int(left.sum()))]
        values = pa.concat_arrays([_value(rows), nothing[0], _value(markers), nothing[1]])
        segment = np.concatenate(segments)
        order = np.lexsort((codes, segment))
        index = pa.array(order)
        return pa.Table.from_arrays(
            [pa.array(segment[order]), keys.take(pa.array(codes[order])), values.take(index)], schema=WRITE_SCHEMA
        )

    def apply(self, writes: pa.Table, meta: dict[str, bytes], horizon_us: int) -> None:
        """Apply writes and metadata atomically, then drop markers of before a time, by whole segments."""
        self.commit(writes, meta, horizon_us // self._interval)

    def scan(self) -> tuple[list[bytes], Stored, list[bytes], Stored]:
        """Return all keys that have rows and these, then all that have markers and these; for inspection."""
        items = {number: self._db.items(number) for number in self._db.segments}
        rows = items.pop(ROWS, [])
        return *_listed(rows), *_listed(sorted(item for some in items.values() for item in some))


def _listed(items: list[tuple[bytes, bytes]]) -> tuple[list[bytes], Stored]:
    return [key for key, _ in items], stored_of(np.arange(len(items)), [value for _, value in items])


def stored_of(codes: Ints, values: Sequence[bytes | None]) -> Stored:
    """Return what was found for codes, None for what was not."""
    array = pa.array(values, pa.binary())
    if array.null_count:
        codes, array = codes[array.is_valid().to_numpy(zero_copy_only=False)], array.drop_null()
    offsets, data = offsets_of(array)
    heads = byte_slices(data, offsets[:-1], np.full(len(codes), HEAD.itemsize))
    return Stored(codes, offsets_of(heads)[1].view(HEAD), array)


def _value(values: Values) -> pa.Array:
    head = binary_array(values.head, np.arange(len(values.head) + 1) * HEAD.itemsize)
    return pa.compute.binary_join_element_wise(head, values.ids.cast(pa.binary()), values.packed, b"")
