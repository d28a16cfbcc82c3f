"""A process's part in ctrl-C and SIGTERM: the line about the state of its work, and code that ends in its own time.

The command line installs the handlers (sessionlake.cli.stop). Without it, for example in a notebook, signals have
Python's own handlers.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class _Work:
    """The work in progress, for the line that is printed if it is interrupted."""

    left: str | None = None
    run_id: str | None = None
    begun: Callable[[int], None] = lambda _: None
    asked: threading.Event | None = None
    """Set when the main thread is asked to end, while it puts that off."""


work = _Work()


def leaves(text: str | None) -> None:
    """Set the line about the state of the work if the process is stopped from here on, with a remedy; None: the command's own line."""
    work.left = text


def runs_as(run_id: str | None) -> None:
    """Say under which run id the work goes on that is being done; None: under none."""
    work.run_id = run_id


def forget_all(begun: Callable[[int], None] = lambda _: None) -> None:
    """Begin again: nothing is left, and `begun` is called with the first signal that is put off."""
    work.left, work.run_id, work.begun = None, None, begun


def heard() -> list[signal.Signals]:
    """Return the signals that this process does not ignore. A shell makes processes in the background ignore ctrl-C."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def put_off() -> Iterator[threading.Event]:
    """Yield an event that ctrl-C and SIGTERM set instead of raising an exception; the second signal does its usual work.

    An exception in the middle of a call to Java breaks the connection, and with it all later calls to Java. Another
    thread than the main one, which gets no signals, has the event of the main one if that puts them off, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield work.asked or threading.Event()
        return
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in heard()}

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.set()
        for number_, handler in before.items():
            signal.signal(number_, _or_interrupt(handler))
        work.begun(number)

    for number in before:
        signal.signal(number, ask)
    outer, work.asked = work.asked, asked
    try:
        yield asked
    finally:
        work.asked = outer
        for number, handler in before.items():
            signal.signal(number, handler)


def asked_to_end() -> bool:
    """Say whether the process is asked to end, while the main thread puts that off."""
    return work.asked is not None and work.asked.is_set()


def pause(seconds: float) -> None:
    """Sleep; KeyboardInterrupt if the process is asked to end, also in another thread than the main one if that puts signals off."""
    if threading.current_thread() is threading.main_thread():
        time.sleep(seconds)
        return
    with put_off() as asked:
        if asked.wait(seconds):
            raise KeyboardInterrupt


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Put a program's own handlers of signals back at the end: SparkContext installs one that calls Java while Java may be being called.

    Without a handler of the program's own, as in a notebook, that one stays: there ctrl-C ends Spark's jobs by it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in own.items():
            if handler is signal.default_int_handler:
                continue
            signal.signal(number, handler)


def _or_interrupt(handler: object) -> Callable[[int, FrameType | None], None]:
    """Return a handler, or Python's own in the place of none: by default SIGTERM ends a process without a word."""
    return handler if callable(handler) and not isinstance(handler, signal.Handlers) else signal.default_int_handler
