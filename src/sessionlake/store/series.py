"""The store of windows and sessions by count: for each series a value with its slices that are not full yet, and lists.

A series is a key, or a key in a source partition, whose messages are numbered. Numbers only grow, so a series needs only its
newest messages, and each change reads and writes all of them. A value lies in the segment of the newest event time of its
series, and moves on with it. A series without messages for the retention is dropped with its segment, without a scan.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.store.api import OpenSegments
from sessionlake.store.blocks import items_of
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import pack_heads, unpack_heads
from sessionlake.store.lists import LISTS, ListedStore
from sessionlake.store.segmented import WRITE_SCHEMA, segment_interval
from sessionlake.store.slices import Slices

COUNTED = np.dtype(
    [
        *((name, "<i8") for name in ("start", "last", "count", "revision", "first", "newest")),
        ("length", "<u4"),
    ]
)
"""Heads of slices by count: the numbers of the first message that the slice can have and of the last that it has; messages;
the batch of the last change; the number of the series' first message; the newest event time of the series as of that batch."""
_NOWHERE = -(1 << 62)


class SeriesStore(ListedStore):
    """Series and lists of a shard. `find`, `lists` and the `writes` change nothing; `apply` comes once a batch is committed."""

    def __init__(self, path: Path, *, retention_us: int, bucket: int, opened: OpenSegments = FileSegments) -> None:
        super().__init__(path, bucket, opened)
        self._interval = segment_interval(retention_us)

    def find(self, series: pa.Array) -> tuple[Slices, Ints]:
        """Return the slices of distinct series (bytes), ascending by (index of the series, start), and each series' segment.

        Only `writes` needs the segments.
        """
        place = np.full(len(series), _NOWHERE)
        values: list[pa.Array] = []
        owners: list[Ints] = []
        for number in self._db.segments:
            if number == LISTS:
                continue
            left = np.flatnonzero(place == _NOWHERE)
            stored = self._db.find(number, series.take(pa.array(left)))
            there = left[stored.is_valid().to_numpy(zero_copy_only=False)]
            place[there] = number
            values.append(stored.drop_null())
            owners.append(there)
        if not values:
            return Slices(np.zeros(0, np.int64), np.zeros(0, COUNTED), pa.array([], pa.binary())), place
        owner = np.concatenate(owners)
        # A series has one value at most, so no two are equal.
        order = np.argsort(owner)
        at, head, state = unpack_heads(combined(pa.chunked_array(values)).take(pa.array(order)), COUNTED)
        return Slices(owner[order][at], head, state), place

    def writes(self, series: pa.Array, touched: Ints, slices: Slices, place: Ints) -> pa.Table:
        """Return the writes that make `slices`, ascending by (place, start), the whole content of the touched series.

        `place` is the second result of `find` for the series. A series without slices is deleted.
        """
        starts = np.flatnonzero(np.diff(slices.codes, prepend=-1))
        codes = slices.codes[starts]
        values = pack_heads(slices.head.copy(), slices.state, np.diff(starts, append=len(slices)))
        # Slices of a series are adjacent.
        newest = np.maximum.reduceat(slices["newest"], starts) if len(starts) else np.zeros(0, np.int64)
        segment = newest // self._interval
        # A series whose segment changes, or which has no slices any more, is deleted from its old segment.
        gone = np.ones(len(series), bool)
        gone[codes[place[codes] == segment]] = False
        removed = touched[gone[touched] & (place[touched] != _NOWHERE)]
        segments = np.concatenate([segment, place[removed]])
        # Writes go to the store by segment; stable, so each segment's stay in their order.
        order = np.argsort(segments, kind="stable")
        index = pa.array(order)
        arrays = [
            pa.array(segments[order]),
            series.take(pa.array(np.concatenate([codes, removed]))).take(index),
            pa.concat_arrays([values, pa.nulls(len(removed), pa.binary())]).take(index),
        ]
        return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)

    def apply(self, writes: pa.Table, meta: dict[str, bytes], oldest_us: int) -> None:
        """Apply writes and metadata atomically, then drop series without an event since a time, by whole segments."""
        self.commit(writes, meta, oldest_us // self._interval)

    def scan(self, key: bytes | None = None) -> tuple[list[bytes], Slices]:
        """Return every stored series, as a list that codes point into, and the slices: of all keys or a given key.

        Of all it reads the whole store: for inspection, and for queries without a key.
        """
        items = [item for n in self._db.segments if n != LISTS for item in items_of(self._db, n, key, 8)]
        values = pa.array([value for _, value in items], pa.binary())
        return [key for key, _ in items], Slices(*unpack_heads(values, COUNTED))
