"""Checks that a pipeline can write to its directories."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.config.problems import Problem

LITTLE_ROOM = 1 << 30
"""Free bytes of a disk below which a warning says so."""


def unwritable(config: Config) -> Iterator[Problem]:
    """Yield a problem for the warehouse, if it is local, and for the stores' directory if they can't be written."""
    for key, directory, remedy in _local_places(config):
        if not _can_write(directory):
            yield Problem(key, f"{str(directory)!r} can't be written; {remedy}")


def little_room(config: Config) -> Iterator[Problem]:
    """Yield a warning for each of these directories whose disk is nearly full."""
    for key, directory, _ in _local_places(config):
        try:
            free = shutil.disk_usage(_existing(directory)).free
        except OSError:
            continue
        if free < LITTLE_ROOM:
            yield Problem(key, f"the disk of {str(directory)!r} has {free / 1e6:,.0f} MB left; make room")


def _local_places(config: Config) -> Iterator[tuple[str, Path, str]]:
    warehouse = config.pipeline.warehouse
    if "://" not in warehouse:
        remedy = "give this user the right to or choose another path"
        yield "pipeline.warehouse", Path(warehouse.removeprefix("file:")), remedy
    yield "pipeline.store", Path(config.lock_dir), "choose a directory this user may write"


def _can_write(directory: Path) -> bool:
    """Say whether a directory can be written, or could be made."""
    nearest = _existing(directory)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return False
    if nearest == directory:
        return True
    # Permissions do not show that a file system takes no directories at all, for example /proc.
    try:
        Path(tempfile.mkdtemp(prefix=".sessionlake-", dir=nearest)).rmdir()
    except OSError:
        return False
    return True


def _existing(path: Path) -> Path:
    return path if os.path.lexists(path) or path == path.parent else _existing(path.parent)
