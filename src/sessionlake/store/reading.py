"""Whether a store holds keys, asked without a change to it, and beside a process that has it open."""

import tempfile
import time
from pathlib import Path
from typing import cast

from rocksdict import AccessType, Options, Rdict

from sessionlake.store.rocks import META, store_options

_ATTEMPTS = 50
_PAUSE_S = 0.1
_LOGS_AND_LOCKS = ("LOG", "LOCK")
"""Beginnings of names of files that change without any data changing."""


def may_hold(path: Path, keys: list[bytes]) -> bool:
    """Say whether a store has one of the keys in any of its segments, or can't be read, so that nobody knows.

    Another process may write to the store meanwhile: a "no" counts only where no file changed while it was looked for.
    """
    for _ in range(_ATTEMPTS):
        before = _files(path)
        if "CURRENT" not in before:
            return False
        try:
            found = _has(path, list(before), keys)
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
        if not file.name.startswith(_LOGS_AND_LOCKS):
            found[file.name] = (status.st_size, status.st_mtime_ns)
    return found


def _has(path: Path, names: list[str], keys: list[bytes]) -> bool:
    # Opening writes beside the data even where it only reads; so it gets a directory of its own with links to the data.
    with tempfile.TemporaryDirectory(prefix="sessionlake-look-") as own:
        for name in names:
            Path(own, name).symlink_to(path / name)
        Path(own, "rocksdict-config.json").unlink(missing_ok=True)
        families = {name: _options() for name in Rdict.list_cf(own)}
        store = Rdict(own, options=_options(), column_families=families, access_type=AccessType.read_only())
        try:
            return any(_in_segment(store, name, keys) for name in families if name != META)
        finally:
            store.close()


def _in_segment(store: Rdict, name: str, keys: list[bytes]) -> bool:
    segment = store.get_column_family(name)
    try:
        values = cast(list[bytes | None], segment.get(cast(list[str | int | float | bytes | bool], keys)))
        return any(value is not None for value in values)
    finally:
        segment.close()


def _options() -> Options:
    """Return a store's options without the two that would make what is not there."""
    options = store_options()
    options.create_if_missing(create_if_missing=False)
    options.create_missing_column_families(create_missing_cfs=False)
    return options
