"""The phase of a pipeline's driver, in a file next to its lock, for outside observers."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.stopping import asked_to_end

FILE = "PHASE"
STARTING, RUNNING, ENDED, FAILED = "starting", "running", "ended", "failed"
"""Before the first batch, unless the query waits for input; after that; ended as asked; ended by an error. A driver that
is killed leaves one of the first two."""


class Phase:
    """A run's phase. It is written if possible: a full disk stops nothing here."""

    def __init__(self, config: Config) -> None:
        self._file = Path(config.lock_dir, FILE)
        self._now: str | None = None

    def reached(self, phase: str) -> None:
        """Write the phase, unless it is the present one."""
        if phase != self._now:
            self._now = phase
            with suppress(OSError):
                self._file.write_text(phase)


@contextmanager
def phases(config: Config, *, is_stream: bool) -> Iterator[Phase]:
    """Yield the phase of a run that holds the pipeline's lock; its end is the last phase.

    The pass of a job (not `is_stream`) leaves the word of the stream before it, which may have been killed.
    """
    phase, file = Phase(config), Path(config.lock_dir, FILE)
    before = None
    if not is_stream:
        with suppress(OSError):
            before = file.read_text()
    phase.reached(STARTING)
    end = FAILED
    try:
        yield phase
        end = ENDED
    except BaseException as error:
        # Ctrl-C in a terminal ends Java, too, and a run that starts then fails by that.
        if isinstance(error, KeyboardInterrupt) or asked_to_end():
            end = ENDED
        raise
    finally:
        phase.reached(end if is_stream else before or end)
