"""The commands of jobs, made of their entries in the registry: options, the run, and its report."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal
from rich.text import Text

from sessionlake.cli.each import over_projects, reported, with_forms
from sessionlake.cli.observed import observed
from sessionlake.cli.operands import CONFIG, EITHER, complete_place
from sessionlake.cli.progress import CHECKING, progress
from sessionlake.cli.rows import form_parameters
from sessionlake.cli.shared import console, has_little_data, one_line_errors, open_session
from sessionlake.cli.stream import is_little, print_batch
from sessionlake.config.load import Config, load_config
from sessionlake.config.times import parse_time
from sessionlake.errors import ExitCode
from sessionlake.extras import require_extra, require_versions
from sessionlake.jobs.registry import BY_NAME, EVENTS_AGAIN, RULE_TABLES, SOURCE, Job, Kind, Option
from sessionlake.stopping import leaves, runs_as

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.jobs.run import JobReport, OnStep

    Work = Callable[[SparkSession, Config, OnStep], JobReport]

_TYPES: Mapping[Kind, click.ParamType[Any]] = {
    Kind.WHOLE: click.IntRange(min=1),
    Kind.SHARE: click.FloatRange(0, 1),
    Kind.DIRECTORY: click.Path(file_okay=False, path_type=Path),
}
_OPERANDS = {CONFIG: "config_path", "DIR": "directory"}
_RUN = (
    click.Option(
        ["--run-id"],
        help="Id of this run. If it was interrupted, a second run with the same id finishes it, and repeats nothing.",
    ),
    click.Option(["--dry-run"], is_flag=True, help="Print what the run would do; write nothing."),
)
_FORMS = form_parameters(
    text="lines for people, and a last one of JSON",
    json="a list with an object for the report, or for that of each pipeline",
)
_WORDS = {
    "rows_read": "rows read from snapshot and changelog",
    "emitted_before": "with a tombstone from before",
    "left_for_next_run": "left for the next run",
}
"""Counts whose names are no words."""
_BEFORE, _AFTER = "_files_before", "_files_after"
_APPLY = click.Option(
    ["--apply/--no-apply"],
    default=True,
    show_default=True,
    help="Run one pass of the stream afterwards, if none is running. A running stream takes the corrections itself.",
)


def command_of(
    name: str, *more: click.Parameter, of_project: Callable[..., None] | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a function the command of a job. The function gets the job's operands and options, and those of `more`.

    `of_project` gets a project and the options, if the command is more than the job of each pipeline one after the other.
    """
    job = BY_NAME[name]

    def made(function: Callable[..., None]) -> click.Command:
        shown = {CONFIG: EITHER if job.over_project else CONFIG}
        operands = [_operand(operand, shown.get(operand, operand)) for operand in job.operands]
        callback = over_projects(job.name, function, of_project) if job.over_project else function
        return click.Command(
            job.command,
            callback=one_line_errors(with_forms(callback) if job.recorded else callback),
            params=[
                *operands,
                *more,
                *map(_option, job.options),
                *((*_RUN, *_FORMS) if job.recorded else ()),
                *((_APPLY,) if job.has_apply else ()),
            ],
            help=f"{job.summary}\n\n{job.more}".strip(),
        )

    return made


def job_command(job: Job) -> click.Command:
    """Return the command of a job that needs only its registry entry: the function gets the values of the options."""

    @command_of(job.name)
    def command(
        config_path: str,
        run_id: str | None,
        dry_run: bool,  # noqa: FBT001 (click passes flags by name)
        apply: bool = False,  # noqa: FBT001, FBT002
        **given: Any,
    ) -> None:
        if job.extra is not None:
            require_extra(job.name, *job.extra)
        arguments = {option.target: _value(option, given[option.name]) for option in job.options}

        def work(spark: "SparkSession", config: Config, on_step: "OnStep") -> "JobReport":
            module, _, name = job.function.partition(":")
            report: JobReport = getattr(import_module(module), name)(
                spark, config, run_id=run_id, dry_run=dry_run, on_step=on_step, **arguments
            )
            return report

        times = (arguments.get("from_us"), arguments.get("to_us"))
        run_job(job, config_path, work, dry_run=dry_run, apply=apply, times=times)

    return command


def run_job(
    job: Job,
    config_path: str,
    work: "Work",
    *,
    dry_run: bool,
    apply: bool = False,
    times: tuple[int | None, int | None] = (None, None),
) -> None:
    """Run a job with progress and the metrics that the config asks for; print its report, exit with FOUND if its verdict is no.

    With `apply` a pass of the stream follows if the run appended corrections. `times` is the requested range.
    """
    config = load_config(config_path)
    require_versions("spark")
    from sessionlake.jobs.late.spans import check_range
    from sessionlake.preflight.jobs import require_job

    with observed(config, job.name, dry_run=dry_run) as counted:
        check_range(*times)
        with progress() as shown:
            shown.step(CHECKING)
            require_job(config, config_path, job)
            spark = open_session(config, little_java=_is_little(job, config))
            shown.step("looking at the tables")
            report = work(spark, config, shown.step)
        changed = apply and job.corrections and report.counts[job.corrections] and not dry_run
        runs_as(None)
        leaves(f"the job is done{', and the next batch of `sessionlake run` takes its corrections' if changed else ''}")
        if changed:
            _apply(config, report)
        print_report(report, config.pipeline.name)
        counted(report.counts)
        if report.failed:
            raise SystemExit(ExitCode.FOUND)


def _is_little(job: Job, config: Config) -> bool:
    """Say whether Java has little to do: small tables, and no rows of a source or of others' tables, however many, that come through it."""
    if job.searches_source or (RULE_TABLES in job.reads and config.expire.tables):
        return False
    reads_source = job.has_apply or not {SOURCE, EVENTS_AGAIN}.isdisjoint(job.reads)
    return (is_little(config) or not reads_source) and has_little_data(config)


def _apply(config: Config, report: "JobReport") -> None:
    """Run a pass of the stream, or say which running stream takes the corrections."""
    from sessionlake.jobs.apply import apply_corrections, stream_elsewhere

    spark = open_session(config)
    with progress() as shown:
        shown.step("running the stream once, to apply the corrections")
        applied = apply_corrections(spark, config, print_batch)
    if not applied:
        host = stream_elsewhere(spark, config)
        where = "here" if host is None else f"on {host}, which has just committed"
        report.notes.append(f"a stream runs {where}; it takes the corrections with its next batch")


def print_report(report: "JobReport", pipeline: str) -> None:
    """Print a job's report: lines for people, then its object for the calling program."""
    state = (
        "dry run, nothing written" if report.dry_run else "done before, nothing repeated" if report.repeated else "done"
    )
    console.print(Text.assemble((report.job, "bold"), f" {report.run_id}: {state}"))
    for line in (*report_lines(report.counts), *report.notes):
        console.print(f"  {line}")
    reported(report, pipeline)


def report_lines(counts: Mapping[str, int]) -> list[str]:
    """Return a line for each table whose size was measured, and one line of the other counts; counts of 0 are left out."""
    measured = [name.removesuffix(_BEFORE) for name in counts if name.endswith(_BEFORE)]
    sizes = {
        f"{table}_{what}_{when}" for table in measured for what in ("files", "bytes") for when in ("before", "after")
    }
    rest = {name: value for name, value in counts.items() if name not in sizes}
    report = [_counted(name, value) for name, value in rest.items() if value]
    if not report and rest and not measured:
        report = [_counted(*next(iter(rest.items())))]
    return [*([", ".join(report)] if report else []), *(f"{table}: {_size(table, counts)}" for table in measured)]


def _counted(name: str, value: int) -> str:
    return f"{value:,} {_WORDS.get(name) or name.replace('_', ' ')}"


def _size(table: str, counts: Mapping[str, int]) -> str:
    files, size = counts[table + _BEFORE], decimal(counts[f"{table}_bytes_before"])
    before = f"{files:,} {'file' if files == 1 else 'files'}"
    if table + _AFTER not in counts:
        return f"{before}, {size}"
    files_after, size_after = counts[table + _AFTER], decimal(counts[f"{table}_bytes_after"])
    if (files, size) == (files_after, size_after):
        return f"{before}, {size}, as before"
    return f"{before} became {files_after:,}, {size} became {size_after}"


def _operand(operand: str, metavar: str) -> click.Argument:
    completed = complete_place if operand == CONFIG else None
    return click.Argument([_OPERANDS[operand]], metavar=metavar, shell_complete=completed)


def _option(option: Option) -> click.Option:
    kind = click.Choice(option.choices) if option.kind is Kind.CHOICE else _TYPES.get(option.kind)
    told = f"  [default: {option.default_text}]" if option.default_text else ""
    return click.Option(
        [option.flag, option.name],
        type=kind,
        is_flag=option.kind is Kind.FLAG,
        default=False if option.kind is Kind.FLAG else option.default,
        show_default=option.default is not None,
        required=option.required,
        multiple=option.several,
        metavar=option.metavar,
        help=option.help + told,
    )


def _value(option: Option, given: Any) -> Any:
    """Return an option's value as the function takes it; ConfigError or click's BadParameter if it can't be read."""
    if option.kind is Kind.TIME:
        return None if given is None else parse_time(given, option.flag)
    return _tables(given, option.flag) if option.kind is Kind.TABLE else given


def _tables(given: Sequence[str], flag: str) -> dict[str, str]:
    tables = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name.isidentifier() and equals and path):
            raise click.BadParameter(f"{text!r} is no NAME=PATH", param_hint=flag)
        tables[name] = path
    return tables
