"""The command that checks a pipeline."""

import json
import sys
from typing import TYPE_CHECKING

import click

from sessionlake.cli.shared import console, one_line_errors
from sessionlake.config.secrets import hide
from sessionlake.errors import ExitCode

if TYPE_CHECKING:
    from sessionlake.preflight.check import Checked


@click.command("check")
@click.argument("config_path", metavar="CONFIG")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object for editors and CI.",
)
@one_line_errors
def check_command(config_path: str, form: str) -> None:
    """Print every problem of a config, its source and its tables, or a summary of the pipeline if there is none.

    Starts no Java. The exit code is 0 if there is no problem, and 2 if there is one; warnings don't change it.
    """
    from sessionlake.preflight.check import check

    found = check(config_path)
    if form == "json":
        click.echo(hide(json.dumps({"config": config_path, **found.fields()}, ensure_ascii=False)))
    else:
        _print(config_path, found)
    if not found.ok:
        sys.exit(ExitCode.USER)


def _print(config_path: str, found: "Checked") -> None:
    for problem in found.problems:
        click.echo(hide(f"sessionlake: {problem}"), err=True)
    for warning in found.warnings:
        click.echo(hide(f"sessionlake: warning: {warning}"), err=True)
    if found.ok:
        console.print(f"{config_path}: nothing is wrong", soft_wrap=True)
        for what, words in found.summary.items():
            console.print(f"  {what:<14}{words}", soft_wrap=True)
