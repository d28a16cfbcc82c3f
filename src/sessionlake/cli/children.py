"""The processes that a command has started: Java and its Python workers, which must not outlive it."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_LOOK_S = 0.02


@dataclass(frozen=True)
class Process:
    """A process. The time at which it started distinguishes it from a later one with the same id."""

    pid: int
    started: str

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.lives:
            with suppress(OSError):
                os.kill(self.pid, number)

    @property
    def lives(self) -> bool:
        """Say whether it runs; one that has ended and waits for its parent to ask does not."""
        found = _stat(self.pid)
        return found is not None and found[2] == self.started and found[0] not in "ZX"


def descendants() -> list[Process]:
    """Return this process's children and theirs, the nearest first; none if there is no /proc.

    There Java ends by itself, as its standard input does.
    """
    parents: dict[int, list[Process]] = {}
    for pid in (int(folder.name) for folder in _PROC.glob("[0-9]*")):
        if (found := _stat(pid)) is not None:
            parents.setdefault(found[1], []).append(Process(pid, found[2]))
    nearest = [os.getpid()]
    processes: list[Process] = []
    for pid in nearest:
        processes += parents.get(pid, ())
        nearest += [process.pid for process in parents.get(pid, ())]
    return processes


def ask_children() -> list[Process]:
    """Send SIGTERM to the children, and return them with all that they have started."""
    found = descendants()
    for process in found:
        if (stat := _stat(process.pid)) is not None and stat[1] == os.getpid():
            process.send(signal.SIGTERM)
    return found


def end_all(asked: Iterable[Process], until: float) -> None:
    """Wait for the processes until a moment of the monotonic clock; then kill (SIGKILL) those that still run or were started since."""
    asked = list(asked)
    while any(process.lives for process in asked) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for process in {*asked, *descendants()}:
        process.send(signal.SIGKILL)


def _stat(pid: int) -> tuple[str, int, str] | None:
    """Return a process's state, its parent and the time of its start; None if there is none."""
    try:
        # The name before may hold spaces and brackets.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), fields[19]
