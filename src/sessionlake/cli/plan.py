"""The command that shows the effect of a config on the tables that are there."""

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

_UNITS = ((1_000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB"), (1_000_000_000_000, "TB"))
_COLUMNS = ("pipeline", "change", "setting", "told")


@click.command("plan")
@config_argument(EITHER)
@click.option(
    "--write",
    is_flag=True,
    help="Add to the config the section that keeps earlier values for earlier event times, if it needs one ([[session.before]]).",
)
@format_options(
    table="lines for people",
    json="a list with an object for each pipeline",
    csv="a line for each change, below a line of the column names",
)
@one_line_errors
def plan_command(config_path: str, write: bool, form: str) -> None:  # noqa: FBT001 (click passes options as they are)
    """Compare a config with the tables that are there, and say of each change if `run` takes it.

    Of a project, the changes of each pipeline are told. Starts no Java, and changes nothing but the config, if --write is given. The
    exit code is 0 if `run` takes the config, or all of them, and 2 if it does not.
    """
    if is_project(config_path):
        given = [(member.path, member.config) for member in load_project(config_path).members.values()]
    else:
        given = [(config_path, load_config(config_path))]
    from sessionlake.preflight.plan import read_plan, write_kept

    plans: list[Plan] = []
    written: list[str | None] = []
    with progress() as shown:
        shown.step("comparing with the tables")
        for path, config in given:
            kept = write_kept(path, config) if write else None
            plans.append(read_plan(config if kept is None else kept.config, path))
            written.append(None if kept is None else kept.text)
            shown.count(len(plans), len(given), "pipelines")
    if form == CSV:
        print_rows(_COLUMNS, [row for plan in plans for row in _rows(plan)], limit=None, form=form)
    elif form == JSON:
        also = [{"written": text} if write else {} for text in written]
        print_objects([{**plan.fields(), **more} for plan, more in zip(plans, also, strict=True)], form)
    else:
        for (path, _), plan, text in zip(given, plans, written, strict=True):
            if write:
                _print_written(path, text)
            _print(plan)
    if any(plan.refused for plan in plans):
        sys.exit(ExitCode.USER)


def _print_written(path: str, text: str | None) -> None:
    if text is None:
        console.print(f"{path}: nothing to write", soft_wrap=True)
        return
    console.print(f"{path}: wrote", soft_wrap=True)
    for line in text.splitlines():
        console.print(f"  {line}", soft_wrap=True)


def _rows(plan: "Plan") -> list[tuple[str, str, str, str]]:
    return [
        (plan.pipeline, str(change.of), change.name, "; ".join(map(hide, (change.told, *change.lines))))
        for change in plan.changes
    ]


def _print(plan: "Plan") -> None:
    if plan.batch_id is None:
        console.print(f"{plan.pipeline}: no batches yet\nrun: begins with this config", soft_wrap=True)
        return
    watermark = "" if plan.watermark_us is None else f", watermark {format_time(plan.watermark_us)} UTC"
    console.print(f"{plan.pipeline}, batch {plan.batch_id:,}{watermark}", soft_wrap=True)
    # Not a table of `print_rows`: that fits the terminal by leaving text out, and here the text is the answer.
    rows = [
        cells
        for change in plan.changes
        for cells in ((str(change.of), change.name, change.told), *(("", "", line) for line in change.lines))
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
    for of, name, told in rows:
        console.print(f"  {of:<{widths[0]}}  {name:<{widths[1]}}  {hide(told)}", soft_wrap=True)
    if not rows:
        console.print("  nothing differs")
    if plan.kept is not None:
        console.print(plan.kept, soft_wrap=True)
    if plan.restored_bytes is not None:
        console.print(f"stores: restored from about {_size(plan.restored_bytes)}", soft_wrap=True)
    refused = ", ".join(dict.fromkeys(plan.refused))
    console.print(f"run: refused for {refused}" if refused else "run: takes it", soft_wrap=True)


def _size(count: int) -> str:
    """Return a number of bytes for people."""
    at = next((i for i, unit in enumerate(_UNITS) if count < 1000 * unit[0]), len(_UNITS) - 1)
    size, name = _UNITS[at]
    return f"{count / size:,.1f} {name}"
