"""Whether a pipeline's driver lives on this machine, and the failure after which it is about to start the pipeline again."""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.config.paths import make_private
from sessionlake.config.secrets import hide
from sessionlake.errors import SessionlakeError, first_line, without_values

_FILE, _LOCK = "FAILING", "LOCK"
_LOCKS = Path("/proc/locks")
_STARTS_US = 5_000_000
"""How long after it was due a start may not have begun."""


@dataclass(frozen=True)
class Failing:
    """A failure of a pipeline whose driver goes on with the others of its project."""

    error: str
    """One line, without secrets; of an error that is not ours without values of the data."""
    again_us: int
    """When it is started again."""
    pid: int


def failing(config: Config) -> Failing | None:
    """Return the failure of a pipeline whose driver waits to start it again; None if there is none, or if it was started again."""
    with suppress(OSError, ValueError, TypeError):
        found = Failing(**json.loads(_file(config).read_text()))
        if time.time_ns() // 1000 < found.again_us + _STARTS_US and _lives(found.pid):
            return found
    return None


def failed(config: Config, error: BaseException, wait_s: float) -> None:
    """Record a failure, which `failing` returns until the pipeline is started again or this process ends."""
    again_us = time.time_ns() // 1000 + round(wait_s * 1e6)
    told = hide(first_line(error)) if isinstance(error, SessionlakeError) else without_values(error)
    found = Failing(told, again_us, os.getpid())
    with suppress(OSError):  # a disk that is full is perhaps the failure itself
        make_private(_file(config).parent)
        _file(config).write_text(json.dumps(asdict(found)))


def driver(config: Config) -> int | None:
    """Return the process on this machine that holds the pipeline's lock; None if none does, and on systems that do not tell."""
    lock = Path(config.lock_dir, _LOCK)
    with suppress(OSError, ValueError):
        # The number of a file is its own on one file system only: the holder must be who wrote the lock, too.
        inode, pid = str(lock.stat().st_ino), lock.read_text().strip()
        held = (line.split() for line in _LOCKS.read_text().splitlines())
        if any(parts[1] == "FLOCK" and parts[4] == pid and parts[5].rpartition(":")[2] == inode for parts in held):
            return int(pid)
    return None


def _file(config: Config) -> Path:
    return Path(config.lock_dir, _FILE)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
