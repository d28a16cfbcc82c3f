"""A RocksDB database of named column families: opening, for writes or reads of a moment, and release.

Column families of one database share its write-ahead log: a batch of writes to several of them is applied whole or not at all,
and the two-phase commit relies on that. Errors are rocksdict's; the callers translate them for their users.
"""

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    ChecksumType,
    ColumnFamily,
    DataBlockIndexType,
    DbClosedError,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
)

from sessionlake.store.disk_space import WRITE_BUFFER

META = "default"
"""The column family of metadata: every RocksDB database has it by this name."""
_BLOOM_BITS = 10
_NOT_DATA = ("LOG", "LOCK", "rocksdict-config.json")
"""Beginnings of names of files that change without any data changing."""


def store_options(*, create: bool = True) -> Options:
    """Return the options to open a database and its families; without `create` nothing missing is made."""
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=create)
    options.create_missing_column_families(create_missing_cfs=create)
    # Uncompressed blocks can be read from the page cache without a copy; a store is opened per task, so that a block
    # cache of its own would always be cold.
    options.set_compression_type(DBCompressionType.none())
    options.set_allow_mmap_reads(is_enabled=True)
    options.set_write_buffer_size(WRITE_BUFFER)
    # Merges runs of like size, short ones nearly always; a task waits for them when it closes the database.
    options.set_compaction_style(DBCompactionStyle.universal())
    # A usual database is opened once in its long life; these are opened once in each task. So: no threads, no statistics at opening.
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


def is_data(file_name: str) -> bool:
    """Say whether a file of a database holds data, and is no log, lock or setting of a process."""
    return not file_name.startswith(_NOT_DATA)


class Database:
    """An open database. Any thread may read; one at a time writes."""

    def __init__(self, path: Path, families: Iterable[str] = (), *, read_only: bool = False) -> None:
        """Open or make the database, with some families made at once.

        With `read_only` it is read as of now, even if another process has it open, and nothing is written to its directory.
        """
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        if read_only:
            # RocksDB writes a log even if it only reads, and rocksdict its settings; both must not lie in the database, whose
            # removal they would disturb. Once it is open it has all files it needs open, and no need for their names.
            with tempfile.TemporaryDirectory(prefix="sessionlake-read-") as own:
                for file in path.iterdir():
                    if is_data(file.name):
                        Path(own, file.name).symlink_to(file)
                self._open(own, Rdict.list_cf(own), store_options(create=False), AccessType.read_only())
        else:
            found = Rdict.list_cf(str(path)) if (path / "CURRENT").exists() else []
            self._open(str(path), {META, *families, *found}, store_options(), AccessType.read_write())

    def _open(self, path: str, names: Iterable[str], options: Options, access: AccessType) -> None:
        self._db: Rdict | None = Rdict(
            path, options=options, column_families=dict.fromkeys(names, options), access_type=access
        )
        self.names = set(names) - {META}
        """The existing families, except metadata's."""

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return cast(bytes | None, self._opened.get(name.encode()))

    def family(self, name: str) -> Rdict:
        """Return a family to read from and to write to by itself; opened once."""
        known_family = self._families.get(name)
        if known_family is None:
            known_family = self._families[name] = self._opened.get_column_family(name)
        return known_family

    def handle(self, name: str) -> ColumnFamily:
        """Return a family as batches of writes name it; a missing family is made."""
        open_handle = self._handles.get(name)
        if open_handle is None:
            if name != META:
                self.make(name)
            open_handle = self._handles[name] = self._opened.get_column_family_handle(name)
        return open_handle

    @property
    def written(self) -> list[str]:
        """The families named by a batch of writes, except metadata's."""
        return [name for name in self._handles if name != META]

    def make(self, name: str) -> None:
        """Make a family, if it is not there."""
        if name not in self.names:
            self._opened.create_column_family(name, store_options()).close()
            self.names.add(name)

    def drop(self, name: str) -> None:
        """Remove a family with all that it holds, in constant time."""
        # Let go, not closed: rocksdict can't close a handle of a dropped family any more.
        self.names.discard(name)
        self._families.pop(name, None)
        self._handles.pop(name, None)
        self._opened.drop_column_family(name)

    def write(self, batch: WriteBatch) -> None:
        """Apply a batch of writes, all of it or none."""
        self._opened.write(batch)

    def number(self, name: str) -> int:
        """Return a numeric property of RocksDB, 0 if missing."""
        return self._opened.property_int_value(name) or 0

    def flush(self) -> None:
        """Write all that is in memory to files."""
        for name in sorted(self.names):
            self.family(name).flush(wait=True)
        self._opened.flush(wait=True)

    def close(self) -> None:
        """Close every handle: each keeps the database open, and so its lock; a handle that refuses lets go at its end."""
        self._handles.clear()
        opened = [*self._families.values(), self._db]
        self._families.clear()
        self._db = None
        with ExitStack() as closing:
            for handle in opened:
                if handle is not None:
                    closing.callback(handle.close)
            opened.clear()

    @property
    def _opened(self) -> Rdict:
        if self._db is None:
            raise DbClosedError("the database is closed")
        return self._db
