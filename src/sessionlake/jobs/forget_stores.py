"""Local stores that may hold a key: a removed key's bytes stay in RocksDB's files and logs, so whole shards go."""

import mmap
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from sessionlake.config import Config
from sessionlake.engine import failpoints
from sessionlake.engine.operator import shard_of
from sessionlake.errors import StoreError
from sessionlake.jobs.forget_keys import Keys
from sessionlake.jobs.sessionizer.single_driver import locked_store

MARKER = ".forget"
"""Suffix of a file beside a shard's store, named after the shard: the store is to be cleared and restored."""


@contextmanager
def store_if_free(config: Config) -> Iterator[bool]:
    """Hold the store's lock; yield False, without it, where a driver on this machine has it."""
    lock = locked_store(config)
    try:
        lock.__enter__()
    except StoreError as error:
        if "is locked by process" not in str(error):
            raise
        yield False
        return
    try:
        yield True
    finally:
        lock.__exit__(None, None, None)


def erase_stores(config: Config, keys: Keys, *, alone: bool) -> tuple[int, int]:
    """Remove the keys' shards, which the engine then restores from the tables; return (removed, marked).

    Where a driver runs, shards are marked instead: it restores a marked one before it uses it again.
    """
    removed = marked = 0
    for shard in sorted(_shards(config, keys)):
        failpoints.hit("forget_before_store")
        folder = Path(config.store_dir)
        if not alone:
            (folder / f"{shard}{MARKER}").touch()
            marked += 1
            continue
        existed = [path for path in (folder / f"{shard}.pending", folder / str(shard)) if path.exists()]
        for path in existed:
            shutil.rmtree(path)
        (folder / f"{shard}{MARKER}").unlink(missing_ok=True)
        removed += bool(existed)
    return removed, marked


def _shards(config: Config, keys: Keys) -> set[int]:
    """Return the keys' shards, and what is left of times when there were more, or others had the keys."""
    count = config.pipeline.shards
    own = {int(shard) for shard in shard_of(pa.array(keys.values, pa.string()), count)}
    there = {int(p.name.partition(".")[0]) for p in _folders(config)}
    other = {int(p.relative_to(config.store_dir).parts[0].partition(".")[0]) for p in find_in_stores(config, keys)}
    return own | other | {shard for shard in there if shard >= count}


def find_in_stores(config: Config, keys: Keys) -> list[Path]:
    """Return the files of stores, and pending files, in which a key's bytes stand."""
    files = [file for folder in _folders(config) for file in sorted(folder.rglob("*")) if file.is_file()]
    return [file for file in files if _holds(file, keys.literals())]


def _folders(config: Config) -> list[Path]:
    folder = Path(config.store_dir)
    found = folder.iterdir() if folder.exists() else iter(())
    return [p for p in found if p.is_dir() and p.name.partition(".")[0].isdigit()]


def _holds(file: Path, keys: list[bytes]) -> bool:
    try:
        with file.open("rb") as opened:
            if not file.stat().st_size:
                return False
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return any(content.find(key) >= 0 for key in keys)
    except FileNotFoundError:  # a running driver compacts
        return False
