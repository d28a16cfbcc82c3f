"""Writes that wait in memory for a flush: an overlay over a database of segments, through which all reads go.

Every read sees a write at once. `flush` brings all writes and the metadata to disk in one batch, so after a crash the database
is as the last flush left it. Several stores can lie in one such database, each in a separate part, and one flush writes the
changes of all of them.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from pathlib import Path

from sessionlake.store.api import OfObjects, Segments, SegmentWrites, as_objects
from sessionlake.store.rocks import RocksSegments

PARTS = 2
"""Stores that a database has room for: segments are numbered in turns."""
_INSERTED = 16
"""So few new keys are inserted singly; more are sorted with the others."""


class _Pending:
    """A segment's waiting writes: values by key; None deletes a key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self._ordered: list[bytes] = []
        self._added: list[bytes] = []

    def put(self, key: bytes, value: bytes | None) -> None:
        if key not in self.values:
            self._added.append(key)
        self.values[key] = value

    def between(self, low: bytes | None, high: bytes | None) -> list[bytes]:
        """Return the keys from low to high, both inclusive, ascending."""
        if len(self._added) > _INSERTED:
            self._ordered = sorted(self._ordered + self._added)
        else:
            for key in self._added:
                insort(self._ordered, key)
        self._added = []
        first = 0 if low is None else bisect_left(self._ordered, low)
        return self._ordered[first : None if high is None else bisect_right(self._ordered, high)]


class BufferedSegments(OfObjects):
    """A `RocksSegments` whose writes and drops wait for `flush`; the errors are its."""

    def __init__(self, path: Path) -> None:
        self._db = RocksSegments(path)
        self._pending: dict[int, _Pending] = {}
        self._dropped: set[int] = set()
        """Live segments of the database that go with the flush."""
        self._meta: dict[str, bytes] = {}
        """Metadata entries of parts that wait for the flush."""

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""
        return sorted((set(self._db.segments) - self._dropped) | self._pending.keys())

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry: the flush's from the last flush, a part's as last put."""
        return self._meta[name] if name in self._meta else self._db.meta(name)

    def put_meta(self, meta: Mapping[str, bytes]) -> None:
        """Take metadata entries of a part, which are written with the next flush."""
        self._meta |= meta

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment."""
        pending = self._pending.get(segment)
        if pending is None:
            return self._db.get(segment, keys)
        rest = [key for key in keys if key not in pending.values] if self._is_stored(segment) else []
        stored = dict(zip(rest, self._db.get(segment, rest), strict=True)) if rest else {}
        return [pending.values[key] if key in pending.values else stored.get(key) for key in keys]

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""
        pending = self._pending.get(segment)
        most = limit if pending is None else None
        stored = self._db.items(segment, low, high, most) if self._is_stored(segment) else []
        changed = [] if pending is None else pending.between(low, high)
        if pending is None or not changed:
            return stored[:limit]
        found = dict(stored)
        for key in changed:
            value = pending.values[key]
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return sorted(found.items())[:limit]

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Add writes to memory. Metadata belongs to `flush`, so `meta` must be empty."""
        if meta:
            raise ValueError(f"metadata {', '.join(meta)} is written by flush alone")
        for segment, (keys, values) in writes.items():
            pending = self._pending.setdefault(segment, _Pending())
            if segment in self._dropped:
                # The segment is live again, and empty: the database's rows of it are deleted key by key.
                self._dropped.remove(segment)
                for key, _ in self._db.items(segment):
                    pending.put(key, None)
            for key, value in zip(as_objects(keys), as_objects(values), strict=True):
                pending.put(key, value)

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`, whatever they hold."""
        self.drop([number for number in self.segments if number < segment])

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments, whatever they hold."""
        stored = set(self._db.segments)
        for number in segments:
            self._pending.pop(number, None)
            if number in stored:
                self._dropped.add(number)

    def flush(self, meta: Mapping[str, bytes]) -> None:
        """Write all waiting writes and the metadata in a single batch, then drop the segments that are due."""
        # The order matters: until the batch is written, a dropped segment belongs to the state that a crash goes back to.
        writes = {
            number: (list(pending.values), list(pending.values.values())) for number, pending in self._pending.items()
        }
        self._db.write(writes, {**self._meta, **meta})
        self._pending.clear()
        self._meta.clear()
        self._db.drop(sorted(self._dropped))
        self._dropped.clear()

    def clear(self) -> None:
        """Remove everything, with the waiting writes, and start empty."""
        self._pending.clear()
        self._dropped.clear()
        self._meta.clear()
        self._db.clear()

    def close(self) -> None:
        """Release the database; waiting writes are lost."""
        self._pending.clear()
        self._db.close()

    def part(self, number: int) -> "Part":
        """Return a part of several stores, 0 <= number < PARTS."""
        return Part(self, number)

    def _is_stored(self, segment: int) -> bool:
        return segment in self._db.segments and segment not in self._dropped


class Part(OfObjects, Segments):
    """A store's own segments in a database that it shares; it is cleared, flushed and closed with the whole."""

    def __init__(self, db: BufferedSegments, number: int) -> None:
        self._db, self._number = db, number

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""
        return [number // PARTS for number in self._db.segments if number % PARTS == self._number]

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry of the part's own, else of the flush."""
        own = self._db.meta(f"{self._number}/{name}")
        return self._db.meta(name) if own is None else own

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment."""
        return self._db.get(self._whole(segment), keys)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""
        return self._db.items(self._whole(segment), low, high, limit)

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Take writes, and metadata of the part's own."""
        self._db.write({self._whole(number): values for number, values in writes.items()}, {})
        self._db.put_meta({f"{self._number}/{name}": value for name, value in meta.items()})

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`."""
        self.drop([number for number in self.segments if number < segment])

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments."""
        self._db.drop([self._whole(number) for number in segments])

    def clear(self) -> None:
        """Drop all segments."""
        self._db.drop([self._whole(number) for number in self.segments])

    def close(self) -> None:
        """Do nothing: the database is closed by who has opened it."""

    def _whole(self, segment: int) -> int:
        return segment * PARTS + self._number
