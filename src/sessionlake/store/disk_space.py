"""Space and bytes that a disk can't give: RocksDB's errors if a store lacks space, and an error in place of a SIGBUS for mapped files.

A compaction writes as much as it reads. If it fails because the disk is full, RocksDB retries it without end and without a
message, until there is space for it and for a write buffer.
"""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sessionlake.errors import DiskFullError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = "Writer has previous error"
WRITE_BUFFER = 64 << 20
"""The size of a store's write buffer, in bytes."""


def require_disk_space(path: Path, spare: int = 0) -> None:
    """Raise DiskFullError if the disk of a store has less free than its largest file, which a merge writes again, and `spare` bytes."""
    free, needed = free_bytes(path), needed_bytes(path) - WRITE_BUFFER + spare
    if free < needed:
        raise _full(path, free, needed)


def disk_full(path: Path) -> DiskFullError:
    """Return the error for a write that the system has refused because the disk is full."""
    return _full(path, free_bytes(path), needed_bytes(path))


def no_room(path: Path) -> DiskFullError:
    """Return the error for a batch's write to a shard's directory that the system has refused because the disk is full."""
    return DiskFullError(
        f"store: {str(path)!r} has {free_bytes(path) / 1e6:,.0f} MB free, and a batch needs more; make room and start again"
    )


def is_full(text: str, path: Path) -> bool:
    """Say whether a message about a store means that a disk or a quota is full, or was full at an earlier write."""
    if not path.exists():
        return False
    says_full = any(os.strerror(number) in text for number in _NO_SPACE)
    return says_full or (_REFUSED in text and free_bytes(path) < needed_bytes(path))


def is_no_space(error: OSError) -> bool:
    """Say whether the system has refused a write because a disk or a quota is full."""
    return error.errno in _NO_SPACE


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def needed_bytes(path: Path) -> int:
    """Return how many bytes must be free for RocksDB to go on after it had too few."""
    return WRITE_BUFFER + max((size for _, size in sizes(path)), default=0)


def sizes(path: Path) -> list[tuple[str, int]]:
    """Return a store's files of values, and their sizes; files removed meanwhile are left out."""
    file_sizes = []
    for file in os.scandir(path):
        if file.name.endswith(".sst"):
            try:
                file_sizes.append((file.name, file.stat().st_size))
            except FileNotFoundError:
                continue
    return sorted(file_sizes)


def _full(path: Path, free: int, needed: int) -> DiskFullError:
    return DiskFullError(
        f"store: {str(path)!r} has {free / 1e6:,.0f} MB free, compactions need {needed / 1e6:,.0f}; make room and start again"
    )


_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_POPULATE_READ = 22
"""Of `madvise`, since Linux 5.14: read the pages as a touch does; an error if one can't be read."""
_EHWPOISON = 133
_UNREADABLE = (errno.EFAULT, errno.EIO, _EHWPOISON)


def require_readable(mapped: npt.NDArray[np.uint8], path: Path) -> None:
    """Read mapped bytes from the disk. OSError that names the file if that fails, or if the file has become shorter.

    On older kernels, and on other systems than Linux, it does nothing.
    """
    start, size = mapped.ctypes.data, mapped.nbytes
    begin = start - start % mmap.PAGESIZE
    if size and _libc.madvise(begin, start + size - begin, _POPULATE_READ) and ctypes.get_errno() in _UNREADABLE:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
