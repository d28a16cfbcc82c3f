"""The command that tells the effect of a config on the tables that are there."""

import sys
from typing import TYPE_CHECKING

import click

from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import CSV, JSON, format_options, print_objects, print_rows
from sessionlake.cli.shared import console, format_time, one_line_errors
from sessionlake.config.load import load_config
from sessionlake.config.project import is_project, load_project
from sessionlake.config.secrets import hide
from sessionlake.errors import ExitCode

if TYPE_CHECKING:
    from sessionlake.preflight.plan import Plan

_COLUMNS = ("pipeline", "change", "setting", "told")


@click.command("plan")
@config_argument(EITHER)
@format_options(
    table="lines for people",
    json="a list with an object for each pipeline",
    csv="a line for each change, below a line of the column names",
)
@one_line_errors
def plan_command(config_path: str, form: str) -> None:
    """Compare a config with the tables that are there, and say of each change if `run` takes it.

    Of a project, the changes of each pipeline are told. Starts no Java and changes nothing. The exit code is 0 if `run` takes
    the config, or all of them, and 2 if it does not.
    """
    configs = [*load_project(config_path).configs.values()] if is_project(config_path) else [load_config(config_path)]
    from sessionlake.preflight.plan import read_plan

    plans = []
    with progress() as shown:
        shown.step("comparing with the tables")
        for config in configs:
            plans.append(read_plan(config))
            shown.count(len(plans), len(configs), "pipelines")
    if form == CSV:
        print_rows(_COLUMNS, [row for plan in plans for row in _rows(plan)], limit=None, form=form)
    elif form == JSON:
        print_objects([plan.fields() for plan in plans], form)
    else:
        for plan in plans:
            _print(plan)
    if any(plan.refused for plan in plans):
        sys.exit(ExitCode.USER)


def _rows(plan: "Plan") -> list[tuple[str, str, str, str]]:
    return [(plan.pipeline, str(change.of), change.name, hide(change.told)) for change in plan.changes]


def _print(plan: "Plan") -> None:
    if plan.batch_id is None:
        console.print(f"{plan.pipeline}: no batches yet\nrun: begins with this config", soft_wrap=True)
        return
    watermark = "" if plan.watermark_us is None else f", watermark {format_time(plan.watermark_us)} UTC"
    console.print(f"{plan.pipeline}, batch {plan.batch_id:,}{watermark}", soft_wrap=True)
    # Not a table of `print_rows`: that fits the terminal by leaving text out, and here the text is the answer.
    rows = _rows(plan)
    widths = [max((len(row[i]) for row in rows), default=0) for i in (1, 2)]
    for _, change, name, told in rows:
        console.print(f"  {change:<{widths[0]}}  {name:<{widths[1]}}  {told}", soft_wrap=True)
    if not rows:
        console.print("  nothing differs")
    refused = ", ".join(dict.fromkeys(plan.refused))
    console.print(f"run: refused for {refused}" if refused else "run: takes it", soft_wrap=True)
