"""A RocksDB database of rows in named column families, read lazily in both directions."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rocksdict import DbClosedError, Rdict, RdictIter, ReadOptions, WriteBatch

from sessionlake.config.paths import make_private
from sessionlake.errors import StoreClosedError, StoreError, StoreHeldError
from sessionlake.store.database import Database
from sessionlake.store.directory import STANDALONE, is_damage, is_held

VERSION = 1
"""The format of the bytes of rows and of metadata."""
_ONE_BY_ONE = 16
"""The number of rows that an iteration reads singly. Later rows are read in lists, at about half the cost of each row."""
_AHEAD = 64
"""Rows of such a list."""
Rows = Iterator[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Layout:
    """The content and layout of a database, which must be the same at every opening."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class Families:
    """A rocksdict database. StoreHeldError if it is open already, StoreError if the directory is anything else.

    Any thread may read; one at a time writes.
    """

    def __init__(self, path: Path, layout: Layout, *families: str) -> None:
        """Open or make the database, with some families made at once."""
        self.path = path
        with self._error_named():
            _claim(path, layout)
            self._db = Database(path, families)
        self._family, self.names = self._db.family, self._db.names

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        with self._error_named():
            return self._db.meta(name)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if it or the family is not there."""
        try:
            value: bytes | None = self._family(family).get(key)
        except Exception as error:
            if family not in self.names:
                return None
            raise self._error(error) from error
        return value

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Write a value, None removes; a missing family is made for a value."""
        if family not in self.names:
            if value is None:
                return
            with self._error_named():
                self._db.make(family)
        try:
            if value is None:
                self._family(family).delete(key)
            else:
                self._family(family).put(key, value)
        except Exception as error:
            raise self._error(error) from error

    def write(self, rows: list[tuple[str, bytes, bytes | None]], meta: Mapping[str, bytes]) -> None:
        """Write rows of (family, key, value) and metadata, all or nothing. A value of None removes the key."""
        with self._error_named():
            batch = WriteBatch(raw_mode=True)
            for family, key, value in rows:
                if value is not None:
                    batch.put(key, value, self._db.handle(family))
                elif family in self.names:
                    batch.delete(key, self._db.handle(family))
            for name, value in meta.items():
                batch.put(name.encode(), value)
            self._db.write(batch)

    def items(
        self,
        family: str,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - always named by callers
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows with low <= key < high, and perhaps some that are written meanwhile; None is open.

        All rows of a family dropped meanwhile are yielded, and none of a family that is missing at the beginning.
        """
        try:
            opened = self._family(family) if family in self.names else None
        except Exception as error:
            if family in self.names:
                raise self._error(error) from error
            opened = None
        if opened is not None:
            try:
                yield from (_backward if backward else _forward)(opened, low, high)
            except Exception as error:
                error.__traceback__ = None  # it would keep the iterator, and that the database open
                raise self._error(error) from error

    def last(self, family: str, low: bytes, high: bytes) -> bytes | None:
        """Return the largest key with low <= key < high."""
        return next((key for key, _ in self.items(family, low, high, backward=True)), None)

    def drop(self, family: str) -> None:
        """Remove a family with all its rows, in constant time."""
        with self._error_named():
            self._db.drop(family)

    def estimate(self, family: str) -> int:
        """Return RocksDB's estimate of the number of rows, on disk and in memory."""
        with self._error_named():
            if family not in self.names:
                return 0
            return max(0, self._family(family).property_int_value("rocksdb.estimate-num-keys") or 0)

    def flush(self) -> None:
        """Write the rows in memory to files. Rows survive a killed process even without it."""
        with self._error_named():
            self._db.flush()

    def close(self) -> None:
        """Release the database, and with it the lock, as soon as no iterator over it is left."""
        with self._error_named():
            self._db.close()

    @contextmanager
    def _error_named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> Exception:
        """Return the exception to raise for an error of RocksDB."""
        text = str(error)
        where = f"store: {str(self.path)!r}"
        if isinstance(error, StoreError):
            return error
        if isinstance(error, DbClosedError):
            return StoreClosedError(f"{where} is closed; open it again")
        if is_damage(text, self.path):
            return StoreError(f"{where} is damaged ({text}); remove it and restore it from its log of changes")
        if is_held(text):
            return StoreHeldError(f"{where} is open already, here or in another process ({text}); close that one")
        return StoreError(f"{where} can't be used ({text}); mend that and open it again")


def _forward(family: Rdict, low: bytes | None, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    options = ReadOptions()
    if high is not None:
        options.set_iterate_upper_bound(high)
    while True:
        entries = family.iter(options)
        if low is None:
            entries.seek_to_first()
        else:
            entries.seek(low)
        yield from _first_rows(entries, entries.next)
        if not _goes_on(entries):
            return
        rows = cast(Rows, family.items(from_key=entries.key(), read_opt=options))
        del entries
        while ahead := list(islice(rows, _AHEAD)):
            yield from ahead
            low = ahead[-1][0] + b"\0"


def _backward(family: Rdict, low: bytes | None, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    # The lower bound is compared here: rocksdict 0.3.29 takes ReadOptions' lower bound for an upper one (tests/store/test_claims.py).
    while True:
        entries = family.iter()
        if high is None:
            entries.seek_to_last()
        else:
            entries.seek_for_prev(high)
            if entries.valid() and entries.key() == high:
                entries.prev()
        for row in _first_rows(entries, entries.prev):
            if low is not None and row[0] < low:
                return
            yield row
        if not _goes_on(entries):
            return
        rows = cast(Rows, family.items(backwards=True, from_key=entries.key()))
        del entries
        while ahead := list(islice(rows, _AHEAD)):
            if low is not None and ahead[-1][0] < low:
                yield from (row for row in ahead if row[0] >= low)
                return
            yield from ahead
            high = ahead[-1][0]


def _first_rows(entries: RdictIter, onward: Callable[[], None]) -> Rows:
    for _ in range(_ONE_BY_ONE):
        if not entries.valid():
            return
        row = entries.key(), entries.value()
        onward()
        yield row


def _goes_on(entries: RdictIter) -> bool:
    """Say whether an iterator has another row; raise if it ended because that can't be read."""
    if entries.valid():
        return True
    entries.status()
    return False


def _claim(path: Path, layout: Layout) -> None:
    """Make the directory of a store if it is not there, with a file that says what it is; StoreError for any other's."""
    make_private(path)
    marker = path / STANDALONE
    if not marker.exists():
        if others := sorted(file.name for file in path.iterdir() if not file.name.startswith(f"{STANDALONE}.")):
            raise StoreError(
                f"store: {str(path)!r} holds {others[0]!r} and is no store of this kind; choose another directory or name"
            )
        temporary = path / f"{STANDALONE}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps({"kind": layout.kind, "version": VERSION, **layout.settings}))
        temporary.replace(marker)
    described = _described(marker)
    for name, value in {"version": VERSION, "kind": layout.kind, **layout.settings}.items():
        if described.get(name) != value:
            raise StoreError(
                f"store: {str(path)!r} was made with {name} = {described.get(name)!r}, not {value!r}; "
                "open it as it was made, or remove it"
            )


def _described(marker: Path) -> dict[str, Any]:
    try:
        description = json.loads(marker.read_text())
    except ValueError:
        description = None
    return description if isinstance(description, dict) else {}


def described(path: Path) -> dict[str, Any]:
    """Return the settings with which the store of a directory was created; empty if there is no store."""
    return _described(path / STANDALONE) if (path / STANDALONE).exists() else {}
