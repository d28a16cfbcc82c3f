"""`status` of a project, a line for each pipeline, and a pipeline's status as an object."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from sessionlake.cli.layout import laid_out
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import JSON, TABLE, print_note, print_objects, print_rows
from sessionlake.cli.shared import console, format_time
from sessionlake.cli.status_text import status_object
from sessionlake.config.durations import rough_duration
from sessionlake.config.project import Project

if TYPE_CHECKING:
    from sessionlake.observe.overview import Overview

_COLUMNS = ("pipeline", "state", "batch", "lag", "events", "late", "dead", "reconciles", "last job", "quality")


def print_project_status(project: Project, form: str) -> None:
    """Print the state of each pipeline of a project, and why it fails if it does."""
    with progress() as shown:
        shown.step("reading the tables")
        from sessionlake.observe.overview import overview

        found = []
        for config in project.configs.values():
            found.append(overview(config))
            shown.count(len(found), len(project.configs), "pipelines")
    now_us = time.time_ns() // 1000
    if form == JSON:
        print_objects([pipeline_object(one, now_us) for one in found], form)
    else:
        _print_rows(found, form, now_us)


class ProjectWatch:
    """The state of a project's pipelines, looked at again and again."""

    def __init__(self, project: Project) -> None:
        from sessionlake.observe.overview import looked_again, read_tables
        from sessionlake.observe.watch import Watch

        self._looks = [(config, Watch(config, read_tables, looked_again).look) for config in project.configs.values()]

    def table(self) -> RenderableType:
        """Return the time, the table, and a line for each pipeline that fails."""
        now_us, found = time.time_ns() // 1000, self._look()
        rows = [_row(one, now_us, words=True) for one in found]
        told, notes = laid_out(_COLUMNS, rows, console.width if console.is_terminal else None)
        lines = [Text(note, style="dim") for note in notes] + [Text(line) for line in _notes(found)]
        return Group(Text(f"{format_time(now_us)} UTC", style="dim"), told, *lines)

    def write(self, form: str, *, headed: bool) -> bool:
        """Print it for programs, JSON on one line, CSV with the names of its columns if it is `headed`; True."""
        now_us, found = time.time_ns() // 1000, self._look()
        if form == JSON:
            print_objects([pipeline_object(one, now_us) for one in found], form, between=", ")
        else:
            _print_rows(found, form, now_us, headed=headed)
        return True

    def _look(self) -> "list[Overview]":
        from sessionlake.observe.overview import overview

        return [overview(config, look) for config, look in self._looks]


def _print_rows(found: "Sequence[Overview]", form: str, now_us: int, *, headed: bool = True) -> None:
    rows = [_row(one, now_us, words=form == TABLE) for one in found]
    print_rows(_COLUMNS, rows, limit=len(rows), form=form, headed=headed)
    for line in _notes(found):
        print_note(line, form)


def _notes(found: "Sequence[Overview]") -> list[str]:
    """Return a line for each pipeline with which something is wrong."""
    notes = []
    for one in found:
        refused = one.status.refused if one.status else None
        if told := one.last_run or one.told or (refused and f"a run would be refused: {refused}"):
            notes.append(f"{one.name}: {told}")
        followers = one.status.followers if one.status else []
        notes += [
            f"{one.name}: its follower {follower.name} can't be read: {follower.unreadable}"
            for follower in followers
            if follower.unreadable is not None
        ]
    return notes


def _row(one: "Overview", now_us: int, *, words: bool) -> list[Any]:
    status, lag_s = one.status, one.lag_s(now_us)
    lag: Any = lag_s if not words or lag_s is None else rough_duration(round(lag_s * 1e6))
    job = one.jobs[0] if one.jobs else None
    counts = status.counts if status else {}
    return [
        one.name,
        one.state.value,
        None if status is None else status.batch_id,
        lag,
        *(counts.get(name) for name in ("input", "late", "dead")),
        None if status is None else "yes" if status.reconciles else "NO",
        None if job is None else f"{job.job}{'' if job.finished else ' (not finished)'}",
        None if one.verdict is None else "green" if one.verdict else "RED",
    ]


def pipeline_object(one: "Overview", now_us: int) -> dict[str, Any]:
    """Return a pipeline as one object: its name, state, lag in seconds and whether its counts reconcile; and all that its tables say."""
    status = {} if one.status is None else status_object(one.config, one.status, now_us)
    jobs = [{"job": run.job, "at": run.at, "finished": run.finished} for run in one.jobs]
    return {
        "name": one.name,
        "state": one.state.value,
        "lag_seconds": one.lag_s(now_us),
        "reconciles": one.status.reconciles if one.status else None,
        "error": one.told or None,
        "failed_at": None if one.failed_us is None else datetime.fromtimestamp(one.failed_us / 1e6, UTC),
        "jobs": jobs,
        "quality": one.verdict,
        **status,
    }
