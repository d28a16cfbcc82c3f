"""Local stores that may hold a key: a removed key's bytes stay in files until they are merged, so whole shards go."""

import mmap
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.keys import shard_of
from sessionlake.config.joint_keys import joint_text, parts_of
from sessionlake.config.load import Config
from sessionlake.config.store_engines import ROCKSDB
from sessionlake.engine import failpoints
from sessionlake.engine.pending import FORGET, PENDING, erase_store, mark, marked, read_pending, remove_all_marked
from sessionlake.errors import LockedError
from sessionlake.jobs.forget.keys import Keys, keys_in_front
from sessionlake.store.directory import RUN
from sessionlake.store.engines import engine_at, may_hold, run_holds, run_keys
from sessionlake.store.runs import DamagedError
from sessionlake.stream.lock import locked_store
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake

_TELLING = 6
"""Bytes from which on a key is not found by chance."""


@contextmanager
def store_if_free(config: Config) -> Iterator[bool]:
    """Hold the store's lock; yield False, without it, if a driver on this machine has it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_store(config))
        except LockedError:
            yield False
        else:
            yield True


def erase_stores(config: Config, keys: Keys, *, alone: bool) -> tuple[int, int]:
    """Remove the keys' shards, which the engine then restores from the tables; return (removed, marked).

    If a driver runs (not `alone`), shards are marked instead: it removes a marked one when no batch uses it.
    """
    folder = Path(config.driver_store_dir)
    removed = requested = 0
    for shard in sorted(_shards(config, keys)) if folder.exists() else ():
        failpoints.hit("forget_before_store")
        if alone:
            removed += any((folder / f"{shard}{suffix}").exists() for suffix in ("", PENDING))
            erase_store(folder / str(shard))
        else:
            mark(folder, shard)
            requested += 1
    return removed, requested


def await_removal(config: Config, waits: Callable[[], bool]) -> None:
    """Wait until the driver has removed the marked stores or has ended, at most as long as `waits` returns True."""
    folder = Path(config.driver_store_dir)
    while marked(folder):
        with store_if_free(config) as alone:
            if alone:
                remove_all_marked(folder)
                return
        if not waits():
            return


def elsewhere(config: Config, hosts: Iterable[str]) -> list[str]:
    """Return, for people, which stores of the pipeline can't be searched from here; `hosts` are the hosts that had shards."""
    found = []
    if "$" in config.pipeline.store:
        found.append(
            f"stores: pipeline.store {config.pipeline.store!r} may be another place for each executor; of this machine {config.driver_store_dir!r} was searched"
        )
    others = sorted(set(hosts) - {socket.gethostname()})
    if others:
        found.append(
            f"stores: on {', '.join(others)}; stop the stream, remove {config.store_dir!r} there, start it again"
        )
    return found


def _shards(config: Config, keys: Keys) -> set[int]:
    """Return the keys' shards, marked shards, and shards left from times with more shards or another assignment of keys."""
    folder, count = Path(config.driver_store_dir), config.pipeline.shards
    own = {int(path.name) for path in _own(config, keys)}
    there = {int(p.name.partition(".")[0]) for p in _folders(config)}
    if keys_in_front(config) and _of_rocksdb(_folders(config)):
        # The key may be a part of others in any shard, and RocksDB does not show what newer values hide.
        return own | there
    found = {int(path.relative_to(folder).parts[0].partition(".")[0]) for path in find_in_stores(config, keys)}
    return own | found | {shard for shard in there if shard >= count}


def find_in_stores(config: Config, keys: Keys) -> list[Path]:
    """Return the stores, their files, pending files, and markers of stores to be removed, that hold a key, or may hold a key.

    Every store is asked for the keys, even while a driver has it open, and so is each of its files: it may hold a row that counts no
    more. A file that can't be read is searched for the bytes of the keys, unless a key is so short that it would be found by chance.
    RocksDB's files are not: a store of RocksDB is asked as a whole.
    Pending files are read.
    """
    folder = Path(config.driver_store_dir)
    folders = _folders(config)
    named = _Named.of(config, keys)
    rocks = _of_rocksdb(folders)
    files = [file for each in folders if each not in rocks for file in sorted(each.rglob("*")) if file.is_file()]
    found = [file for file in files if (_writes(file, named) if _is_pending(file) else _has(file, named))]
    found += [path for path in folders if path.suffix != PENDING and _store_has(path, named, of_rocksdb=path in rocks)]
    return found + [folder / f"{shard}{FORGET}" for shard in marked(folder)]


@dataclass(frozen=True)
class _Named:
    """The keys as a store's keys name them: each is a store key or, if it is the key of rows in front, a part of many store keys."""

    keys: Keys
    columns: int = 1
    """How many parts the keys of the store have."""
    places: tuple[int, ...] = ()
    """The parts that are keys of rows in front."""

    @classmethod
    def of(cls, config: Config, keys: Keys) -> "_Named":
        """Return them for a pipeline's stores."""
        in_front, columns = keys_in_front(config), config.key_columns
        return cls(keys, len(columns), tuple(columns.index(column) for column in in_front))

    def among(self, found: pa.Array) -> bool:
        """True if any of a store's keys, as bytes, names a key."""
        if pc.any(pc.is_in(found, pa.array(self.keys.encoded, pa.binary()))).as_py():
            return True
        return any(self._is_part(found, key) for key in self.keys.values) if self.places else False

    def _is_part(self, found: pa.Array, key: str) -> bool:
        # As the text of a key of several columns has it, between the brackets.
        text = joint_text([key])[1:-1].encode()
        some = found.filter(pc.match_substring(found, text)).to_pylist()
        parts = (parts_of(name.decode(), self.columns) for name in some)
        return any(of is not None and key in [of[place] for place in self.places] for of in parts)


def _has(file: Path, named: _Named) -> bool:
    """True if a store's file has a key; in half a file, if any bytes equal a long key."""
    if RUN.fullmatch(file.name):
        with suppress(DamagedError):
            try:
                return named.among(run_keys(file)) if named.places else run_holds(file, named.keys.encoded)
            except FileNotFoundError:  # a running driver merges
                return False
    return _holds(file, [key for key in named.keys.encoded if len(key) >= _TELLING])


def _of_rocksdb(folders: Iterable[Path]) -> set[Path]:
    return {path for path in folders if path.suffix != PENDING and engine_at(path) == ROCKSDB}


def _store_has(path: Path, named: _Named, *, of_rocksdb: bool) -> bool:
    """Say whether a store has a key, or can't be read, so that nobody knows."""
    if not of_rocksdb:
        return may_hold(path, named.keys.encoded)
    try:
        from sessionlake.store.rocks_view import rocks_may_hold  # noqa: PLC0415 (rocksdict is imported only if a store needs it)
    except ImportError:
        return True
    return rocks_may_hold(path, named.keys.encoded, named.among if named.places else None)


def _own(config: Config, keys: Keys) -> list[Path]:
    """Return the stores of the keys' shards, by the config's number and by that of a driver which may run with another."""
    names, last = pa.array(keys.values, pa.string()), find_last_batch(Lake.of(config))
    counts = {config.pipeline.shards, *([] if last is None else [len(last.shards)])}
    shards = {shard for count in counts for shard in shard_of(names, count).tolist()}
    return [Path(config.driver_store_dir) / str(shard) for shard in sorted(shards)]


def _is_pending(file: Path) -> bool:
    return file.parent.suffix == PENDING


def _writes(pending: Path, named: _Named) -> bool:
    """True if a pending file has a key; in half a file, which no batch will use, if any bytes equal a key."""
    try:
        column = read_pending(pending)["key"]
    except (OSError, pa.ArrowInvalid):
        return _holds(pending, named.keys.encoded)
    return named.among(combined(column.cast(pa.binary())))


def _folders(config: Config) -> list[Path]:
    folder = Path(config.driver_store_dir)
    found = folder.iterdir() if folder.exists() else iter(())
    return [p for p in found if p.is_dir() and p.name.partition(".")[0].isdigit()]


def _holds(file: Path, keys: list[bytes]) -> bool:
    """Say whether a key's bytes stand in a file."""
    try:
        with file.open("rb") as opened:
            if not file.stat().st_size:
                return False
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return any(content.find(key) >= 0 for key in keys)
    except FileNotFoundError:  # a running driver merges
        return False
