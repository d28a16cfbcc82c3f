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
_STARTS_US, _SOON_US = 5_000_000, 120_000_000


@dataclass(frozen=True)
class Failing:
    """A failure of a pipeline whose driver goes on with the others of its project."""

    error: str
    """One line, without secrets; of an error that is not ours without values of the data."""
    since_us: int
    """When it first failed, of failures that followed each other soon."""
    times: int
    again_us: int
    """When it is started again."""
    pid: int


def failing(config: Config) -> Failing | None:
    """Return the failure of a pipeline whose driver waits to start it again; None if there is none, or if it was started again."""
    found = _recorded(config)
    waits = found is not None and time.time_ns() // 1000 < found.again_us + _STARTS_US
    return found if found is not None and waits and _lives(found.pid) else None


def failed(config: Config, error: BaseException, wait_s: float) -> None:
    """Record a failure, which `failing` returns until the pipeline is started again or this process ends."""
    now_us, before = time.time_ns() // 1000, _recorded(config)
    soon = before is not None and before.pid == os.getpid() and now_us < before.again_us + _SOON_US
    since_us, times = (before.since_us, before.times) if before is not None and soon else (now_us, 0)
    again_us = now_us + round(wait_s * 1e6)
    told = hide(first_line(error)) if isinstance(error, SessionlakeError) else without_values(error)
    found = Failing(told, since_us, times + 1, again_us, os.getpid())
    with suppress(OSError):  # a disk that is full is perhaps the failure itself
        make_private(_file(config).parent)
        _file(config).write_text(json.dumps(asdict(found)))


def driver(config: Config) -> int | None:
    """Return the process on this machine that holds the pipeline's lock; None if none does, and on systems that do not tell."""
    lock = Path(config.lock_dir, _LOCK)
    with suppress(OSError, ValueError):
        inode = str(lock.stat().st_ino)
        for line in _LOCKS.read_text().splitlines():
            parts = line.split()
            if parts[1] == "FLOCK" and parts[5].rpartition(":")[2] == inode:
                return int(lock.read_text().strip())
    return None


def _recorded(config: Config) -> Failing | None:
    with suppress(OSError, ValueError, TypeError):
        return Failing(**json.loads(_file(config).read_text()))
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
