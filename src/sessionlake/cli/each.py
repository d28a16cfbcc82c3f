"""A job's command over a project: the job of each pipeline, one after the other, in one process."""

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.failures import error_lines
from sessionlake.cli.rows import JSON, lines_aside, print_objects
from sessionlake.cli.shared import console
from sessionlake.config.project import Member, Project, is_project, load_project
from sessionlake.config.secrets import hide
from sessionlake.errors import ExitCode
from sessionlake.stopping import leaves, runs_as

if TYPE_CHECKING:
    from sessionlake.jobs.run import JobReport

_REPORTS = "sessionlake.reports"
"""The place in click's context of the counts of the pipelines' reports."""
_OBJECTS = "sessionlake.objects"
"""The place in click's context of the objects that are printed at the end, if the command prints JSON."""
_HARMLESS = (ExitCode.NOT_NEEDED, ExitCode.NO_BATCHES)
"""A pipeline that ends so is left out: its operator has no such job, or it has not run yet."""
_WORST = (
    ExitCode.FAILED,
    ExitCode.USER,
    ExitCode.FOUND,
    ExitCode.FENCED,
    ExitCode.BUSY,
    ExitCode.TRY_AGAIN,
    ExitCode.NO_BATCHES,
    ExitCode.NOT_NEEDED,
)
"""The exit codes of failures, the worst one first: of several pipelines that fail, a command has the worst."""


def worst(codes: set[int]) -> int:
    """Return the worst of exit codes; DONE if there are none."""
    failed = codes - {ExitCode.DONE}
    return next((code for code in _WORST if code in failed), ExitCode.FAILED if failed else ExitCode.DONE)


def worst_of_all(codes: set[int]) -> int:
    """Return the exit code of a command over a project: the worst of its pipelines, without those that are left out, unless all are."""
    return worst(codes - set(_HARMLESS) or codes)


def tell_failure(pipeline: str, error: Exception, path: str) -> int:
    """Print a failure of one pipeline of several, whose file has this path; return its exit code."""
    lines, code = error_lines(error, path)
    for line in lines:
        click.echo(f"sessionlake: {pipeline}: {hide(' '.join(line.split()))}", err=True)
    return code


def over_projects(
    job: str, function: Callable[..., None], of_project: Callable[..., None] | None = None
) -> Callable[..., None]:
    """Return a job's command that also takes a project: it then does the job of each pipeline, or what `of_project` does."""

    @functools.wraps(function)
    def called(config_path: str, **given: Any) -> None:
        if not is_project(config_path):
            function(config_path=config_path, **given)
        elif of_project is not None:
            of_project(load_project(config_path), **given)
        else:
            one_by_one(job, function, load_project(config_path), given)

    return called


def one_by_one(job: str, function: Callable[..., None], project: Project, given: dict[str, Any]) -> None:
    """Do the job of each pipeline of a project, those that are read first; exit with the worst code.

    A pipeline whose job fails does not keep the others from theirs. A directory that is an argument gets a folder for each
    pipeline. The last line is one of JSON: how each ended, and the sums of the counts.
    """
    context = click.get_current_context()
    reports: list[dict[str, int]] = context.meta.setdefault(_REPORTS, [])
    ended: dict[str, int] = {}
    for name, member in project.members.items():
        console.rule(name)
        own = {**given, "directory": f"{given['directory'].rstrip('/')}/{name}"} if "directory" in given else given
        ended[name] = _done(function, member, own)
        _ended(name, job, ended[name])
    sums = {name: sum(report.get(name, 0) for report in reports) for report in reports for name in report}
    pipelines = {name: ExitCode(code).name.lower() for name, code in ended.items()}
    if _OBJECTS not in context.meta:
        click.echo(json.dumps({"job": job, "dry_run": bool(given.get("dry_run")), "pipelines": pipelines, **sums}))
    if code := worst_of_all(set(ended.values())):
        raise SystemExit(code)


def with_forms(function: Callable[..., None]) -> Callable[..., None]:
    """Return a job's command that takes `form`: as JSON it prints a list with an object for each report, and lines for people aside."""

    @functools.wraps(function)
    def called(form: str, **given: Any) -> None:
        if form != JSON:
            function(**given)
            return
        objects: list[dict[str, Any]] = click.get_current_context().meta.setdefault(_OBJECTS, [])
        code: SystemExit | None = None
        with lines_aside():
            try:
                function(**given)
            except SystemExit as exit_:  # the work is done, and its verdict is no
                code = exit_
        print_objects(objects, form)
        if code is not None:
            raise code

    return called


def reported(report: "JobReport", pipeline: str) -> None:
    """Take a pipeline's report: its counts, if the command goes over a project, and print it as a line of JSON or with all others."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    if _REPORTS in meta:
        meta[_REPORTS].append(dict(report.counts))
    found = {"job": report.job, "run_id": report.run_id, "dry_run": report.dry_run, **report.counts}
    if not listed({"name": pipeline, **found, "notes": report.notes}):
        click.echo(json.dumps(found))


def listed(found: dict[str, Any]) -> bool:
    """Add an object to the list that the command prints at the end; False if it prints lines for people."""
    context = click.get_current_context(silent=True)
    if context is None or _OBJECTS not in context.meta:
        return False
    context.meta[_OBJECTS].append(found)
    return True


def _ended(pipeline: str, job: str, code: int) -> None:
    """Add how the job of one pipeline of several ended to its object; the object is made if there is no report."""
    objects = click.get_current_context().meta.get(_OBJECTS)
    if objects is None:
        return
    if not objects or objects[-1]["name"] != pipeline:
        objects.append({"name": pipeline, "job": job})
    objects[-1]["ended"] = ExitCode(code).name.lower()


def _done(function: Callable[..., None], member: Member, given: dict[str, Any]) -> int:
    """Do the job of one pipeline; print its failure, and return its exit code."""
    leaves(None)
    runs_as(None)
    try:
        function(config_path=member.path, **given)
    except SystemExit as exit_:
        return int(exit_.code or 0) if isinstance(exit_.code, int | None) else ExitCode.FAILED
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, the other pipelines have their turn)
        return tell_failure(member.name, error, member.path)
    return ExitCode.DONE
