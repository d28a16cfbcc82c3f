"""One shard's database: a column family a segment, and a batched, atomic way to read and write them.

Column families of one database share its write-ahead log: a batch of writes to several segments, and the commit's id among
the metadata, is applied whole or not at all, which is what the two-phase commit rests on.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

from rocksdict import (
    BlockBasedOptions,
    ChecksumType,
    ColumnFamily,
    DataBlockIndexType,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
)

from sessionlake.errors import StoreError
from sessionlake.store.api import SegmentWrites
from sessionlake.store.directory import claim, damage_found, remove_store
from sessionlake.store.room import WRITE_BUFFER, require_room, sizes

META = "default"
"""The column family of metadata: every RocksDB database has one of this name."""
_SEGMENT = "s"
_FLUSH_EARLY = 10_000
"""Keys of a write to a segment, from which on it is flushed at once, beside what follows."""
_POLL_SECONDS = 0.001
_LOOK_SECONDS = 0.25
_STALLED_SECONDS = 300.0
"""How long compactions may run without a file that grows, comes or goes."""
_BLOOM_BITS = 10
_ENTRIES = re.compile(r"# entries=(\d+)")
_MANY_KEYS = 1000
"""Fewer keys are looked up without asking how large the segment is."""
_KEYS_PER_CALL = 64
"""Keys of one call. RocksDB looks for 32 at a time in whatever it is given, and first lays all of it out."""
_SCAN_ENTRIES_PER_KEY = 2.5
"""Entries of a segment for each key asked for, up to which all are read. CPU ms (medians of 7) over 599,000 entries of 420,000 keys:
| keys asked for | entries a key | looked up in one call | 64 a call | scan |
| --- | --- | --- | --- | --- |
| 60,000 | 10.0 | 161 | 110 | 252 |
| 120,000 | 5.0 | 303 | 203 | 307 |
| 170,000 | 3.5 | 434 | 271 | 307 |
| 240,000 | 2.5 | 555 | 419 | 434 |
| 300,000 | 2.0 | 813 | 532 | 438 |"""


def store_options() -> Options:
    """Return the options with which a store's database and its segments are opened."""
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.create_missing_column_families(create_missing_cfs=True)
    # Uncompressed blocks can be read from the page cache without a copy; a store is opened per task, so that a block
    # cache of its own would always be cold.
    options.set_compression_type(DBCompressionType.none())
    options.set_allow_mmap_reads(is_enabled=True)
    options.set_write_buffer_size(WRITE_BUFFER)
    # Merges runs of like size, short ones nearly always; a task waits for them when it closes the database.
    options.set_compaction_style(DBCompactionStyle.universal())
    # What a database does once in its long life is done once a task here: no threads, no statistics at opening.
    options.set_max_file_opening_threads(1)
    options.set_skip_stats_update_on_db_open(skip=True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(1)
    options.set_max_open_files(-1)
    table = BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS, block_based=False)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(0.75)
    table.set_checksum_type(ChecksumType.xxh3())
    options.set_block_based_table_factory(table)
    return options


class RocksSegments:
    """A rocksdict database of segments, named by number, and a few metadata entries.

    Every call raises CorruptionError where bytes turn out to be damaged (LayoutError where they are of another format),
    and StoreError where another process holds the database, the directory holds something else or can't be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        with damage_found(self.path):
            claim(self.path)
            require_room(self.path)
            names = Rdict.list_cf(str(self.path)) if (self.path / "CURRENT").exists() else [META]
            families = {name: store_options() for name in names}
            self._db = Rdict(str(self.path), options=store_options(), column_families=families)
        self._families: dict[int, Rdict] = {}
        self._handles: dict[int, ColumnFamily] = {}
        self._segments = {int(name.removeprefix(_SEGMENT)) for name in names if name != META}

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""
        return sorted(self._segments)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        with damage_found(self.path):
            return cast(bytes | None, self._db.get(name.encode()))

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment; ascending keys are about twice as fast."""
        if len(keys) >= _MANY_KEYS and self._entries(segment) <= _SCAN_ENTRIES_PER_KEY * len(keys):
            return self._scanned(segment, keys)
        found: list[bytes | None] = []
        with damage_found(self.path):
            family = self._family(segment)
            for first in range(0, len(keys), _KEYS_PER_CALL):
                some = cast(list[str | int | float | bytes | bool], keys[first : first + _KEYS_PER_CALL])
                found += cast(list[bytes | None], family.get(some))
        return found

    def _entries(self, segment: int) -> int:
        """Return how many entries a scan of a segment comes by: values, older ones of the same keys, and deletions."""
        with damage_found(self.path):
            family = self._family(segment)
            # Not RocksDB's own estimate: it needs the statistics that opening leaves out.
            files = _ENTRIES.search(family.property_value("rocksdb.aggregated-table-properties") or "")
            buffered = (
                family.property_int_value(f"rocksdb.num-entries-{kind}") or 0
                for kind in ("active-mem-table", "imm-mem-tables")
            )
            return (int(files[1]) if files else 0) + sum(buffered)

    def _scanned(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return what `get` does, by reading the whole segment in order."""
        found: dict[bytes, bytes | None] = dict.fromkeys(keys)
        last = None
        with damage_found(self.path):
            family = self._family(segment)
            for last, value in cast(Iterator[tuple[bytes, bytes]], family.items()):
                if last in found:
                    found[last] = value
            _require_end(family, _after(last))
        return list(found.values())

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Write values (None deletes) and metadata atomically; a segment that is not there is made first."""
        with damage_found(self.path):
            self._write(writes, meta)

    def _write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for segment, (keys, values) in writes.items():
            batch.set_default_column_family(self._handle(segment))
            put, delete = batch.put, batch.delete
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        batch.set_default_column_family(self._db.get_column_family_handle(META))
        for name, value in meta.items():
            batch.put(name.encode(), value)
        self._db.write(batch)
        for segment, (keys, _) in writes.items():
            if len(keys) >= _FLUSH_EARLY:
                self._family(segment).flush(wait=False)  # beside the task's computation, not at its end

    def _family(self, segment: int) -> Rdict:
        """Return a segment opened for reading, once."""
        if segment not in self._families:
            self._families[segment] = self._db.get_column_family(f"{_SEGMENT}{segment}")
        return self._families[segment]

    def _handle(self, segment: int) -> ColumnFamily:
        """Return a segment as batches of writes name it; one that is not there is made."""
        name = f"{_SEGMENT}{segment}"
        if segment not in self._segments:
            self._db.create_column_family(name, store_options()).close()
            self._segments.add(segment)
        if segment not in self._handles:
            self._handles[segment] = self._db.get_column_family_handle(name)
        return self._handles[segment]

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`, whatever they hold, in constant time each."""
        self.drop([s for s in self._segments if s < segment])

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments, whatever they hold, in constant time each."""
        for old in segments:
            # Let go, not closed: rocksdict can't close a handle of a dropped family any more.
            self._families.pop(old, None)
            self._handles.pop(old, None)
            with damage_found(self.path):
                self._db.drop_column_family(f"{_SEGMENT}{old}")
            self._segments.discard(old)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""
        found: list[tuple[bytes, bytes]] = []
        with damage_found(self.path):
            family = self._family(segment)
            for key, value in cast(Iterator[tuple[bytes, bytes]], family.items(from_key=low)):
                if (high is not None and key > high) or len(found) == limit:
                    return found
                found.append((key, value))
            _require_end(family, _after(found[-1][0]) if found else low)
        return found

    def close(self) -> None:
        """Flush, let compactions end and release the database, also where that raises.

        Closing aborts a compaction. One that takes longer than a task would be started and aborted for ever, while the
        files, and with them the time of a read, grow without bound.
        """
        try:
            with damage_found(self.path):
                for segment in self._handles:
                    self._family(segment).flush(wait=True)
                if self._handles:
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
            idle = 0 if self._db.property_int_value("rocksdb.num-running-compactions") else idle + 1
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
        """Raise where something failed in the background. A compaction that lacks room counts as running for as long as that is so."""
        if self._db.property_int_value("rocksdb.background-errors"):
            require_room(self.path, WRITE_BUFFER)
            self._db.write(WriteBatch(raw_mode=True))  # refused with what went wrong in the background

    def _release(self) -> None:
        """Close every handle: each keeps the database, and so its lock, open; one that refuses lets go when it is gone."""
        self._handles.clear()
        opened = [*self._families.values(), vars(self).pop("_db", None)]
        self._families.clear()
        with ExitStack() as closing:
            closing.enter_context(damage_found(self.path))
            for handle in opened:
                if handle is not None:
                    closing.callback(handle.close)
            opened.clear()

    def clear(self) -> None:
        """Remove everything and start empty; StoreError where that fails: nothing may be merged with what is left."""
        with suppress(StoreError):  # what does not close any more goes all the same
            self._release()
        remove_store(self.path)
        self._open()


def _after(key: bytes | None) -> bytes | None:
    """Return the least key after one."""
    return None if key is None else key + b"\0"


def _require_end(segment: Rdict, low: bytes | None) -> None:
    """Raise where a segment has keys from `low` on, or where that can't be read: rocksdict's items end there without a word."""
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
