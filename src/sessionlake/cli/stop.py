"""The end of a command by ctrl-C or SIGTERM: soon, with one line about the state of its work, and with all processes that it started.

The first signal silences standard error, asks Java to end, and raises KeyboardInterrupt. While the stack unwinds,
lineage is sent, files of metrics are written, and temporary directories are removed. A thread watches: after `LIMIT_S`,
or at a second signal, it ends the process at once. No work is lost by that, because all work is written such that it
may be killed at any point.
"""

import atexit
import itertools
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from sessionlake import stopping
from sessionlake.config.operators import OPERATORS
from sessionlake.jobs.registry import JOBS

_REST = "the committed part stays, start it again for the rest"
_READS = "it only reads, and nothing was changed"
_LEFT: Mapping[str, str] = {
    "run": "nothing is lost, `sessionlake run` goes on from here",
    "bootstrap": "its one batch was not committed, start it again",
    "publish": "nothing is lost, `sessionlake publish` goes on from here",
    "compact": _REST,
    "reprocess-late": _REST,
    "redeem": _REST,
    "expire": _REST,
    "backfill": _REST,
    "forget": "the keys are not yet removed everywhere, start it again with the same keys",
    "quality": "there is no verdict, start it again",
    "rebuild": "nothing was made yet, start it again",
    "backup": "{directory} is no backup yet, start it again with the same directory",
    "restore": "nothing was put back, start it again",
    "init": "nothing was written, start it again",
    "sql": _READS,
    **{entry.rows.command: _READS for entry in OPERATORS.values()},
    "status": _READS,
    "views": _READS,
    "register": "what it has made stays, start it again for the rest",
    "check": _READS,
    "try": _READS,
    "graph": _READS,
    "show": _READS,
    "plan": _READS,
    "completion": _READS,
    "files": "the copied files stay, start it again for the rest",
    "jars": "the complete jars stay, start it again for the rest",
    "fast-start": "no archive was made, start it again",
    "demo": "start it again, it replaces {directory}",
}
"""The state of the work, unless `stopping.leaves` has set a more exact text; braces hold names of options and operands."""
_DRY = "a dry run writes nothing"
_UNTIL_STOPPED = ("run", "publish", "serve", "metrics")
"""Commands that end by a signal only, unless --once is given."""
UNREAD = 128 + signal.SIGPIPE
"""The exit code of a command that only reads, if the reader of the output has ended first; Unix's tools have the same."""
_RECORDED = {job.command for job in JOBS if job.recorded}


@dataclass(frozen=True)
class Command:
    """A command as it was called."""

    name: str
    params: Mapping[str, Any]

    @property
    def runs_until_stopped(self) -> bool:
        """Whether a signal is the usual end, and so no failure."""
        given = self.params.get
        if self.name == "status":
            return bool(given("watch"))
        return given("what") == "serve" if self.name == "demo" else self.name in _UNTIL_STOPPED and not given("once")

    @property
    def only_reads(self) -> bool:
        """Whether the command does nothing but print."""
        return _LEFT.get(self.name) == _READS and not self.params.get("write")


def line(command: Command | None) -> str:
    """Return the line: the command, that it was stopped, the state of its work and the next action."""
    if command is None:
        return "stopped; nothing was done"
    said = _standing(command)
    return f"{command.name}: stopped; {said}" if said else f"{command.name}: stopped"


def exit_code(command: Command | None, number: int) -> int:
    """Return 0 for a command that runs until it is stopped, otherwise the exit code of shells for the signal: 130 or 143."""
    return 0 if command is not None and command.runs_until_stopped else 128 + number


def _standing(command: Command) -> str | None:
    if command.params.get("dry_run"):
        return _DRY
    if command.runs_until_stopped and command.name in ("status", "demo"):
        return None
    said = stopping.work.left or _LEFT.get(command.name, "").format_map(command.params)
    run_id = stopping.work.run_id if command.name in _RECORDED else None
    return said if run_id is None else f"{said} (as the same run with `--run-id {run_id}`)"


_PROC = Path("/proc")
_LOOK_S = 0.02


@dataclass(frozen=True)
class Process:
    """A process. The time of the start distinguishes it from a later process with the same id."""

    pid: int
    started: str

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.lives:
            with suppress(OSError):
                os.kill(self.pid, number)

    @property
    def lives(self) -> bool:
        """Whether the process runs; a process that has ended and that its parent has not asked about does not."""
        found = _stat(self.pid)
        return found is not None and found[2] == self.started and found[0] not in "ZX"


def descendants() -> list[Process]:
    """Return this process's children and their children, the nearest first; none if there is no /proc.

    Without /proc Java ends by itself when its standard input ends.
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
    """Send SIGTERM to the children; return them and all processes below them."""
    found = descendants()
    for process in found:
        if (stat := _stat(process.pid)) is not None and stat[1] == os.getpid():
            process.send(signal.SIGTERM)
    return found


def end_all(asked: Iterable[Process], until: float) -> None:
    """Wait for the processes until a moment of the monotonic clock; then kill (SIGKILL) all that still run or were started since."""
    asked = list(asked)
    while any(process.lives for process in asked) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for process in {*asked, *descendants()}:
        process.send(signal.SIGKILL)


def _stat(pid: int) -> tuple[str, int, str] | None:
    """Return a process's state, parent and start time; None if there is no such process."""
    try:
        # The name before may hold spaces and brackets.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), fields[19]


_T = TypeVar("_T")
LIMIT_S = 4.0
"""From the first signal to the forced end."""
_DEAF_S = 1.5
"""The same if the main thread is in foreign code, such as a long query of DuckDB, and hears no signal."""
_JAVA_S = 2.8
"""The part of `LIMIT_S` in which Java may remove temporary files."""
_LINE_S = 1.0
"""How long an end waits for another thread's line: a held terminal takes no line."""
_DOUBLE_S = 0.3
"""A signal that follows so soon is the first signal again, sent to the group and to the process."""
_ERASE = b"\r\x1b[2K\x1b[?25h"
"""Removes a line of progress, and shows the cursor."""


class Stop:
    """The end of a command, once a signal has come."""

    def __init__(self) -> None:
        self.command: Command | None = None
        self.traced = False
        """Whether the user wants to see traces: then standard error stays as it is."""
        self.number: int | None = None
        self._at = 0.0
        self._begun, self._said = itertools.count(), itertools.count()
        self._line_is_there = threading.Event()
        self._errors = 2
        self._asked: list[Process] = []
        self._heard = self._raised = False
        self._code: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take ctrl-C and SIGTERM while the block runs, and until the process ends if one comes."""
        before = {number: signal.signal(number, self._handle) for number in stopping.heard()}
        atexit.register(self._leave)  # the first function that is registered runs last
        woken = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        stopping.forget_all(self.begin)
        thread = threading.Thread(target=self._watch, name="stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._raised = True  # nothing is to be interrupted from here on, to Python's own end
            if self.number is None:
                atexit.unregister(self._leave)
                signal.set_wakeup_fd(woken)
                for number, handler in before.items():
                    signal.signal(number, handler)
                os.close(self._write)
                thread.join()
                os.close(self._read)
            if self.number is None:
                stopping.forget_all()
            else:  # it may have come just now
                for number in before:
                    signal.signal(number, self._handle)

    def begin(self, number: int) -> None:
        """Note the first signal, and silence standard error: Java, its bridge and threads print traces of interrupted calls."""
        self._heard = self._heard or threading.current_thread() is threading.main_thread()
        if next(self._begun):
            return
        self._at = time.monotonic()  # before the number, by which the thread knows that there is a time
        self.number = number
        if not self.traced:
            logging.disable(logging.CRITICAL)
            sys.stderr = sys.__stderr__  # a live line has put itself in its place, and writes to standard output
            with suppress(OSError):
                errors, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 2)
                os.close(nowhere)
                self._errors = errors
                if os.isatty(errors):
                    os.write(errors, _ERASE)
        self._wake()

    def end(self) -> int:
        """End the processes below this process, print the line about the state of the work, and return the exit code."""
        if self.number is not None:  # else another one's KeyboardInterrupt, and another one's processes
            end_all(self._asked or ask_children(), self._at + _JAVA_S)
        self._code = self._say()
        return self._code

    def _leave(self) -> None:
        """Leave with the exit code: Python would end by SIGINT if KeyboardInterrupt passed a library that runs Python code itself."""
        if self._code is not None and Path(sys.argv[0]).name in _OWN_PROGRAMS:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self._code)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, once: the unwinding of the stack must not be interrupted."""
        self.begin(number)
        if not self._raised:
            self._raised = True
            self._asked = ask_children()
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """Read the signals, also while the main thread is in foreign code, and force the end when it is due."""
        while True:
            if not select.select([self._read], [], [], self._due())[0]:
                if self._due() == 0:  # else the main thread has heard meanwhile
                    self._force()
                continue
            numbers = os.read(self._read, 64)
            if not numbers:
                return
            for number in set(numbers).intersection(stopping.SIGNALS):
                if self.number is None:
                    self.begin(number)
                elif time.monotonic() - self._at > _DOUBLE_S:
                    self._force()

    def _due(self) -> float | None:
        """Return the seconds to the forced end; None if no signal has come."""
        if self.number is None:
            return None
        return max(0.0, self._at + (LIMIT_S if self._heard else _DEAF_S) - time.monotonic())

    def _force(self) -> None:
        """End the process as it is."""
        end_all(self._asked, 0)
        with suppress(OSError):
            if os.isatty(self._errors):  # a live line may have been drawn again since
                os.write(self._errors, _ERASE)
        os._exit(self._say())

    def _say(self) -> int:
        """Print the line, once, and return the exit code."""
        if next(self._said):
            # The watching thread and the main one may both end the process, which must not end before the line is written.
            self._line_is_there.wait(_LINE_S)
        else:
            text = f"sessionlake: {line(self.command)}\n"
            if self._errors == 2:
                sys.stderr.write(text)
                sys.stderr.flush()
            else:
                with suppress(OSError):
                    os.write(self._errors, text.encode())
            self._line_is_there.set()
        return exit_code(self.command, self.number or signal.SIGINT)

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._write, b"\0")


_OWN_PROGRAMS = ("sessionlake", "__main__.py")
"""The names of programs whose only work is a command. A test that runs commands goes on."""
_now: Stop | None = None


def begun_command(command: Command, *, traced: bool) -> None:
    """Note the running command, for its last line."""
    if _now is not None:
        _now.command, _now.traced = command, traced


def command_ends_unread() -> bool:
    """Return whether a command runs that ends if nobody reads its standard output; the help is such a command."""
    return _now is not None and (_now.command is None or _now.command.only_reads)


def interrupted() -> int:
    """End the command after a KeyboardInterrupt; return its exit code."""
    return 128 + signal.SIGINT if _now is None else _now.end()


def stoppable(command: Callable[[], _T]) -> _T:
    """Call a function, and end it as this module says if a signal comes: SystemExit with the code.

    A signal may also come while the handlers are put in place or taken away: that raises no other exception.
    """
    global _now  # noqa: PLW0603 (a process has one command at a time, and signals are the process's)
    if threading.current_thread() is not threading.main_thread():
        return command()
    outer, _now = _now, Stop()
    stop = _now
    try:
        try:
            with stop.installed():
                result = command()
        except BaseException:
            if stop.number is None:
                raise
        if stop.number is not None:
            raise SystemExit(stop.end())
        return result
    finally:
        _now = outer
