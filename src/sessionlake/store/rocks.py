"""One shard's database: a column family a segment, and a batched, atomic way to read and write them."""

import shutil
from collections.abc import Mapping
from pathlib import Path

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

_META = "default"
_SEGMENT = "s"
_WRITE_BUFFER = 64 << 20


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # Uncompressed blocks can be read from the page cache without a copy; a store is opened per task, so that a block
    # cache of its own would always be cold.
    options.set_compression_type(DBCompressionType.none())
    options.set_allow_mmap_reads(True)
    options.set_write_buffer_size(_WRITE_BUFFER)
    # Merges runs of like size: short ones nearly always, so that they end before the task closes the database.
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_keep_log_file_num(1)
    options.set_max_open_files(-1)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(0.75)
    table.set_checksum_type(ChecksumType.xxh3())
    options.set_block_based_table_factory(table)
    return options


class RocksSegments:
    """A rocksdict database of segments, named by number, and a few metadata entries.

    Opening fails with StoreError where another process holds the database or the directory can't be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = Rdict.list_cf(str(path)) if (path / "CURRENT").exists() else [_META]
            self._db = Rdict(str(path), options=_options(), column_families={name: _options() for name in names})
        except Exception as error:
            raise StoreError(f"store: {str(path)!r} can't be opened ({error}); stop the process that holds it or delete the directory") from error
        self._families: dict[int, Rdict] = {}
        self._handles: dict[int, ColumnFamily] = {}
        self._segments = {int(name[1:]) for name in names if name != _META}

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""
        return sorted(self._segments)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._db.get(name.encode())

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of keys in a live segment; ascending keys are about twice as fast."""
        if segment not in self._families:
            self._families[segment] = self._db.get_column_family(f"{_SEGMENT}{segment}")
        return self._families[segment].get(keys)

    def write(self, writes: Mapping[int, tuple[list[bytes], list[bytes | None]]], meta: Mapping[str, bytes]) -> None:
        """Write values (None deletes) and metadata atomically; a segment that is not there is made first."""
        batch = WriteBatch(raw_mode=True)
        for segment, (keys, values) in writes.items():
            batch.set_default_column_family(self._handle(segment))
            put, delete = batch.put, batch.delete
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        batch.set_default_column_family(self._db.get_column_family_handle(_META))
        for name, value in meta.items():
            batch.put(name.encode(), value)
        self._db.write(batch)

    def _handle(self, segment: int) -> ColumnFamily:
        name = f"{_SEGMENT}{segment}"
        if segment not in self._segments:
            self._db.create_column_family(name, _options()).close()
            self._segments.add(segment)
        if segment not in self._handles:
            self._handles[segment] = self._db.get_column_family_handle(name)
        return self._handles[segment]

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`, whatever they hold, in constant time each."""
        for old in [s for s in self._segments if s < segment]:
            self._families.pop(old, None)
            self._handles.pop(old, None)
            self._db.drop_column_family(f"{_SEGMENT}{old}")
            self._segments.discard(old)

    def items(self, segment: int) -> list[tuple[bytes, bytes]]:
        """Return all keys and values of a live segment, ascending by key."""
        family = self._db.get_column_family(f"{_SEGMENT}{segment}")
        return list(family.items())

    def size_bytes(self) -> int:
        """Return the bytes on disk."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def close(self) -> None:
        """Flush and release the database."""
        for family in self._families.values():
            family.close()
        self._families.clear()
        self._handles.clear()
        self._db.close()

    def clear(self) -> None:
        """Remove everything and start empty."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)
        self.__init__(self.path)  # type: ignore[misc]
