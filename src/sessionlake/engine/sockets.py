"""A folder for Spark's Unix sockets, which is removed with the driver.

The folders of killed drivers are removed at the next driver's start.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX, _LOCK = "sessionlake-sockets-", "lock"
_YOUNG_SECONDS = 60


def socket_folder() -> str:
    """Return a new folder, for this user alone, that is removed when this process exits."""
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    # A plain descriptor, which nobody closes: it stays open, and so locked, while this process lives.
    fcntl.flock(os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY), fcntl.LOCK_EX)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process has ended: nobody holds their lock. Young folders stay, as they may have no lock yet."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            found = folder.lstat()
            if found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG_SECONDS:
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # in use, or another one removes it
