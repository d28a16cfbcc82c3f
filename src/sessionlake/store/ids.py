"""The identities of events that a shard has taken, in the database of the operator's store (docs/rules.md, rules 220 to 223).

Identities lie in segments of time that the operator does not see. An entry has those of one minute of event time and one bucket of
hashes, 12 bytes each: so a hot key costs as any other, and a look-up reads few entries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.columnar.arrays import (
    Bools,
    Ints,
    argsort,
    binary_array,
    bounds_of,
    combined,
    concatenated,
    distinct,
    offsets_of,
)
from sessionlake.store.api import IDS_FROM, Segments, SegmentWrites, as_array
from sessionlake.store.segmented import WRITE_SCHEMA

MINUTE_US = 60_000_000
_FIRST = IDS_FROM + (1 << 40)
"""The segment of the times from 1970 on; earlier times are in segments before it."""
_ENTRY = np.dtype([("at", "<u4"), ("hash", "<u8")])
"""An identity in its entry: microseconds after the minute, and the hash of input, key and id."""
_KEY = np.dtype([("minute", ">u8"), ("bucket", "u1")])
_MINUTES = 1 << 40
"""Added to minutes, so that minutes before 1970 are no negative numbers."""
_MOST_PLACES = (1 << 62) // MINUTE_US
"""Places of entries below it fit 63 bits with the time in a minute; of events that lie a thousand years apart they don't."""
_BUCKETS, _BUCKET_BITS = 1 << 8, np.uint64(56)
"""The number of a minute's buckets; a hash's first bits number its bucket."""


class HiddenIds:
    """A shard's database as its operator sees it: without the segments of identities. See `Segments` for the methods.

    `also` are writes of identities that go with the operator's next write, atomically.
    """

    def __init__(self, database: Segments) -> None:
        self.database = database
        self.also: SegmentWrites = {}

    @property
    def segments(self) -> list[int]:
        """Numbers of the operator's segments, ascending."""
        return [number for number in self.database.segments if number < IDS_FROM]

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self.database.meta(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment."""
        return self.database.get(segment, keys)

    def find(self, segment: int, keys: pa.Array) -> pa.Array:
        """Return the values of distinct keys in a live segment, as an array."""
        return self.database.find(segment, keys)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment."""
        return self.database.items(segment, low, high, limit)

    def page(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> tuple[pa.Array, pa.Array]:
        """Return keys and values of a live segment, as arrays."""
        return self.database.page(segment, low, high, limit)

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Write values, also of waiting identities, and metadata."""
        self.database.write({**writes, **self.also}, meta)
        self.also = {}

    def drop_before(self, segment: int) -> None:
        """Drop the operator's segments numbered below `segment`."""
        self.drop(number for number in self.segments if number < segment)

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments."""
        self.database.drop([*segments])

    def clear(self) -> None:
        """Remove everything, identities too."""
        self.also = {}
        self.database.clear()

    def close(self) -> None:
        """Release the database."""
        self.database.close()


@dataclass(frozen=True)
class Ids:
    """The identities in a database; segments are `length_us` long, a whole number of minutes."""

    database: Segments
    length_us: int

    def known(self, time_us: Ints, hashes: Ints) -> tuple[Bools, pa.Table]:
        """Say which of some distinct identities are stored, and return the writes (WRITE_SCHEMA) that add the others."""
        minute, hashed = time_us // MINUTE_US, hashes.view(np.uint64)
        first_minute = int(minute.min(initial=0))
        place = (minute - first_minute) * _BUCKETS + (hashed >> _BUCKET_BITS).astype(np.int64)
        places = distinct(place)
        minute_of, bucket = places // _BUCKETS + first_minute, places % _BUCKETS
        segment, keys = _FIRST + minute_of * MINUTE_US // self.length_us, _keys(minute_of, bucket)
        if int(place.max(initial=0)) >= _MOST_PLACES:
            # Such a place times MINUTE_US might exceed int64: its rank, in the same order, stands for it.
            places, place = np.arange(len(places)), np.searchsorted(places, place)
        stored, owner = self._stored(segment, keys)
        # Place and time within the minute of an entry as a number. The order is stable: of equal entries the stored one comes first.
        value = np.concatenate(
            [places[owner] * MINUTE_US + stored["at"], place * MINUTE_US + (time_us - minute * MINUTE_US)]
        )
        hashed = np.concatenate([stored["hash"], hashed])
        order = _ordered(value, hashed)
        value, hashed = value[order], hashed[order]
        equal = np.zeros(len(order), bool)
        equal[1:] = (value[1:] == value[:-1]) & (hashed[1:] == hashed[:-1])
        known = np.zeros(len(time_us), bool)
        known[order[equal] - len(stored)] = True
        is_new = (order >= len(stored))[~equal]
        return known, _writes(segment, keys, places, value[~equal], hashed[~equal], is_new)

    def _stored(self, segment: Ints, keys: list[bytes]) -> tuple[npt.NDArray[np.void], Ints]:
        """Return the identities in some entries, each with the place of its entry; segments are ascending."""
        if not keys:
            return np.empty(0, _ENTRY), np.zeros(0, np.int64)
        live = set(self.database.segments)
        numbers, starts = np.unique(segment, return_index=True)
        values: list[pa.Array] = []
        for number, first, last in zip(numbers.tolist(), starts, [*starts[1:], len(keys)], strict=True):
            asked = as_array(keys[first:last])
            values.append(self.database.find(number, asked) if number in live else pa.nulls(len(asked), pa.binary()))
        ends, data = offsets_of(concatenated(values))  # of a null there are no bytes
        sizes = np.diff(ends) // _ENTRY.itemsize
        return np.frombuffer(data[ends[0] : ends[-1]], _ENTRY), np.repeat(np.arange(len(sizes)), sizes)

    def drop_before(self, time_us: int) -> None:
        """Drop the segments whose times lie all before a time."""
        first = _FIRST + time_us // self.length_us
        old = [number for number in self.database.segments if IDS_FROM <= number < first]
        if old:
            self.database.drop(old)


def _ordered(first: Ints, second: npt.NDArray[np.uint64]) -> Ints:
    """Return the order by two columns; equal rows keep their order. Few rows share a value of the first column."""
    # First by the first column; ties are ordered by the second column below.
    order = argsort(first, int(first.max(initial=0)) + 1)
    values = first[order]
    tied = np.zeros(len(order), bool)
    tied[1:] = values[1:] == values[:-1]
    tied[:-1] |= tied[1:]
    if tied.any():
        some = order[tied]
        order[tied] = some[np.lexsort((second[some], first[some]))]
    return order


def _keys(minute: Ints, bucket: Ints) -> list[bytes]:
    keys = np.empty(len(minute), _KEY)
    keys["minute"], keys["bucket"] = minute + _MINUTES, bucket
    data, size = keys.tobytes(), _KEY.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


def _writes(
    segment: Ints, keys: list[bytes], places: Ints, value: Ints, hashed: npt.NDArray[np.uint64], is_new: Bools
) -> pa.Table:
    """Return the writes of the entries that have new identities; identities are in the order of the entries' places."""
    place = value // MINUTE_US
    starts = np.flatnonzero(np.diff(place, prepend=place[:1] - 1))
    # An entry's identities are adjacent: it is written if one of them is new.
    is_written = np.logical_or.reduceat(is_new, starts) if len(starts) else np.zeros(0, bool)
    sizes = np.diff(starts, append=len(place))
    rows = np.repeat(is_written, sizes)
    entries = np.empty(int(sizes[is_written].sum()), _ENTRY)
    entries["at"], entries["hash"] = (value - place * MINUTE_US)[rows], hashed[rows]
    offsets = bounds_of(sizes[is_written]).astype(np.int64) * _ENTRY.itemsize
    # `places` ascend, and have each entry's place.
    written = np.searchsorted(places, place[starts[is_written]])
    values = binary_array(entries.view(np.uint8) if len(entries) else b"", offsets)
    arrays = [pa.array(segment[written]), pa.array([keys[at] for at in written.tolist()], pa.binary()), values]
    return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)


def is_of_ids(writes: pa.Table) -> Bools:
    """Say which writes (WRITE_SCHEMA) are of identities."""
    of_ids: Bools = combined(writes["segment"]).to_numpy() >= IDS_FROM
    return of_ids


def segment_writes(writes: pa.Table) -> SegmentWrites:
    """Return writes (WRITE_SCHEMA), ordered by segment, as `Segments.write` takes them."""
    numbers, starts = np.unique(combined(writes["segment"]).to_numpy(), return_index=True)
    ends = [*starts[1:], writes.num_rows] if len(starts) else []
    return {
        number: (
            combined(writes["key"].slice(first, last - first)),
            combined(writes["value"].slice(first, last - first)),
        )
        for number, first, last in zip(numbers.tolist(), starts.tolist(), ends, strict=True)
    }
