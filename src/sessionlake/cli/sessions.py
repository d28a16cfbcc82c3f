"""The commands that look up a key's sessions, windows, pairs or row."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from sessionlake.cli.progress import progress
from sessionlake.cli.shared import one_line_errors
from sessionlake.cli.tables import print_rows
from sessionlake.config.load import load_config
from sessionlake.config.times import parse_time


def _looking_up(what: str, command: str = "") -> Callable[[Callable[..., None]], click.Command]:
    """Return what makes a command that looks up rows of a key: sessions or windows. It is called as these, unless `command` says how."""
    options = (
        click.argument("config_path", metavar="CONFIG"),
        click.option("--key", required=True, help=f"The {what}_key; - reads it from a line of standard input."),
        click.option("--from", "from_text", metavar="TIME", help=f"ISO date or time, UTC; {what}s that reach it or later."),
        click.option("--to", "to_text", metavar="TIME", help=f"ISO date or time, UTC, exclusive; {what}s that begin before it."),
        click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help=f"{what.title()}s to print at the most."),
        click.option("--json", "as_json", is_flag=True, help=f"Print a line of JSON a {what}."),
    )  # fmt: skip

    def made(function: Callable[..., None]) -> click.Command:
        for option in reversed(options):
            function = option(function)
        return click.command(command or f"{what}s")(function)

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


@_looking_up("table", "table")
@one_line_errors
def table_command(**options: Any) -> None:
    """Show a key's row as of the last committed batch."""
    _look_up("table", **options)


def _look_up(
    what: str, config_path: str, key: str, from_text: str | None, to_text: str | None, limit: int, *, as_json: bool
) -> None:
    config = load_config(config_path)
    config.require(what)
    from_us = None if from_text is None else parse_time(from_text, "--from")
    to_us = None if to_text is None else parse_time(to_text, "--to")
    if key == "-":
        key = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    from sessionlake.serve.queries import find_rows

    with progress() as shown:
        shown.step("reading the tables")
        columns, rows = find_rows(config, key, from_us, to_us, limit if as_json else limit + 1)
    if not as_json:
        print_rows(columns, rows, limit)
        return
    for row in rows:
        click.echo(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=_plain))


def _plain(value: Any) -> str:
    """Return what JSON has no form for: times as ISO text in UTC, bytes in base64."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value.isoformat())
