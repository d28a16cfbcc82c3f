"""A read-only snapshot of a RocksDB store while another process has it open: the counterpart of `secondary` for sorted files."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pyarrow as pa
from rocksdict import Rdict

from sessionlake.errors import StoreError
from sessionlake.store.api import IDS_FROM
from sessionlake.store.database import Database, is_data
from sessionlake.store.directory import CURRENT, is_damage
from sessionlake.store.rocks import SEGMENT, live_segments
from sessionlake.store.runs import DamagedError
from sessionlake.store.secondary import Items

_ATTEMPTS, _RETRY_S = 5, 0.01
_LOOKS, _PAUSE_S = 50, 0.1
"""`rocks_may_hold` tries again, after a pause, until no file changes during a try."""
_KEYS_AT_ONCE = 10_000


class RocksView:
    """A snapshot of a store. FileNotFoundError if there is none, StoreError if it can't be read.

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
            except Exception as found:  # noqa: BLE001 (rocksdict raises plain Exception; a file may have gone meanwhile)
                error = found
                time.sleep(_RETRY_S)
            else:
                return
        raise StoreError(f"store: {str(path)!r} can't be read ({error}); mend that, or remove it") from error

    def _open(self) -> None:
        self._db = Database(self._path, read_only=True)
        # A commit's segment made between the readings of the families and of the log would be missing.
        live = live_segments(self._db)
        self._families = {number: self._db.family(f"{SEGMENT}{number}") for number in live if number < IDS_FROM}
        self._segments = sorted(self._families)

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._segments

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry; StoreError if it can't be read."""
        try:
            return self._db.meta(name)
        except Exception as error:
            raise StoreError(f"store: {str(self._path)!r} can't be read ({error}); mend that, or remove it") from error

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        family = self._families.get(segment)
        if family is None:
            return [None] * len(keys)
        with self._read_errors():
            return cast(list[bytes | None], family.get(cast(list[str | int | float | bytes | bool], keys)))

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys."""
        if segment not in self._families:
            return
        entries = self._families[segment].iter()
        first, last = (high, low) if backward else (low, high)
        with self._read_errors():
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
        with self._read_errors():
            entries.status()  # raises if reading ended before the last key

    @contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = str(error)
            raise (DamagedError if is_damage(text, self._path) else OSError)(text) from error


def rocks_may_hold(path: Path, keys: list[bytes], matches: Callable[[pa.Array], bool] | None) -> bool:
    """Say whether a RocksDB store may contain a key in any segment; True also if it can't be read.

    `matches` gets an array of stored keys and says whether one matches. Without it stored keys are compared with `keys`. Another
    process may write meanwhile: a "no" counts only if no file changed during the search. Overwritten and deleted entries
    which files still have are not found.
    """
    for _ in range(_LOOKS):
        before = _files(path)
        if CURRENT not in before:
            # A removal, which takes that file first, may have been interrupted.
            return any(name.endswith((".sst", ".log")) for name in before)
        try:
            holds = _has(path, keys, matches)
        except Exception:  # noqa: BLE001 (rocksdict raises plain Exception)
            holds = None
        if holds or _files(path) == before:
            return holds is not False
        time.sleep(_PAUSE_S)
    return True


def _has(path: Path, keys: list[bytes], matches: Callable[[pa.Array], bool] | None) -> bool:
    db = Database(path, read_only=True)
    try:
        families = [db.family(name) for name in db.names]
        if matches is None:
            asked = cast(list[str | int | float | bytes | bool], keys)
            return any(value is not None for family in families for value in cast(list[object], family.get(asked)))
        return any(matches(pa.array(some, pa.binary())) for family in families for some in _keys(family))
    finally:
        db.close()


def _keys(family: Rdict) -> Iterator[list[bytes]]:
    """Yield all keys of a family, some at a time; raise if they can't be read to the end, where rocksdict's `keys` ends without a word."""
    entries = family.iter()
    entries.seek_to_first()
    while entries.valid():
        some: list[bytes] = []
        while entries.valid() and len(some) < _KEYS_AT_ONCE:
            some.append(cast(bytes, entries.key()))
            entries.next()
        yield some
    entries.status()


def _files(path: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of each file of a store, by name; none if the store is gone."""
    files = {}
    with suppress(FileNotFoundError):
        for file in path.iterdir():
            with suppress(FileNotFoundError):
                status = file.stat()
                if is_data(file.name):
                    files[file.name] = (status.st_size, status.st_mtime_ns)
    return files
