"""The command that shows how a pipeline, or each pipeline of a project, does: once, or for as long as one looks."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from sessionlake.cli.layout import laid_out
from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import FITS, JSON, TABLE, format_options, print_note, print_objects, print_rows
from sessionlake.cli.shared import console, format_time, one_line_errors, positive_duration
from sessionlake.cli.status_text import rendered, status_object
from sessionlake.config.durations import rough_duration
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import Project, is_project, load_project
from sessionlake.errors import NoBatchesError, first_line

if TYPE_CHECKING:
    from sessionlake.observe.overview import Overview, Tables

_COLUMNS = ("pipeline", "state", "batch", "lag", "events", "late", "dead", "reconciles", "last job", "quality")


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
            tables = read_tables(config)
        except NoBatchesError as error:
            failure = last_failure(config)
            if failure is None:
                raise
            raise NoBatchesError(f"{error}; the last run failed: {failure.error}") from error
    if form == TABLE:
        told = rendered(config, tables.status, _now_us(), _width())
        console.print(told, soft_wrap=not console.is_terminal)
    else:
        _write(config, tables, form, headed=True)


def print_project_status(project: Project, form: str) -> None:
    """Print the state of each pipeline of a project, and why it fails if it does."""
    with progress() as shown:
        shown.step("reading the tables")
        from sessionlake.observe.overview import overview

        overviews = []
        for config in project.configs.values():
            overviews.append(overview(config))
            shown.count(len(overviews), len(project.configs), "pipelines")
    _write_all(overviews, form)


def watch_status(watched: Config | Project, seconds: float, form: str = TABLE) -> None:
    """Show the status until interrupted: on a terminal in one place, elsewhere one after the other."""
    from sessionlake.observe.watch import pause_until

    watch = _PipelineWatch(watched) if isinstance(watched, Config) else _ProjectWatch(watched)
    headed = True
    live_view = console.is_terminal and form == TABLE
    with Live(console=console, auto_refresh=False) if live_view else nullcontext() as live:
        while True:
            due = time.monotonic() + seconds
            if form != TABLE:
                headed &= not watch.write(form, headed=headed)
            else:
                now_us = _now_us()
                table = Group(Text(f"{format_time(now_us)} UTC", style="dim"), *watch.table(now_us))
                if live:
                    live.update(table, refresh=True)
                else:
                    console.print(table, soft_wrap=True)  # a line of a log stays one
            sys.stdout.flush()
            pause_until(due)


class _PipelineWatch:
    """The status of one pipeline, looked at again and again."""

    def __init__(self, config: Config) -> None:
        self._config, self._look = config, _looks(config)

    def table(self, now_us: int) -> Sequence[RenderableType]:
        """Return the status, or why there is none."""
        from sessionlake.observe.watch import PASSING

        try:
            return [rendered(self._config, self._look().status, now_us, _width())]
        except PASSING as error:
            return [Text(first_line(error), style="red")]

    def write(self, form: str, *, headed: bool) -> bool:
        """Print the status as JSON or CSV; return whether there was a status."""
        from sessionlake.observe.watch import PASSING

        try:
            tables = self._look()
        except PASSING as error:
            click.echo(f"sessionlake: {first_line(error)}", err=True)
            return False
        _write(self._config, tables, form, headed=headed)
        return True


class _ProjectWatch:
    """A project's pipelines, looked at again and again."""

    def __init__(self, project: Project) -> None:
        self._looks = [(config, _looks(config)) for config in project.configs.values()]

    def table(self, now_us: int) -> Sequence[RenderableType]:
        """Return the table, and a line for each pipeline that fails."""
        overviews = self._overviews()
        rows = [_row(pipeline, now_us, words=True) for pipeline in overviews]
        table, notes = laid_out(_COLUMNS, rows, _width())
        return [table, *(Text(note, style="dim") for note in notes), *map(Text, _notes(overviews))]

    def write(self, form: str, *, headed: bool) -> bool:
        """Print the state for programs, JSON on one line, CSV with the names of the columns if it is `headed`; return True."""
        _write_all(self._overviews(), form, headed=headed, between=", ")
        return True

    def _overviews(self) -> "list[Overview]":
        from sessionlake.observe.overview import overview

        return [overview(config, look) for config, look in self._looks]


def _looks(config: Config) -> "Callable[[], Tables]":
    from sessionlake.observe.overview import looked_again, read_tables
    from sessionlake.observe.watch import Watch

    return Watch(config, read_tables, looked_again).look


def _write(config: Config, tables: "Tables", form: str, *, headed: bool) -> None:
    """Print a pipeline's status as JSON or CSV, which has a column for each number and text."""
    from sessionlake.observe.overview import overview

    print_objects([pipeline_object(overview(config, lambda: tables), _now_us())], form, headed=headed)


def _write_all(overviews: "Sequence[Overview]", form: str, *, headed: bool = True, between: str = ",\n ") -> None:
    """Print the state of a project's pipelines, as a table or as CSV with a line about each pipeline that fails."""
    now_us = _now_us()
    if form == JSON:
        print_objects([pipeline_object(pipeline, now_us) for pipeline in overviews], form, between=between)
        return
    rows = [_row(pipeline, now_us, words=form == TABLE) for pipeline in overviews]
    print_rows(_COLUMNS, rows, limit=len(rows), form=form, headed=headed)
    for line in _notes(overviews):
        print_note(line, form)


def _notes(overviews: "Sequence[Overview]") -> list[str]:
    """Return a line for each pipeline with which something is wrong."""
    notes = []
    for pipeline in overviews:
        status = pipeline.status
        refused = status.refused if status else None
        if told := pipeline.last_run or pipeline.told or (refused and f"a run would be refused: {refused}"):
            notes.append(f"{pipeline.name}: {told}")
        notes += [
            f"{pipeline.name}: its follower {follower.name} can't be read: {follower.unreadable}"
            for follower in (status.followers if status else [])
            if follower.unreadable is not None
        ]
    return notes


def _row(pipeline: "Overview", now_us: int, *, words: bool) -> list[Any]:
    status, lag_s = pipeline.status, pipeline.lag_s(now_us)
    lag: Any = lag_s if not words or lag_s is None else rough_duration(round(lag_s * 1e6))
    job = pipeline.jobs[0] if pipeline.jobs else None
    counts = status.counts if status else {}
    return [
        pipeline.name,
        pipeline.state.value,
        None if status is None else status.batch_id,
        lag,
        *(counts.get(name) for name in ("input", "late", "dead")),
        None if status is None else "yes" if status.reconciles else "NO",
        None if job is None else f"{job.job}{'' if job.finished else ' (not finished)'}",
        None if pipeline.verdict is None else "green" if pipeline.verdict else "RED",
    ]


def pipeline_object(pipeline: "Overview", now_us: int) -> dict[str, Any]:
    """Return a pipeline as one object: name, state, lag in seconds, whether the counts reconcile; then all that the tables say."""
    status = {} if pipeline.status is None else status_object(pipeline.config, pipeline.status, now_us)
    jobs = [{"job": run.job, "at": run.at, "finished": run.finished} for run in pipeline.jobs]
    return {
        "name": pipeline.name,
        "state": pipeline.state.value,
        "lag_seconds": pipeline.lag_s(now_us),
        "reconciles": pipeline.status.reconciles if pipeline.status else None,
        "error": pipeline.told or None,
        "failed_at": None if pipeline.failed_us is None else datetime.fromtimestamp(pipeline.failed_us / 1e6, UTC),
        "jobs": jobs,
        "quality": pipeline.verdict,
        **status,
    }


def _now_us() -> int:
    return time.time_ns() // 1000


def _width() -> int | None:
    return console.width if console.is_terminal else None
