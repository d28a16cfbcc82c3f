"""Whether a pipeline's driver lives on this machine, and the last failure of a run, until one is well.

The failure is kept in a file with the stores, or among the temporary files if their disk can't be written: that may be
the failure. It outlives its process, but is known on this machine alone. A process that is killed leaves none.
"""

import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.config.paths import make_private
from sessionlake.config.secrets import hide
from sessionlake.errors import AggregateError, ExitCode, SessionlakeError, first_line, without_values
from sessionlake.stream.phase import FILE as PHASE

_FILE, _LOCK = "FAILING", "LOCK"
_LOCKS = Path("/proc/locks")
_STARTS_US = 5_000_000
"""How long after it was due a start may not have begun."""
_LONGEST = 1000
"""The number of an error's kept characters."""
_NO_FAILURE = (ExitCode.NOT_NEEDED, ExitCode.BUSY, ExitCode.NO_BATCHES)
"""Errors with these codes leave the pipeline as it was: another process runs it, or it waits for one in front."""


@dataclass(frozen=True)
class Failing:
    """A failure of a run."""

    error: str
    """One line, without secrets, and without data values if the error is not ours."""
    again_us: int | None
    """When the same process starts the pipeline again; None if it has ended, or will not."""
    pid: int
    at_us: int = 0
    """When it failed; 0 in a record of an earlier release."""


def failing(config: Config) -> Failing | None:
    """Return the failure of a pipeline whose driver waits to start it again; None if there is none, or if it was started again."""
    record = _read(config)
    if record is None or record.again_us is None:
        return None
    waits = time.time_ns() // 1000 < record.again_us + _STARTS_US and _lives(record.pid)
    return record if waits else None


def last_failure(config: Config) -> Failing | None:
    """Return the last failure of a pipeline's run; None if a later run was well, or one is at work."""
    record = _read(config)
    # An earlier release left its record when the pipeline was well again.
    return record if record is not None and record.at_us and driver(config) is None else None


def failed(config: Config, error: BaseException, wait_s: float | None = None) -> None:
    """Record a run's failure; `wait_s` are the seconds until its process starts the pipeline again, None if it does not."""
    now_us = time.time_ns() // 1000
    # A user's class may say a value of an event.
    ours = isinstance(error, SessionlakeError) and not isinstance(error, AggregateError)
    told = hide(first_line(error) if ours else without_values(error))
    again_us = None if wait_s is None else now_us + round(wait_s * 1e6)
    failure = Failing(" ".join(told.split())[:_LONGEST], again_us, os.getpid(), now_us)
    for file in _files(config):
        with suppress(OSError):
            make_private(file.parent)
            if file.name == _FILE or _own(file.parent):
                file.write_text(json.dumps(asdict(failure)))
                return


def well(config: Config) -> None:
    """Forget the last failure: a run has committed a batch, or has come to its end."""
    for file in _files(config):
        with suppress(OSError):
            file.unlink()


@contextmanager
def failure_kept(config: Config) -> Iterator[Callable[[], None]]:
    """Record the failure of a run that ends by an error; yield a function to call after each batch. A stopped run has not failed."""
    try:
        yield lambda: well(config)
    except Exception as error:
        if not isinstance(error, SessionlakeError) or error.exit_code not in _NO_FAILURE:
            failed(config, error)
        raise
    well(config)


def driver(config: Config) -> int | None:
    """Return this machine's process that holds the pipeline's lock; None without one, and on systems that do not tell."""
    lock = Path(config.lock_dir, _LOCK)
    with suppress(OSError, ValueError):
        # A file's number is unique on a single file system only: the holder must also be the lock's writer.
        inode, pid = str(lock.stat().st_ino), lock.read_text().strip()
        held = (line.split() for line in _LOCKS.read_text().splitlines())
        if any(parts[1] == "FLOCK" and parts[4] == pid and parts[5].rpartition(":")[2] == inode for parts in held):
            return int(pid)
    return None


def phase(config: Config) -> str | None:
    """Return the phase of this machine's last driver, a word of `stream.phase`; None if unknown."""
    with suppress(OSError):
        return Path(config.lock_dir, PHASE).read_text().strip() or None
    return None


def _read(config: Config) -> Failing | None:
    """Return the newest record of a failure."""
    found = []
    for file in _files(config):
        with suppress(OSError, ValueError, TypeError):
            if file.name == _FILE or _own(file.parent):
                found.append(Failing(**json.loads(file.read_text())))
    return max(found, key=lambda one: one.at_us, default=None)


def _own(directory: Path) -> bool:
    """Say whether a directory among the temporary files is this user's: anybody may make one, or a link, in its place."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _files(config: Config) -> list[Path]:
    """Return the record's places; the first writable one is used."""
    name = sha256(config.lock_dir.encode()).hexdigest()[:32]
    return [Path(config.lock_dir, _FILE), Path(tempfile.gettempdir(), f"sessionlake-{os.getuid()}", f"{name}.json")]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
