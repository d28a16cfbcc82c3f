"""Check whether a store holds keys, without a change to it, even while another process has it open."""

import time
from pathlib import Path
from typing import cast

from sessionlake.store.database import Database, is_data

_ATTEMPTS = 50
_PAUSE_S = 0.1


def may_hold(path: Path, keys: list[bytes]) -> bool:
    """Say whether a store has one of the keys in any of its segments, or can't be read, so that nobody knows.

    Another process may write to the store meanwhile: a "no" counts only if no file changed while it was looked for.
    """
    for _ in range(_ATTEMPTS):
        before = _files(path)
        if "CURRENT" not in before:
            return False
        try:
            found = _has(path, keys)
        except Exception:  # noqa: BLE001 (RocksDB's own have no type)
            found = None
        if found or _files(path) == before:
            return found is not False
        time.sleep(_PAUSE_S)
    return True


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


def _has(path: Path, keys: list[bytes]) -> bool:
    db = Database(path, read_only=True)
    asked = cast(list[str | int | float | bytes | bool], keys)
    try:
        return any(
            value is not None for name in db.names for value in cast(list[bytes | None], db.family(name).get(asked))
        )
    finally:
        db.close()
