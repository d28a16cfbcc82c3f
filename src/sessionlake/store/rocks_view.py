"""A read-only view of a RocksDB store while another process has it open, as `secondary` has for sorted files."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa

from sessionlake.errors import StoreError
from sessionlake.store.api import IDS_FROM
from sessionlake.store.database import Database, is_data
from sessionlake.store.directory import CURRENT, is_damage
from sessionlake.store.rocks import SEGMENT
from sessionlake.store.runs import DamagedError
from sessionlake.store.secondary import Items

_ATTEMPTS = 5
_LOOKS, _PAUSE_S = 50, 0.1
_KEYS_AT_ONCE = 10_000


class RocksView:
    """A store as it is now. FileNotFoundError if there is none, StoreError if it can't be read.

    Reads raise DamagedError if bytes are damaged, and OSError if the machine can't give them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            if not (path / CURRENT).exists():
                raise FileNotFoundError(path)
            try:
                self._open()
            except Exception as found:  # noqa: BLE001 (RocksDB's own have no type; a file may have gone meanwhile)
                error = found
            else:
                return
        raise StoreError(f"store: {str(path)!r} can't be read ({error}); mend that, or remove it") from error

    def _open(self) -> None:
        self._db = Database(self._path, read_only=True)
        numbered = {int(name.removeprefix(SEGMENT)): name for name in self._db.names}
        self._families = {number: self._db.family(name) for number, name in numbered.items() if number < IDS_FROM}
        self._segments = sorted(self._families)

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._segments

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        with self._translated():
            return self._db.meta(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        family = self._families.get(segment)
        if family is None:
            return [None] * len(keys)
        with self._translated():
            return cast(list[bytes | None], family.get(cast(list[str | int | float | bytes | bool], keys)))

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys."""
        if segment not in self._families:
            return
        entries = self._families[segment].iter()
        first, last = (high, low) if backward else (low, high)
        with self._translated():
            if first is None:
                (entries.seek_to_last if backward else entries.seek_to_first)()
            else:
                (entries.seek_for_prev if backward else entries.seek)(first)
        onward = entries.prev if backward else entries.next
        while entries.valid():
            key = cast(bytes, entries.key())
            if last is not None and (key < last if backward else key > last):
                return
            yield key, cast(bytes, entries.value())
            onward()
        with self._translated():
            entries.status()  # raises if reading ended before the last key

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = str(error)
            raise (DamagedError if is_damage(text, self._path) else OSError)(text) from error


def rocks_may_hold(path: Path, keys: list[bytes], among: Callable[[pa.Array], bool] | None) -> bool:
    """Say whether a RocksDB store has one of the keys in any segment, or can't be read, so that nobody knows.

    `among` says whether some of a store's keys name one; without it a key is the whole of a store's. Another process may
    write to the store meanwhile: a "no" counts only if no file changed while it was looked for. Values that newer ones hide
    are not found.
    """
    for _ in range(_LOOKS):
        before = _files(path)
        if CURRENT not in before:
            return False
        try:
            found = _has(path, keys, among)
        except Exception:  # noqa: BLE001 (RocksDB's own have no type)
            found = None
        if found or _files(path) == before:
            return found is not False
        time.sleep(_PAUSE_S)
    return True


def _has(path: Path, keys: list[bytes], among: Callable[[pa.Array], bool] | None) -> bool:
    db = Database(path, read_only=True)
    try:
        families = [db.family(name) for name in db.names]
        if among is None:
            asked = cast(list[str | int | float | bytes | bool], keys)
            return any(value is not None for family in families for value in cast(list[object], family.get(asked)))
        for family in families:
            names = iter(family.keys())
            while some := list(islice(names, _KEYS_AT_ONCE)):
                if among(pa.array(some, pa.binary())):
                    return True
        return False
    finally:
        db.close()


def _files(path: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of each of a store's files, by name."""
    found = {}
    for file in path.iterdir() if path.exists() else ():
        try:
            status = file.stat()
        except FileNotFoundError:
            continue
        if is_data(file.name):
            found[file.name] = (status.st_size, status.st_mtime_ns)
    return found
