"""The command `forget`, whose keys come from a file that nobody else can read, or from standard input; never from the command line."""

import os
import stat
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sessionlake.cli.each import listed
from sessionlake.cli.jobs import command_of, run_job
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, open_session
from sessionlake.config.load import load_config
from sessionlake.errors import ExitCode, JobError
from sessionlake.jobs.registry import BY_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep

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


@command_of("forget", click.Argument(["words"], metavar="", nargs=-1, type=click.UNPROCESSED))
def forget_command(
    config_path: str,
    words: tuple[str, ...],
    keys_file: str | None,
    proof: bool,  # noqa: FBT001 (click passes flags by name)
    data_docs: Path | None,
    dry_run: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Read the keys from a file, never from an argument, and erase their data; with `proof` only search for it."""
    refuse_arguments(words)
    keys = read_keys(keys_file)
    if proof:
        _prove(config_path, keys, data_docs)

    def work(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.forget import forget

        return forget(spark, config, keys, data_docs=data_docs, dry_run=dry_run, on_step=on_step, **options)

    run_job(BY_NAME["forget"], config_path, work, dry_run=dry_run)


def _prove(config_path: str, keys: list[str], data_docs: Path | None) -> NoReturn:
    config = load_config(config_path)
    from sessionlake.jobs.forget import check

    with progress() as shown:
        found = check(open_session(config), config, keys, shown.step, data_docs)
    listed({"name": config.pipeline.name, "job": "forget", "clean": found.clean, **asdict(found)})
    for line in found.lines():
        console.print(line)
    sys.exit(ExitCode.DONE if found.clean else ExitCode.FOUND)
