"""What a process knows of ctrl-C and SIGTERM: that it is to end, what to say is left then, and who ends in their own time.

The command line installs the handlers (sessionlake.cli.stop). Without it, as in a notebook, signals do what Python's own do.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class _Told:
    """What the work that goes on would leave behind."""

    left: str | None = None
    run_id: str | None = None
    begun: Callable[[int], None] = lambda _: None


_told = _Told()


def leaves(text: str | None) -> None:
    """Say what is left if the process is stopped from here on, and what to do; None: what the command says by itself."""
    _told.left = text


def left() -> str | None:
    """Return what `leaves` was told last."""
    return _told.left


def runs_as(run_id: str | None) -> None:
    """Say under which run id the work goes on that is being done; None: under none."""
    _told.run_id = run_id


def run_id() -> str | None:
    """Return what `runs_as` was told last."""
    return _told.run_id


def forget_all(begun: Callable[[int], None] = lambda _: None) -> None:
    """Begin anew: nothing is left, and `begun` is called with the first signal that is put off."""
    _told.left, _told.run_id, _told.begun = None, None, begun


def heard() -> list[signal.Signals]:
    """Return the signals that this process is not told to ignore, as a shell tells what it starts in the background of ctrl-C."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def put_off() -> Iterator[threading.Event]:
    """Yield an event that ctrl-C and SIGTERM set in place of an exception; the second signal does what it did before.

    An exception in the midst of a call to Java breaks the connection, and what the process says to Java after it.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in heard()}

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.set()
        for number_, handler in before.items():
            signal.signal(number_, _or_interrupt(handler))
        _told.begun(number)

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Put the handlers of signals back at the end: SparkContext installs one that calls Java while Java may be being called."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _or_interrupt(handler: object) -> Callable[[int, FrameType | None], None]:
    """Return a handler, or Python's own in the place of none: by default SIGTERM ends a process without a word."""
    return handler if callable(handler) and not isinstance(handler, signal.Handlers) else signal.default_int_handler
