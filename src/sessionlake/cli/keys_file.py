"""Session keys that a command reads: from a file that nobody else can read, or standard input; never from its command line."""

import os
import stat
import sys
from pathlib import Path
from typing import NoReturn

import click

from sessionlake.errors import JobError

_STDIN = "-"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BOM = "\ufeff"


def read_keys(path: str | None) -> list[str]:
    """Return the keys of a file, or (`-`) of standard input, by line; those of blank lines are empty.

    A key is a line of UTF-8 up to its line feed: any other character may be part of it. Two things are not part of a
    key: a byte order mark at the start of the file, and a carriage return before the line feed if every line has one,
    as editors on Windows write them.

    Raises JobError if there is no file, if it can't be read, or if its group or others can read it too.
    """
    if path is None:
        raise JobError("--keys-file: none is given; pass a file with a key a line, or - for standard input")
    try:
        text = _read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"byte {error.start} is no UTF-8"
        raise JobError(f"--keys-file: {path!r} can't be read ({reason}); pass a text file with a key a line") from None
    *lines, rest = text.removeprefix(_BOM).split("\n")
    if lines and all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return [*lines, rest]


def refuse_arguments(words: tuple[str, ...]) -> None:
    """Raise JobError if keys stand on the command line."""
    if words:
        raise JobError(
            f"KEY: {len(words)} given on the command line, which shells, process lists and logs keep; "
            "write them into a file that only you can read and pass --keys-file, or - for standard input"
        )


def _read(path: str) -> bytes:
    if path == _STDIN:
        return _read_stdin()
    with Path(path).open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & _OTHERS:
            _refuse(path, mode)
        return file.read()


def _read_stdin() -> bytes:
    """Read standard input, once: a command over a project asks for the keys for each pipeline."""
    context = click.get_current_context(silent=True)
    if context is None:
        return sys.stdin.buffer.read()
    if _STDIN not in context.meta:
        context.meta[_STDIN] = sys.stdin.buffer.read()
    found: bytes = context.meta[_STDIN]
    return found


def _refuse(path: str, mode: int) -> NoReturn:
    raise JobError(
        f"--keys-file: {path!r} has mode {mode:04o}, so that others can read or change the keys; chmod 600 it"
    )
