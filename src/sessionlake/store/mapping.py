"""Bytes of mapped files that the disk can't give: an error, where to touch them would end the process by SIGBUS."""

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
