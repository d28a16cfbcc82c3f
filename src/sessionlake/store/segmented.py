"""KIP-94's session store: segments of session end time, values packed per key, expiry by dropping segments.

A session lies in the segment of its END, because retention depends on the end. Sessions that ended before the horizon lie in
whole segments below it, and are dropped without a search. A segment has one value for a key, with all its sessions packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, argsort, combined, distinct, is_among
from sessionlake.columnar.records import Records, concat
from sessionlake.store.api import OpenSegments, as_array
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import pack, unpack

MIN_SEGMENT_INTERVAL_US = 60_000_000
SEGMENTS = 3
"""Kafka's default. More of them expire sooner, and make a batch look into more."""
_ROOM = 1 << 62
"""Numbers below it fit an int64 with room for a position."""
_LAST = np.iinfo(np.int64).max

WRITE_SCHEMA = pa.schema([("segment", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""Writes of a batch, ordered by (segment, key): the key's whole value in the segment, null to delete it."""


def segment_interval(retention_us: int, segments: int = SEGMENTS) -> int:
    """Return KIP-94's max(retention / (segments - 1), 60 s), in microseconds.

    >>> segment_interval(600_000_000), segment_interval(1_000_000)
    (300000000, 60000000)
    """
    return max(retention_us // (segments - 1), MIN_SEGMENT_INTERVAL_US)


@dataclass(frozen=True)
class FoundSessions:
    """Records found for many keys: `sessions.codes` is the key's position, `segment` if each is stored."""

    sessions: Records
    segment: Ints


@dataclass(frozen=True)
class Page:
    """Values of the store, ascending by segment and key."""

    segment: Ints
    keys: pa.Array
    """Bytes."""
    values: pa.Array
    """A key's sessions in the segment, packed; null for none."""

    def __len__(self) -> int:
        return len(self.segment)

    @property
    def last(self) -> tuple[int, bytes]:
        """The segment and key of the last value, if the page has a value."""
        return int(self.segment[-1]), self.keys[-1].as_py()


class Overlay:
    """A batch's writes that are not in the store yet, laid over pages that are read from it."""

    def __init__(self, writes: pa.Table | None) -> None:
        """`writes` are ordered as `WRITE_SCHEMA` says; None for none."""
        self._writes = WRITE_SCHEMA.empty_table() if writes is None else writes.combine_chunks()
        self._segment = self._writes["segment"].to_numpy()

    def over(self, page: Page) -> Page:
        """Return a page with the writes' values in place of its own."""
        at = np.arange(len(page))
        for number in np.unique(page.segment).tolist():
            # Writes ascend by segment: take this segment's writes.
            low, high = np.searchsorted(self._segment, [number, number + 1]).tolist()
            if low == high:
                continue
            here = np.flatnonzero(page.segment == number)
            of_segment = combined(self._writes["key"].slice(low, high - low))
            place = pc.index_in(page.keys.take(pa.array(here)), value_set=of_segment)
            found = place.is_valid().to_numpy(zero_copy_only=False)
            # Indices from len(page) on point to the writes, which are appended to the page's values below.
            at[here[found]] = len(page) + low + place.drop_null().to_numpy().astype(np.int64)
        both = pa.chunked_array([page.values, *self._writes["value"].chunks], pa.binary())
        return Page(page.segment, page.keys, combined(both).take(pa.array(at)))

    def merged(self, later: list[pa.Table]) -> pa.Table:
        """Return the writes, replaced by `later` ones with the same segment and key. Each table has a (segment, key) once."""
        if not later:
            return self._writes
        table = pa.concat_tables([self._writes, *later])
        # The sort is stable: the last write of a pair holds.
        table = table.take(pc.sort_indices(table, sort_keys=[("segment", "ascending"), ("key", "ascending")]))
        segment, keys = table["segment"].to_numpy(), combined(table["key"])
        replaced = np.zeros(len(table), bool)
        replaced[:-1] = pc.equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False) & (segment[:-1] == segment[1:])
        return table.filter(pa.array(~replaced))


class SegmentedSessionStore:
    """Records of a shard. Reads and writes many keys at once.

    A batch calls `find_many` and `writes`, which change nothing, and `apply` once the batch is committed.
    """

    def __init__(
        self, path: Path, interval_us: int, opened: OpenSegments = FileSegments, *, with_until: bool = False
    ) -> None:
        """`with_until` says that each record has its `until` (`store/layout.py`)."""
        self._with_until = with_until
        self._db = opened(path)
        self.interval_us = interval_us

    @property
    def segments(self) -> Sequence[int]:
        """The segments that have sessions, ascending."""
        return self._db.segments

    def find_many(self, keys: pa.Array, earliest_end: Ints) -> FoundSessions:
        """Return the sessions of keys[i] in all segments that can hold a session with end >= earliest_end[i].

        Keys are binary, ascending and distinct. Records that end earlier may be among the results.
        """
        # A session that ends at or after earliest_end[i] lies in its segment or a later one.
        first = earliest_end // self.interval_us
        parts: list[tuple[Records, int]] = []
        for segment in self.segments:
            wanted = np.flatnonzero(first <= segment)
            if len(wanted):
                every = len(wanted) == len(keys)
                records = self.unpack(self._db.find(segment, keys if every else keys.take(pa.array(wanted))))
                owner = records.codes if every else wanted[records.codes]
                parts.append((replace(records, codes=owner), segment))
        return _concatenated(parts)

    def page(self, after: tuple[int, bytes] | None, limit: int, latest_end_us: int) -> Page:
        """Return the first `limit` values strictly after a segment and key, of the segments with ends up to a time, inclusive."""
        last, found = latest_end_us // self.interval_us, list[tuple[int, pa.Array, pa.Array]]()
        left = limit
        for segment in self.segments:
            if segment > last or left == 0:
                break
            if after is None or segment >= after[0]:
                low = after[1] + b"\0" if after is not None and segment == after[0] else None
                keys, values = self._db.page(segment, low, None, left)
                found.append((segment, keys, values))
                left -= len(keys)
        return Page(
            np.repeat([segment for segment, _, _ in found], [len(keys) for _, keys, _ in found]).astype(np.int64),
            combined(pa.chunked_array([keys for _, keys, _ in found], pa.binary())),
            combined(pa.chunked_array([values for _, _, values in found], pa.binary())),
        )

    def rewritten(self, page: Page, rest: Records, touched: Ints) -> pa.Table:
        """Return the writes of a page's touched places, which then hold the rest; its codes are places, in the page's order."""
        places = distinct(touched)
        rest = rest.take(np.flatnonzero(np.isin(rest.codes, places)))
        sizes = np.bincount(rest.codes, minlength=len(page))[places]
        packed = pack(rest, sizes[sizes > 0]) if len(rest) else pa.array([], pa.binary())
        # Only places with sessions have a packed value: a running count of them is the index of each one's value, and a place
        # without sessions gets null, which deletes it.
        at = np.cumsum(sizes > 0) - 1
        values = packed.take(pa.array(at, mask=sizes == 0))
        index = pa.array(places)
        return pa.Table.from_arrays(
            [pa.array(page.segment[places]), page.keys.take(index), values], schema=WRITE_SCHEMA
        )

    def unpack(self, values: pa.Array) -> Records:
        """Return the sessions of values, in order; codes are the values' places, null stands for no sessions."""
        return unpack(values, with_until=self._with_until)

    def writes(
        self, keys: pa.Array, sessions: Records, touched_owner: Ints, touched_segment: Ints, rows: Ints | None = None
    ) -> pa.Table:
        """Return the writes that make `sessions` (of these rows, if given) the whole content of every touched (owner, segment).

        Each session's own (owner, segment) must be among the touched ones; a touched pair without sessions is deleted.
        """
        if self._with_until and len(sessions) and sessions.until is None:
            raise ValueError("a record lacks its until, which this store's layout has")
        # One number for (segment, owner), which is (segment - low) * len(keys) + owner: sorted by it, the values are in the order
        # in which the database needs its writes. Below, // and % take it apart again.
        rows = np.arange(len(sessions.codes)) if rows is None else rows
        owner, start, end = (column[rows] for column in (sessions.codes, sessions.start, sessions.end))
        segment = end // self.interval_us
        low = min(segment.min(initial=_LAST), touched_segment.min(initial=_LAST))
        pair = (segment - low) * len(keys) + owner
        order = self._order(pair, start, end, segment)
        pair = pair[order]
        at = np.flatnonzero(
            np.diff(pair, prepend=-1)
        )  # the rows at which each value's sessions begin; no pair is negative
        pair = pair[at]
        values = (
            pack(sessions.take(rows[order]), np.diff(at, append=len(order))) if len(at) else pa.array([], pa.binary())
        )
        touched = (touched_segment - low) * len(keys) + touched_owner
        emptied = distinct(touched[~is_among(touched, pair)])
        if len(emptied):
            pair = np.concatenate([pair, emptied])
            values = pa.concat_arrays([values, pa.nulls(len(emptied), pa.binary())])
            place = np.argsort(pair, kind="stable")  # two runs that are sorted
            pair, values = pair[place], values.take(pa.array(place))
        arrays = [
            pa.array(pair // len(keys) + low) if len(pair) else pa.array([], pa.int64()),
            keys.take(pa.array(pair % max(1, len(keys)))).cast(pa.binary()),
            values,
        ]
        return pa.Table.from_arrays(arrays, schema=WRITE_SCHEMA)

    def _order(self, pair: Ints, start: Ints, end: Ints, segment: Ints) -> Ints:
        """Return the order by (pair, end, start); a pair is a number of (segment, owner)."""
        bound = (int(pair.max(initial=0)) + 1) * self.interval_us
        if bound < _ROOM:
            value = pair * self.interval_us + (end - segment * self.interval_us)
            # Pair and end in one number, below the bound.
            order = argsort(value, bound)
            ordered = value[order]
            # No two sessions of a key end at the same time, unless a caller puts them.
            if (ordered[1:] > ordered[:-1]).all():
                return order
        return np.lexsort((start, end, pair))

    def apply(self, writes: pa.Table, meta: dict[str, bytes], oldest_end_us: int) -> None:
        """Apply writes and metadata atomically, then drop the whole segments of sessions that ended before `oldest_end_us`.

        Writes to segments that would be dropped at once are left out.
        """
        oldest = oldest_end_us // self.interval_us
        segments = writes["segment"].to_numpy()
        numbers, starts = np.unique(segments, return_index=True)
        batch = {}
        for number, start, stop in zip(
            numbers.tolist(), starts.tolist(), np.append(starts, len(segments))[1:].tolist(), strict=True
        ):
            if number >= oldest:
                part = writes.slice(start, stop - start)
                batch[number] = (combined(part["key"]), combined(part["value"]))
        self._db.write(batch, meta)
        self._db.drop_before(oldest)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._db.meta(name)

    def scan(self, oldest_end_us: int) -> tuple[list[bytes], Records]:
        """Return the keys and sessions that end at or after `oldest_end_us`; for inspection, not for the hot path."""
        items = [item for segment in self.segments for item in self._db.items(segment)]
        records = self.unpack(as_array([value for _, value in items]))
        return [key for key, _ in items], records.take(np.flatnonzero(records.end >= oldest_end_us))

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


def _concatenated(parts: list[tuple[Records, int]]) -> FoundSessions:
    """Return the records found in several segments as one result."""
    records_of_parts = [records for records, _ in parts]
    segment = np.repeat([segment for _, segment in parts], [len(records) for records in records_of_parts]).astype(
        np.int64
    )
    return FoundSessions(concat(records_of_parts), segment)
