"""Standard output and standard error whose reader may end first: `head`, a terminal that is closed, a collector of logs.

Python raises an error at the next write then, in whatever thread it is. In a batch, which Java waits for, rich makes
an exit of it that Java never hears of. So no write raises it: all later output goes nowhere, also that of Java, if it
is started later. A command that only reads ends if nobody reads its results; all others do their work to the end.
"""

import errno
import io
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from sessionlake.cli.stop import UNREAD, command_ends_unread

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO)
"""The errors of a write to a pipe, to a socket and to a terminal, if nobody is at the other end."""


@contextmanager
def readers_may_end() -> Iterator[None]:
    """Let the readers of this process's standard output and error end while the block runs.

    Streams that are not the process's own, for example a test's, and files are left as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout, _end_unread)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr, lambda: None)
    guarded = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in filter(None, guarded):
            stream.flush()


def _guarded(stream: TextIO | None, then: Callable[[], None]) -> Any:
    """Return a stream to the same place, which calls `then` when its reader has ended."""
    if not isinstance(stream, io.TextIOWrapper) or stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.flush()
    raw = _Unread(stream.fileno(), then)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _end_unread() -> None:
    """Leave a command whose results nobody reads. Other threads than the main one just go on."""
    if threading.current_thread() is threading.main_thread() and command_ends_unread():
        raise SystemExit(UNREAD)


class _Unread(io.FileIO):
    """A file descriptor of which nobody reads any more, once a write has failed for that."""

    def __init__(self, number: int, then: Callable[[], None]) -> None:
        super().__init__(number, "wb", closefd=False)
        self._then = then

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, and at the first time that nobody reads lead all that is written from then on to nowhere."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE:
                raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        self._then()
        return memoryview(data).nbytes
