"""The command that looks up a key's sessions."""

import json
import sys
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import click

from sessionlake.cli.shared import one_line_errors
from sessionlake.cli.tables import print_rows
from sessionlake.config.load import load_config
from sessionlake.config.times import parse_time


@click.command("sessions")
@click.argument("config_path", metavar="CONFIG")
@click.option("--key", required=True, help="The session_key; - reads it from a line of standard input.")
@click.option("--from", "from_text", metavar="TIME", help="ISO date or time, UTC; sessions that reach it or later.")
@click.option(
    "--to", "to_text", metavar="TIME", help="ISO date or time, UTC, exclusive; sessions that begin before it."
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Sessions to print at the most."
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON a session.")
@one_line_errors
def sessions_command(
    config_path: str,
    key: str,
    from_text: str | None,
    to_text: str | None,
    limit: int,
    as_json: bool,  # noqa: FBT001 (click passes flags by name)
) -> None:
    """Show a key's sessions as of the last committed batch, oldest first."""
    config = load_config(config_path)
    from_us = None if from_text is None else parse_time(from_text, "--from")
    to_us = None if to_text is None else parse_time(to_text, "--to")
    if key == "-":
        key = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    from sessionlake.serve.queries import find_sessions

    columns, rows = find_sessions(config, key, from_us, to_us, limit if as_json else limit + 1)
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
