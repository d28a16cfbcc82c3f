"""The command that checks a pipeline, or a project of pipelines."""

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from sessionlake.cli.graph import tree
from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import CHECKING, progress
from sessionlake.cli.rows import JSON, format_options
from sessionlake.cli.shared import console, one_line_errors
from sessionlake.config.problems import Problem
from sessionlake.config.project import is_project
from sessionlake.config.secrets import hide
from sessionlake.errors import ExitCode

if TYPE_CHECKING:
    from sessionlake.preflight.check import Checked
    from sessionlake.preflight.project import CheckedProject


@click.command("check")
@config_argument(EITHER)
@format_options(text="lines for people", json="one object, for editors and CI")
@one_line_errors
def check_command(config_path: str, form: str) -> None:
    """Print every problem of a config, or of all configs of a project; a summary if there is none.

    A config's source, its first rows, and tables are looked at, too. A project is a directory with a project.toml. Starts no Java. The
    exit code is 0 if there is no problem, and 2 if there is one; warnings don't change it.
    """
    if is_project(config_path):
        from sessionlake.preflight.project import check_project

        with progress() as shown:
            shown.step(CHECKING)
            project = check_project(config_path, shown.count)
        ok, fields = project.ok, {"project": config_path, **project.fields()}
        if form != JSON:
            _print_project(config_path, project)
    else:
        from sessionlake.preflight.check import check

        with progress() as shown:
            shown.step(CHECKING)
            found = check(config_path)
        ok, fields = found.ok, {"config": config_path, **found.fields()}
        if form != JSON:
            _print(config_path, found)
    if form == JSON:
        click.echo(hide(json.dumps(fields, ensure_ascii=False)))
    if not ok:
        sys.exit(ExitCode.USER)


def _print(config_path: str, found: "Checked") -> None:
    _print_problems(found.problems, found.warnings)
    if found.ok:
        console.print(f"{config_path}: nothing is wrong", soft_wrap=True)
        for what, words in found.summary.items():
            console.print(f"  {what:<14}{words}", soft_wrap=True)


def _print_project(directory: str, found: "CheckedProject") -> None:
    _print_problems(found.problems, found.warnings)
    if not found.ok or found.project is None:
        return
    count = len(found.project.members)
    console.print(f"{directory}: nothing is wrong with {count} pipeline{'s' if count > 1 else ''}", soft_wrap=True)
    for line in tree(found.project.graph, lambda name: found.checked[name].summary["computes"]):
        console.print(f"  {line}", soft_wrap=True)


def _print_problems(problems: Iterable[Problem], warnings: Iterable[Problem]) -> None:
    for problem in problems:
        click.echo(hide(f"sessionlake: {problem}"), err=True)
    for warning in warnings:
        click.echo(hide(f"sessionlake: warning: {warning}"), err=True)
