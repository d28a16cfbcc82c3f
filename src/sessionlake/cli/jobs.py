"""What the commands of scheduled jobs share: their options, the run, and its report."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from rich.text import Text

from sessionlake.cli.observed import observed
from sessionlake.cli.sessionizer import print_batch
from sessionlake.cli.shared import console, open_session
from sessionlake.config.load import Config, load_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.jobs.run import JobReport, OnStep

    Job = Callable[[SparkSession, Config, OnStep], JobReport]


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every scheduled job has: --run-id and --dry-run."""
    command = click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")(command)
    named = "Name of this run: a second run of the same name does nothing twice."
    return click.option("--run-id", help=named)(command)


def apply_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --apply/--no-apply, for jobs that append corrections."""
    return click.option(
        "--apply/--no-apply",
        default=True,
        show_default=True,
        help="Run one pass of the sessionizer afterwards, unless a stream runs, which takes the corrections itself.",
    )(command)


def run_job(
    name: str,
    config_path: str,
    job: "Job",
    *,
    dry_run: bool,
    apply_where: str | None = None,
    failed: "Callable[[JobReport], bool]" = lambda _: False,
) -> None:
    """Run a job with progress, observed as the config says; print its report, exit with 1 where it has failed.

    Where the report's count `apply_where` is not 0, a pass of the sessionizer follows.
    """
    config = load_config(config_path)
    from sessionlake.jobs.apply import apply_corrections, stream_elsewhere

    with observed(config, name, dry_run=dry_run) as counted:
        spark = open_session(config)
        with console.status(name) as status:
            report = job(spark, config, lambda step: status.update(f"{name}: {step}"))
        changed = apply_where and report.counts[apply_where] and not dry_run
        if changed and not apply_corrections(spark, config, print_batch):
            host = stream_elsewhere(spark, config)
            where = "here" if host is None else f"on {host}, which has just committed"
            report.notes.append(f"a stream runs {where}; it takes the corrections with its next batch")
        print_report(report)
        counted(report.counts)
        if failed(report):
            raise SystemExit(1)


def print_report(report: "JobReport") -> None:
    """Print what a job did: lines for people, then one line of JSON for what called it."""
    state = (
        "dry run, nothing written" if report.dry_run else "done before, nothing repeated" if report.repeated else "done"
    )
    console.print(Text.assemble((report.job, "bold"), f" {report.run_id}: {state}"))
    for name, value in report.counts.items():
        console.print(f"  {name.replace('_', ' '):<28}{value:>14,}")
    for note in report.notes:
        console.print(f"  {note}")
    click.echo(json.dumps({"job": report.job, "run_id": report.run_id, "dry_run": report.dry_run, **report.counts}))
