"""Segments in RocksDB: a column family a segment, and a batched, atomic way to read and write them.

A batch of writes to several segments and the metadata is applied whole or not at all. Shards have such stores if
`pipeline.store_engine` says so, and so have programs (`buffered`).
"""

import json
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from rocksdict import Rdict, WriteBatch

from sessionlake.errors import StoreError
from sessionlake.store.api import OfObjects, SegmentWrites, as_objects
from sessionlake.store.database import META, Database
from sessionlake.store.directory import ROCKSDB_FORMAT, empty, hold, mark_damage
from sessionlake.store.disk_space import WRITE_BUFFER, require_disk_space, sizes

LIVE = "live segments"
"""The metadata entry with the numbers of the segments that count, as JSON; stores of earlier releases lack it."""
SEGMENT = "s"
"""The beginning of a segment's family's name; its number follows."""
_FLUSH_EARLY = 10_000
"""A segment is flushed in the background after a write of at least this number of keys."""
_POLL_SECONDS = 0.001
_LOOK_SECONDS = 0.25
_STALLED_SECONDS = 300.0
"""How long compactions may run without a change of any file."""
_KEYS_PER_CALL = 64
"""The number of keys in a call. RocksDB searches 32 keys at a time, but first prepares all keys of the call."""


class RocksSegments(OfObjects):
    """A rocksdict database of segments, named by number, and a few metadata entries.

    Every call raises CorruptionError if bytes turn out to be damaged (LayoutError if they are of another format),
    and StoreError if another process holds the database, the directory holds something else or can't be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        # The lock is ours and not RocksDB's alone: RocksDB does not see that the file which it locks was removed meanwhile.
        with mark_damage(self.path):
            self._unlock = weakref.finalize(self, os.close, hold(self.path, ROCKSDB_FORMAT, ()))
        try:
            self._open_held()
        except BaseException:
            self._release()
            raise

    def _open_held(self) -> None:
        with mark_damage(self.path):
            require_disk_space(self.path)
            self._db = Database(self.path)
            self._segments = live_segments(self._db)
            # A process may have ended before it dropped a segment, or before it wrote to a new one.
            for name in self._db.names - set(map(_name, self._segments)):
                self._db.drop(name)
        self._unflushed: set[int] = set()

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""
        return sorted(self._segments)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        with mark_damage(self.path):
            return self._db.meta(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment; ascending keys are about twice as fast."""
        values: list[bytes | None] = []
        with mark_damage(self.path):
            family = self._family(segment)
            for first in range(0, len(keys), _KEYS_PER_CALL):
                some = cast(list[str | int | float | bytes | bool], keys[first : first + _KEYS_PER_CALL])
                values += cast(list[bytes | None], family.get(some))
        return values

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Write values (None deletes) and metadata atomically; a segment that is not there is made first."""
        with mark_damage(self.path):
            self._write(writes, meta)

    def _write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        if meta:
            # The commit's id must not outlive rows of earlier writes, whose logs may be lost separately.
            self._flush(self._unflushed)
        batch = WriteBatch(raw_mode=True)
        for segment, (keys, values) in writes.items():
            batch.set_default_column_family(self._db.handle(_name(segment)))
            self._segments.add(segment)
            put, delete = batch.put, batch.delete
            for key, value in zip(as_objects(keys), as_objects(values), strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        batch.set_default_column_family(self._db.handle(META))
        for name, value in {**meta, LIVE: _listed(self._segments)}.items():
            batch.put(name.encode(), value)
        self._db.write(batch)
        self._unflushed |= writes.keys()
        for segment, (keys, _) in writes.items():
            if len(keys) >= _FLUSH_EARLY:
                self._family(segment).flush(wait=False)  # during the task's computation, not at its end

    def _family(self, segment: int) -> Rdict:
        return self._db.family(_name(segment))

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`, whatever they hold, in constant time each."""
        self.drop([s for s in self._segments if s < segment])

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments, whatever they hold, in constant time each."""
        gone = set(segments)
        if not gone:
            return
        with mark_damage(self.path):
            self._segments -= gone
            self._unflushed -= gone
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(self._db.handle(META))
            batch.put(LIVE.encode(), _listed(self._segments))
            self._db.write(batch)
            for number in gone:
                self._db.drop(_name(number))

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""
        stored_items: list[tuple[bytes, bytes]] = []
        with mark_damage(self.path):
            family = self._family(segment)
            for key, value in cast(Iterator[tuple[bytes, bytes]], family.items(from_key=low)):
                if (high is not None and key > high) or len(stored_items) == limit:
                    return stored_items
                stored_items.append((key, value))
            _require_end(family, _after(stored_items[-1][0]) if stored_items else low)
        return stored_items

    def close(self) -> None:
        """Flush, let compactions end and release the database, also if that raises.

        Closing aborts a compaction. One that takes longer than a task would be started and aborted for ever, while the
        files, and with them the time of a read, grow without bound.
        """
        if "_db" not in vars(self):  # `clear` failed, and its error is the one to see
            self._release()
            return
        try:
            with mark_damage(self.path):
                self._flush(self._unflushed)
                if self._db.written:
                    self._await_compactions()
                    self._require_no_failure()
        finally:
            self._release()

    def _await_compactions(self) -> None:
        # A compaction that is due is running a moment after the flush; the property "compaction-pending" is of no use,
        # since it can stay set with nothing to compact.
        idle, looked, moved, seen = 0, time.monotonic(), time.monotonic(), sizes(self.path)
        while idle < 2:
            time.sleep(_POLL_SECONDS)
            idle = 0 if self._db.number("rocksdb.num-running-compactions") else idle + 1
            if (now := time.monotonic()) - looked < _LOOK_SECONDS:
                continue
            self._require_no_failure()
            looked, before, seen = now, seen, sizes(self.path)
            moved = moved if seen == before else now
            if now - moved > _STALLED_SECONDS:
                raise StoreError(
                    f"store: {str(self.path)!r} has compactions that have written nothing for {_STALLED_SECONDS:.0f} s; "
                    "see its file LOG, mend the disk, and start again"
                )

    def _require_no_failure(self) -> None:
        """Raise if something failed in the background. A compaction that lacks room counts as running for as long as that is so."""
        if self._db.number("rocksdb.background-errors"):
            require_disk_space(self.path, WRITE_BUFFER)
            self._db.write(WriteBatch(raw_mode=True))  # raises an error of the background work, if there was one

    def _flush(self, segments: Iterable[int]) -> None:
        for number in [*segments]:
            self._family(number).flush(wait=True)
        self._unflushed.clear()

    def _release(self) -> None:
        try:
            self._let_go()
        finally:
            # Last: to close any file of the lock takes RocksDB's own lock from it.
            self._unlock()

    def _let_go(self) -> None:
        db = vars(self).pop("_db", None)
        if db is not None:
            with mark_damage(self.path):
                db.close()

    def clear(self) -> None:
        """Remove everything and start empty, under the lock; StoreError if that fails, because new writes must not mix with the remains."""
        with suppress(StoreError):  # a database that can't be closed any more is removed anyway
            self._let_go()
        try:
            empty(self.path)
        except OSError as error:
            raise StoreError(
                f"store: {str(self.path)!r} can't be removed ({error}); remove it and start again"
            ) from error
        self._open_held()


def live_segments(db: Database) -> set[int]:
    """Return the segments that count; an error of damage if a segment is missing.

    RocksDB opens a database whose list of families is cut, and skips writes to families which are not open.
    """
    there = {int(name.removeprefix(SEGMENT)) for name in db.names}
    listed = db.meta(LIVE)
    live = there if listed is None else set(json.loads(listed))
    if live - there:
        raise OSError(f"Corruption: no segments {sorted(live - there)} in the list of families")
    return live


def _listed(segments: Iterable[int]) -> bytes:
    return json.dumps(sorted(segments)).encode()


def _name(segment: int) -> str:
    return f"{SEGMENT}{segment}"


def _after(key: bytes | None) -> bytes | None:
    """Return the least key after one."""
    return None if key is None else key + b"\0"


def _require_end(segment: Rdict, low: bytes | None) -> None:
    """Raise if a segment has keys from `low` on, or if that can't be read: rocksdict's items end there without a word."""
    entries = segment.iter()
    try:
        if low is None:
            entries.seek_to_first()
        else:
            entries.seek(low)
        entries.status()
        if entries.valid():
            raise OSError(f"reading ended before key {entries.key()!r}")
    finally:
        del entries  # an error's traceback would keep it, and it the database open
