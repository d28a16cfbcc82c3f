"""The command that shows how a pipeline does, once or for as long as one looks."""

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.overview import ProjectWatch, pipeline_object, print_project_status
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import FITS, TABLE, format_options, print_objects
from sessionlake.cli.shared import console, format_time, one_line_errors, positive_duration
from sessionlake.cli.status_text import rendered
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import Project, is_project, load_project
from sessionlake.errors import NoBatchesError, first_line

if TYPE_CHECKING:
    from sessionlake.observe.overview import Tables


@click.command("status")
@config_argument(EITHER)
@click.option("--watch", is_flag=True, help="Show the status repeatedly, until ctrl-C.")
@click.option("--interval", default="5 seconds", show_default=True, help="With --watch: the time between two looks.")
@format_options(
    table=FITS,
    json="a list with an object for each pipeline; with --watch such a list a line",
    csv="a line of names and a line of values, without the last batches",
)
@one_line_errors
def status_command(config_path: str, watch: bool, interval: str, form: str) -> None:  # noqa: FBT001 (click passes flags by name)
    """Show watermark, lag, counts that reconcile, store size and the last batches. Of a project, a line for each pipeline."""
    loaded = load_project(config_path) if is_project(config_path) else load_config(config_path)
    seconds = positive_duration(interval, "--interval")
    if watch:
        watch_status(loaded, seconds, form)
    elif isinstance(loaded, Config):
        print_status(loaded, form)
    else:
        print_project_status(loaded, form)


def print_status(config: Config, form: str = TABLE) -> None:
    """Print a pipeline's status; NoBatchesError if it has no batches yet."""
    from sessionlake.observe.overview import read_tables
    from sessionlake.observe.standing import last_failure

    with progress() as shown:
        shown.step("reading the tables")
        try:
            found = read_tables(config)
        except NoBatchesError as error:
            failure = last_failure(config)
            if failure is None:
                raise
            raise NoBatchesError(f"{error}; the last run failed: {failure.error}") from error
    if form == TABLE:
        told = rendered(config, found.status, time.time_ns() // 1000, _width())
        console.print(told, soft_wrap=not console.is_terminal)
    else:
        _write(config, found, form, headed=True)


def watch_status(of: Config | Project, seconds: float, form: str = TABLE) -> None:
    """Show the status until interrupted: on a terminal in one place, elsewhere one after the other."""
    from sessionlake.observe import watch

    looks = _PipelineWatch(of) if isinstance(of, Config) else ProjectWatch(of)
    seen = False
    live_view = console.is_terminal and form == TABLE
    with Live(console=console, auto_refresh=False) if live_view else nullcontext() as live:
        while True:
            due = time.monotonic() + seconds
            if live:
                live.update(looks.table(), refresh=True)
            elif form == TABLE:
                console.print(looks.table(), soft_wrap=True)  # a line of a log stays one
            else:
                seen |= looks.write(form, headed=not seen)
            sys.stdout.flush()
            watch.pause_until(due)


class _PipelineWatch:
    """The status of one pipeline, looked at again and again."""

    def __init__(self, config: Config) -> None:
        from sessionlake.observe import watch
        from sessionlake.observe.overview import looked_again, read_tables

        self._config, self._tables = config, watch.Watch(config, read_tables, looked_again)

    def table(self) -> RenderableType:
        """Return the time and the status, or why there is none."""
        from sessionlake.observe.watch import PASSING

        now_us = time.time_ns() // 1000
        moment = Text(f"{format_time(now_us)} UTC", style="dim")
        try:
            return Group(moment, rendered(self._config, self._tables.look().status, now_us, _width()))
        except PASSING as error:
            return Group(moment, Text(first_line(error), style="red"))

    def write(self, form: str, *, headed: bool) -> bool:
        """Print the status as JSON or CSV; say whether there was one."""
        from sessionlake.observe.watch import PASSING

        try:
            found = self._tables.look()
        except PASSING as error:
            click.echo(f"sessionlake: {first_line(error)}", err=True)
            return False
        _write(self._config, found, form, headed=headed)
        return True


def _write(config: Config, found: "Tables", form: str, *, headed: bool) -> None:
    from sessionlake.observe.overview import overview

    one = overview(config, lambda: found)
    print_objects([pipeline_object(one, time.time_ns() // 1000)], form, headed=headed)


def _width() -> int | None:
    return console.width if console.is_terminal else None
