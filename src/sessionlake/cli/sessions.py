"""The commands that look up a key's sessions, windows, pairs or row."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.progress import progress
from sessionlake.cli.rows import format_options, limit_option, print_rows
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.load import Config, load_config
from sessionlake.config.times import parse_time
from sessionlake.errors import ConfigError, NoBatchesError

if TYPE_CHECKING:
    from sessionlake.serve.queries import Answer


@dataclass(frozen=True)
class LookUp:
    """What a command that looks up a key finds, in words."""

    command: str
    row: str
    rows: str
    key: str
    times: tuple[str, str]
    """What --from and --to do."""


_BY_OPERATOR = {
    "session": LookUp("sessions", "session", "sessions", "session_key", ("Show only sessions that end at this time or later", "Show only sessions that begin before this time")),
    "window": LookUp("windows", "window", "windows", "window_key", ("Show only windows that end after this time", "Show only windows that begin before this time")),
    "join": LookUp("joins", "pair", "pairs", "join_key", ("Show only pairs whose later message is of this time or later", "Show only pairs whose later message is older than this time")),
    "table": LookUp("table", "row", "rows", "table_key", ("Show the row only if its event is of this time or later", "Show the row only if its event is older than this time")),
}  # fmt: skip


def _looking_up(operator: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return what makes a function the command that looks up rows of an operator's."""
    of = _BY_OPERATOR[operator]
    options = (
        click.argument("config_path", metavar="CONFIG"),
        click.option("--key", required=True, help=f"The {of.key} to look up; - reads it from a line of standard input."),
        click.option("--from", "from_text", metavar="TIME", help=f"{of.times[0]}: an ISO date or time in UTC."),
        click.option("--to", "to_text", metavar="TIME", help=f"{of.times[1]}: an ISO date or time in UTC."),
        limit_option,
        format_options(f"an object a line, for each {of.row}", f"a line for each {of.row}, below a line of the column names"),
    )  # fmt: skip

    def made(function: Callable[..., None]) -> click.Command:
        for option in reversed(options):
            function = option(function)
        return click.command(of.command)(function)

    return made


@_looking_up("session")
@one_line_errors
def sessions_command(**options: Any) -> None:
    """Show a key's sessions as of the last committed batch, oldest first."""
    _look_up("session", **options)


@_looking_up("window")
@one_line_errors
def windows_command(**options: Any) -> None:
    """Show a key's windows as of the last committed batch, oldest first."""
    _look_up("window", **options)


@_looking_up("join")
@one_line_errors
def joins_command(**options: Any) -> None:
    """Show a key's pairs as of the last committed batch, oldest first."""
    _look_up("join", **options)


@_looking_up("table")
@one_line_errors
def table_command(**options: Any) -> None:
    """Show a key's row as of the last committed batch."""
    _look_up("table", **options)


def _look_up(
    operator: str, config_path: str, key: str, from_text: str | None, to_text: str | None, limit: int | None, form: str
) -> None:
    config = load_config(config_path)
    _check_operator(config, operator, config_path)
    from_us = None if from_text is None else parse_time(from_text, "--from")
    to_us = None if to_text is None else parse_time(to_text, "--to")
    if key == "-":
        key = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    from sessionlake.serve.queries import answer_key

    with ExitStack() as stack:
        with progress() as shown:
            shown.step("reading the tables")
            answer = stack.enter_context(answer_key(config, key, from_us, to_us))
        none_told = _none_told(config, answer, key, in_times=(from_us, to_us) != (None, None))
        print_rows(answer.columns, answer.rows, limit=limit, form=form, none_told=none_told)


def _check_operator(config: Config, operator: str, config_path: str) -> None:
    """Raise ConfigError that names the command to use if the pipeline computes something else."""
    if config.operator != operator:
        of, asked = _BY_OPERATOR[config.operator], _BY_OPERATOR[operator]
        computed = "a table" if config.operator == "table" else of.command
        raise ConfigError(
            f"{asked.command}: this pipeline computes {computed}; use: sessionlake {of.command} {config_path} --key KEY"
        )


def _none_told(config: Config, answer: "Answer", key: str, *, in_times: bool) -> str:
    """Return the line that says that a key has no rows; NoBatchesError before the first batch."""
    if answer.batch_id is None:
        raise NoBatchesError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no batches yet; run `sessionlake run` first"
        )
    of = _BY_OPERATOR[config.operator]
    what = of.row if config.operator == "table" else of.rows
    final = "final " if config.section.shown == "final" else ""
    times = " in these times" if in_times else ""
    return f"no {final}{what} of the key {key!r}{times} as of batch {answer.batch_id}"
