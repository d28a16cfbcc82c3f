"""How much room RocksDB needs on the disk of a store, and what is said where it has less.

A merge of files writes as much as it reads. Once one has failed for want of room RocksDB tries it again, without end and without a word,
until there is as much as that and a write buffer besides.
"""

import errno
import os
from pathlib import Path

from sessionlake.errors import DiskFullError

_REFUSED = "Writer has previous error"
WRITE_BUFFER = 64 << 20
"""The size of a store's write buffer, in bytes."""


def require_room(path: Path, spare: int = 0) -> None:
    """Raise DiskFullError where the disk of a store has less free than its largest file, which a merge writes anew, and `spare` bytes."""
    free, needed = free_bytes(path), needed_bytes(path) - WRITE_BUFFER + spare
    if free < needed:
        raise _full(path, free, needed)


def disk_full(path: Path) -> DiskFullError:
    """Return what is to be said where the system has refused to write for want of room."""
    return _full(path, free_bytes(path), needed_bytes(path))


def is_full(text: str, path: Path) -> bool:
    """Say whether a message about a store is of a disk, or a quota, that is full, or of what RocksDB refuses after that."""
    if not path.exists():
        return False
    told = any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EDQUOT))
    return told or (_REFUSED in text and free_bytes(path) < needed_bytes(path))


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def needed_bytes(path: Path) -> int:
    """Return how many bytes must be free for RocksDB to go on after it had too few."""
    return WRITE_BUFFER + max((size for _, size in sizes(path)), default=0)


def sizes(path: Path) -> list[tuple[str, int]]:
    """Return the files of a store that hold values, and their sizes; those that go meanwhile are left out."""
    found = []
    for file in os.scandir(path):
        if file.name.endswith(".sst"):
            try:
                found.append((file.name, file.stat().st_size))
            except FileNotFoundError:
                continue
    return sorted(found)


def _full(path: Path, free: int, needed: int) -> DiskFullError:
    return DiskFullError(
        f"store: {str(path)!r} has {free / 1e6:,.0f} MB free, compactions need {needed / 1e6:,.0f}; make room and start again"
    )
