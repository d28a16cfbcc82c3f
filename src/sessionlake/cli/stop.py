"""The end of a command by ctrl-C or SIGTERM: soon, with one line about the state of its work, and with all processes that it started.

The first signal silences standard error, asks Java to end, and raises KeyboardInterrupt. While the stack unwinds,
lineage is sent, files of metrics are written, and temporary directories are removed. A thread watches: after `LIMIT_S`,
or at a second signal, it ends the process at once. No work is lost by that, because all work is written such that it
may be killed at any point.
"""

import itertools
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from sessionlake import stopping
from sessionlake.cli import children
from sessionlake.cli.stop_lines import Command, exit_code, line

_T = TypeVar("_T")
LIMIT_S = 4.0
"""From the first signal to the end that is forced."""
_DEAF_S = 1.5
"""The same if the main thread does not even hear of it, being in foreign code such as a long query of DuckDB's."""
_JAVA_S = 2.8
"""The part of it that Java gets to remove its temporary files."""
_LINE_S = 1.0
"""How long an end waits for another thread's line: a terminal that is held takes none."""
_DOUBLE_S = 0.3
"""A signal that follows so soon is the same one, sent to the group and to the process."""
_ERASE = b"\r\x1b[2K\x1b[?25h"
"""Removes a line of progress, and shows the cursor."""


class Stop:
    """The end of one command, once it is asked for."""

    def __init__(self) -> None:
        self.command: Command | None = None
        self.traced = False
        """Whether the user wants to see traces: then standard error is left as it is."""
        self.number: int | None = None
        self._at = 0.0
        self._begun, self._said = itertools.count(), itertools.count()
        self._line_is_there = threading.Event()
        self._errors = 2
        self._asked: list[children.Process] = []
        self._heard = self._raised = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take ctrl-C and SIGTERM while the block runs, and until the process ends if one comes."""
        before = {number: signal.signal(number, self._handle) for number in stopping.heard()}
        woken = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        stopping.forget_all(self.begin)
        thread = threading.Thread(target=self._watch, name="stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._raised = True  # nothing is to be interrupted from here on, to Python's own end
            if self.number is None:
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
        """Note the first signal, and silence output that it causes: Java, its bridge and threads print traces of interrupted calls."""
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
        """End the processes that this one has started, print the line about the state of the work, and return the exit code."""
        if self.number is not None:  # else another one's KeyboardInterrupt, and another one's processes
            children.end_all(self._asked or children.ask_children(), self._at + _JAVA_S)
        return self._say()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, once: the unwinding of the stack must not be interrupted."""
        self.begin(number)
        if not self._raised:
            self._raised = True
            self._asked = children.ask_children()
            raise KeyboardInterrupt

    def _watch(self) -> None:
        """Read the signals, which come here also while the main thread is in foreign code, and force the end when it is due."""
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
        """Return the seconds to the end that is forced; None if none was asked for."""
        if self.number is None:
            return None
        return max(0.0, self._at + (LIMIT_S if self._heard else _DEAF_S) - time.monotonic())

    def _force(self) -> None:
        """End the process as it is."""
        children.end_all(self._asked, 0)
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


_now: Stop | None = None


def begun_command(command: Command, *, traced: bool) -> None:
    """Note which command runs, for the line that it ends with."""
    if _now is not None:
        _now.command, _now.traced = command, traced


def command_ends_unread() -> bool:
    """Say whether a command runs that is to end if nobody reads its standard output; the help is one."""
    return _now is not None and (_now.command is None or _now.command.only_reads)


def interrupted() -> int:
    """End the command that a KeyboardInterrupt has left; return its exit code."""
    return 128 + signal.SIGINT if _now is None else _now.end()


def stoppable(command: Callable[[], _T]) -> _T:
    """Call a function, and end it as this module says if a signal comes: SystemExit with the code.

    A signal may also come while the handlers are put in place or taken away: no exception of theirs gets by.
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
