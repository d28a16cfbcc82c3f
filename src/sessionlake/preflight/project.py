"""Checks of a project before it runs: of each pipeline, between pipelines, and for a batch of the pipelines that one reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sessionlake.config.load import Config
from sessionlake.config.problems import Gathered, InvalidConfigError, Problem, problems_of
from sessionlake.config.project import Project, read_project
from sessionlake.errors import AwaitedError, SessionlakeError
from sessionlake.jobs.registry import BY_NAME, Kind
from sessionlake.preflight.check import Checked, check_loaded, machine, misfits
from sessionlake.preflight.checks import problems_of_pipeline
from sessionlake.preflight.summary import summary_of
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake


def require_upstream(config: Config) -> None:
    """Raise AwaitedError if a pipeline whose results are read has no batches yet."""
    for side in config.inputs.values():
        upstream = config.upstream.get(side.source.AT)
        if upstream is not None and find_last_batch(Lake(upstream.warehouse, upstream.changelog)) is None:
            raise AwaitedError.of(side.source.place_at, side.source.place)


OnCount = Callable[[int, int, str], None]
RUN = "run"
"""The pipeline itself among the schedules of [airflow]."""


@dataclass(frozen=True)
class CheckedProject:
    """The result of a check of a project."""

    project: Project | None
    """The pipelines whose files are right; None if the directory is no project."""
    problems: tuple[Problem, ...]
    """Problems of all files."""
    checked: Mapping[str, Checked]
    """The result of each pipeline whose file is right, by name."""
    of_machine: tuple[Problem, ...] = ()
    """Warnings about what a run needs and this machine lacks."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    @property
    def warnings(self) -> list[Problem]:
        """The warnings of all pipelines, and of the machine."""
        return [*(warning for one in self.checked.values() for warning in one.warnings), *self.of_machine]

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "ok": self.ok,
            "errors": [problem.fields() for problem in self.problems],
            "warnings": [warning.fields() for warning in self.warnings],
            "pipelines": {name: dict(one.summary) for name, one in self.checked.items()},
        }


def check_project(directory: str | Path, on_count: OnCount = lambda *_: None) -> CheckedProject:
    """Return all problems of all files of a project. Starts no JVM. `on_count` gets the numbers of checked and of all pipelines."""
    gathered = Gathered()
    try:
        loaded = read_project(directory)
    except SessionlakeError as error:
        return CheckedProject(None, tuple(problems_of(error)), {})
    gathered.add(*loaded.problems)
    if packages := misfits():
        return CheckedProject(loaded.project, (*gathered.problems, *packages), {})
    checked: dict[str, Checked] = {}
    here = machine()
    gathered.add(*here.problems)
    for name, member in loaded.project.members.items():
        member_checked = check_loaded(member.config, member.file)
        left = tuple(_without_awaited(loaded.project, name, member_checked.problems))
        checked[name] = replace(
            member_checked, problems=left, summary=member_checked.summary or summary_of(member.config)
        )
        gathered.add(*left, *member.file.located(_unknown_jobs(member.config.airflow.schedules)))
        on_count(len(checked), len(loaded.project.members), "pipelines")
    return CheckedProject(loaded.project, tuple(gathered.problems), checked, here.warnings)


def unready(project: Project, on_count: OnCount = lambda *_: None) -> dict[str, Exception]:
    """Return why pipelines can't run as they are, by name: InvalidConfigError with all problems, or the error that ended a check.

    Starts no JVM. `on_count` is that of `check_project`.
    """
    errors: dict[str, Exception] = {}
    for number, (name, member) in enumerate(project.members.items(), 1):
        try:
            problems = _without_awaited(project, name, problems_of_pipeline(member.config))
        except Exception as error:  # noqa: BLE001 (whatever it is, the other pipelines run)
            errors[name] = error
        else:
            if problems:
                errors[name] = InvalidConfigError(member.file.located(problems))
        on_count(number, len(project.members), "pipelines")
    return errors


def _without_awaited(project: Project, name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, except for tables that another pipeline of the project has yet to make."""
    awaited = {
        edge.at
        for edge in project.graph.edges
        if edge.downstream == name and not Lake.of(project.members[edge.upstream].config)[edge.table].exists()
    }
    return [problem for problem in problems if problem.key not in awaited]


def _unknown_jobs(schedules: Mapping[str, str]) -> list[Problem]:
    # A job's needed range of times is the interval of Airflow's run.
    by_itself = (
        job
        for job in BY_NAME.values()
        if job.operands == ("CONFIG",) and not any(o.required and o.kind is not Kind.TIME for o in job.options)
    )
    known = [RUN, *(job.name for job in by_itself if job.dag)]
    return [
        Problem(
            f"airflow.schedules.{name}", f"is no job that Airflow can start by itself; write one of {', '.join(known)}"
        )
        for name in schedules
        if name not in known
    ]
