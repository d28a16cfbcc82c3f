"""Local stores that may hold a key: a removed key's bytes stay in RocksDB's files and logs, so whole shards go."""

import mmap
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.config import Config
from sessionlake.engine import failpoints
from sessionlake.engine.operator import shard_of
from sessionlake.engine.pending import PENDING
from sessionlake.engine.shard import FORGET
from sessionlake.errors import LockedError, StoreError
from sessionlake.jobs.forget.keys import Keys
from sessionlake.jobs.sessionizer.single_driver import locked_store
from sessionlake.sessions.windows import SessionWindows
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval

_TELLING = 6
"""Bytes from which on a key is not found by chance."""


@contextmanager
def store_if_free(config: Config) -> Iterator[bool]:
    """Hold the store's lock; yield False, without it, where a driver on this machine has it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_store(config))
        except LockedError:
            yield False
        else:
            yield True


def erase_stores(config: Config, keys: Keys, *, alone: bool) -> tuple[int, int]:
    """Remove the keys' shards, which the engine then restores from the tables; return (removed, marked).

    Where a driver runs, shards are marked instead: it restores a marked one before it uses it again.
    """
    removed = marked = 0
    for shard in sorted(_shards(config, keys, alone=alone)):
        failpoints.hit("forget_before_store")
        folder = Path(config.driver_store_dir)
        if not alone:
            (folder / f"{shard}{FORGET}").touch()
            marked += 1
            continue
        existed = [path for path in (folder / f"{shard}{PENDING}", folder / str(shard)) if path.exists()]
        for path in existed:
            shutil.rmtree(path)
        (folder / f"{shard}{FORGET}").unlink(missing_ok=True)
        removed += bool(existed)
    return removed, marked


def _shards(config: Config, keys: Keys, *, alone: bool) -> set[int]:
    """Return the keys' shards, and what is left of times when there were more, or others had the keys."""
    count = config.pipeline.shards
    own = {int(path.name) for path in _own(config, keys)}
    there = {int(p.name.partition(".")[0]) for p in _folders(config)}
    found = find_in_stores(config, keys, alone=alone)
    other = {int(path.relative_to(config.driver_store_dir).parts[0].partition(".")[0]) for path in found}
    return own | other | {shard for shard in there if shard >= count}


def find_in_stores(config: Config, keys: Keys, *, alone: bool) -> list[Path]:
    """Return the stores, and files of stores or pending ones, that hold a key.

    A store's files are searched for the key's bytes where these stand as a key, unless it is so short that this is
    chance; the key's own store is asked for it, where no driver has it (`alone`). Pending files are read.
    """
    files = [file for folder in _folders(config) for file in sorted(folder.rglob("*")) if file.is_file()]
    long = [key for key in keys.encoded if len(key) >= _TELLING]
    found = [file for file in files if (_writes(file, keys) if _is_pending(file) else _holds(file, long, _is_key_at))]
    return found + [path for path in _own(config, keys) if alone and path.exists() and _stores(config, path, keys)]


def _own(config: Config, keys: Keys) -> list[Path]:
    shards = shard_of(pa.array(keys.values, pa.string()), config.pipeline.shards)
    return [Path(config.driver_store_dir) / str(shard) for shard in sorted(set(shards.tolist()))]


def _is_pending(file: Path) -> bool:
    return file.parent.suffix == PENDING


def _writes(pending: Path, keys: Keys) -> bool:
    """Say whether a pending file has a key; half a file, which no batch will use, where any of its bytes are one."""
    try:
        with pa.memory_map(str(pending)) as source:
            column = pa.ipc.open_file(source).read_all()["key"]
    except (OSError, pa.ArrowInvalid):
        return _holds(pending, keys.encoded, lambda *_: True)
    return bool(pc.any(pc.is_in(column.cast(pa.binary()), pa.array(keys.encoded, pa.binary()))).as_py())


def _stores(config: Config, path: Path, keys: Keys) -> bool:
    windows = SessionWindows(config.gap_us, config.grace_us, config.retention_us)
    try:
        store = SegmentedSessionStore(path, segment_interval(windows.kept_us))
    except StoreError:
        return True  # damaged: nobody knows
    try:
        ends = np.full(len(keys.encoded), np.iinfo(np.int64).min)
        return len(store.find_many(keys.encoded, ends).segment) > 0
    finally:
        store.close()


def _folders(config: Config) -> list[Path]:
    folder = Path(config.driver_store_dir)
    found = folder.iterdir() if folder.exists() else iter(())
    return [p for p in found if p.is_dir() and p.name.partition(".")[0].isdigit()]


def _holds(file: Path, keys: list[bytes], counts: Callable[[mmap.mmap, int, bytes], bool]) -> bool:
    """Say whether a key's bytes stand in a file, at a place that counts."""
    try:
        with file.open("rb") as opened:
            if not file.stat().st_size:
                return False
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return any(counts(content, at, key) for key in keys for at in _places(content, key))
    except FileNotFoundError:  # a running driver compacts
        return False


def _places(content: mmap.mmap, key: bytes) -> Iterator[int]:
    at = content.find(key)
    while at >= 0:
        yield at
        at = content.find(key, at + 1)


def _is_key_at(content: mmap.mmap, at: int, key: bytes) -> bool:
    """Say whether bytes are a whole key for RocksDB, not a part of another one.

    Its log has a key's length right before it; its tables that of the key and 8 bytes of their own, then the value's.
    """
    before = content[max(0, at - 8) : at]
    return before.endswith(_varint(len(key))) or _varint(len(key) + 8) in before[:-1]


def _varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low]) if not high else bytes([low | 0x80]) + _varint(high)
