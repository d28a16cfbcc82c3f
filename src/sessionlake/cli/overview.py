"""`status` of a project, a line for each pipeline, and a pipeline's status as an object."""

import time
from typing import TYPE_CHECKING, Any

from sessionlake.cli.progress import progress
from sessionlake.cli.rows import JSON, TABLE, print_note, print_objects, print_rows
from sessionlake.cli.status_text import status_object
from sessionlake.config.durations import rough_duration
from sessionlake.config.project import load_project

if TYPE_CHECKING:
    from sessionlake.observe.overview import Overview

_COLUMNS = ("pipeline", "state", "batch", "lag", "events", "late", "dead", "reconciles", "last job", "quality")


def print_project_status(directory: str, form: str) -> None:
    """Print the state of each pipeline of a project, and why it fails if it does."""
    project = load_project(directory)
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
        return
    rows = [_row(one, now_us, words=form == TABLE) for one in found]
    print_rows(_COLUMNS, rows, limit=len(rows), form=form)
    for one in found:
        refused = one.status.refused if one.status else None
        if told := one.told or (refused and f"a run would be refused: {refused}"):
            print_note(f"{one.name}: {told}", form)
        for follower in one.status.followers if one.status else []:
            if follower.unreadable is not None:
                print_note(f"{one.name}: its follower {follower.name} can't be read: {follower.unreadable}", form)


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
        "jobs": jobs,
        "quality": one.verdict,
        **status,
    }
