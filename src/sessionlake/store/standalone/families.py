"""A RocksDB database of rows in named column families, read lazily in both directions."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rocksdict import DbClosedError, Rdict, RdictIter, ReadOptions, WriteBatch

from sessionlake.config.paths import make_private
from sessionlake.errors import StoreClosedError, StoreError, StoreHeldError
from sessionlake.store.directory import STANDALONE, is_damage, is_held
from sessionlake.store.rocks import META, store_options

VERSION = 1
"""Of the bytes of rows and of metadata."""
_ONE_BY_ONE = 16
"""Rows of an iteration that are read as they are asked for. Those after them come in lists, at about half the cost of a row."""
_AHEAD = 64
"""Rows of such a list."""
Rows = Iterator[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Layout:
    """What a database holds, and how it is laid out: what must be the same whenever it is opened."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class Families:
    """A rocksdict database. StoreHeldError where it is open already, StoreError where the directory is anything else.

    Any thread may read; one at a time writes.
    """

    def __init__(self, path: Path, layout: Layout, *families: str) -> None:
        """Open or make the database, with some families made at once."""
        self.path = path
        with self._told():
            _claim(path, layout)
            found = Rdict.list_cf(str(path)) if (path / "CURRENT").exists() else []
            names = {META, *families, *found}
            self._db = Rdict(
                str(path), options=store_options(), column_families={name: store_options() for name in names}
            )
        self.names = names - {META}
        """The families that there are."""
        self._opened: dict[str, Rdict] = {}

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        with self._told():
            found: bytes | None = self._db.get(name.encode())
            return found

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None where it or the family is not there."""
        try:
            found: bytes | None = self._family(family).get(key)
        except Exception as error:
            if family not in self.names:
                return None
            raise self._error(error) from error
        return found

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes; a family that is not there is made for a value."""
        if family not in self.names:
            if value is None:
                return
            self._make(family)
        try:
            if value is None:
                self._family(family).delete(key)
            else:
                self._family(family).put(key, value)
        except Exception as error:
            raise self._error(error) from error

    def write(self, rows: list[tuple[str, bytes, bytes | None]], meta: Mapping[str, bytes]) -> None:
        """Write rows of (family, key, value), where None removes, and metadata: all of it or none."""
        with self._told():
            batch = WriteBatch(raw_mode=True)
            handles = {}
            for family, key, value in rows:
                if family not in self.names:
                    if value is None:
                        continue
                    self._make(family)
                if family not in handles:
                    handles[family] = self._db.get_column_family_handle(family)
                if value is None:
                    batch.delete(key, handles[family])
                else:
                    batch.put(key, value, handles[family])
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

        Of a family that is dropped meanwhile all rows are yielded; of one that is not there when it begins, none.
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
        with self._told():
            self.names.discard(family)
            # Let go, not closed: rocksdict can't close a handle of a dropped family any more.
            self._opened.pop(family, None)
            self._db.drop_column_family(family)

    def estimate(self, family: str) -> int:
        """Return RocksDB's estimate of the number of rows, of those in memory too."""
        with self._told():
            if family not in self.names:
                return 0
            return max(0, self._family(family).property_int_value("rocksdb.estimate-num-keys") or 0)

    def flush(self) -> None:
        """Write what is in memory to files. Rows survive a process that is killed without it."""
        with self._told():
            for name in sorted(self.names):
                self._family(name).flush(wait=True)
            self._db.flush(wait=True)

    def close(self) -> None:
        """Release the database, and with it the lock, as soon as no iterator over it is left."""
        opened = [*self._opened.values(), self._db]
        self._opened.clear()
        with self._told():
            for handle in opened:
                with suppress(DbClosedError):
                    handle.close()

    def _family(self, name: str) -> Rdict:
        found = self._opened.get(name)
        if found is None:
            found = self._opened[name] = self._db.get_column_family(name)
        return found

    def _make(self, family: str) -> None:
        with self._told():
            self._db.create_column_family(family, store_options()).close()
            self.names.add(family)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> Exception:
        """Return what to raise for an error of RocksDB's."""
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
    # The lower bound is compared here: rocksdict 0.3.29 takes that of ReadOptions for an upper one (tests/store/test_claims.py).
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
    """Say whether an iterator has another row; raise where it ended because that can't be read."""
    if entries.valid():
        return True
    entries.status()
    return False


def _claim(path: Path, layout: Layout) -> None:
    """Make the directory of a store where it is not there, with a file that says what it is; StoreError for any other's."""
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
    found = _described(marker)
    for name, value in {"version": VERSION, "kind": layout.kind, **layout.settings}.items():
        if found.get(name) != value:
            raise StoreError(
                f"store: {str(path)!r} was made with {name} = {found.get(name)!r}, not {value!r}; "
                "open it as it was made, or remove it"
            )


def _described(marker: Path) -> dict[str, Any]:
    try:
        found = json.loads(marker.read_text())
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def described(path: Path) -> dict[str, Any]:
    """Return what the store of a directory was made with; nothing where there is none."""
    return _described(path / STANDALONE) if (path / STANDALONE).exists() else {}
