"""One run of `forget` at a time on a machine: if two runs cut keys from the same commit, the later run would undo the earlier cut."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.config.paths import make_private
from sessionlake.errors import BusyError

_NAME = "FORGET"


@contextmanager
def one_at_a_time(config: Config, waits: Callable[[], bool]) -> Iterator[None]:
    """Hold the pipeline's lock for erasures; wait for it as long as `waits` does and says True, then raise BusyError."""
    make_private(Path(config.lock_dir))
    with Path(config.lock_dir, _NAME).open("a") as file:
        while not _taken(file.fileno()):
            if not waits():
                raise BusyError(
                    f"forget: another run is at work on pipeline {config.pipeline.name!r}; repeat this one when that has ended"
                )
        yield


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
