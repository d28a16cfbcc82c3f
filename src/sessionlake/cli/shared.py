"""What all commands share: the console, one-line errors, a Spark session, the options and reports of scheduled jobs."""

import functools
import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click
from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config import Config
from sessionlake.durations import parse_duration
from sessionlake.engine.spark import build_session
from sessionlake.errors import ConfigError, SessionlakeError
from sessionlake.jobs.observe.listener import listener_conf
from sessionlake.jobs.runs import JobReport

# A pipe has no width of its own; 80 columns would break the tables.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """End a command with exit code 2 and one line where the user can mend the cause."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SessionlakeError as error:
            click.echo(f"sessionlake: {' '.join(str(error).split())}", err=True)
            sys.exit(error.exit_code)

    return wrapped


def open_session(config: Config, *, driver_memory: str = "4g", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with as many shuffle partitions as there are shards."""
    with console.status("starting Spark"):
        return build_session(
            f"sessionlake-{config.pipeline.name}",
            shuffle_partitions=config.pipeline.shards,
            driver_memory=driver_memory,
            extra_conf={**listener_conf(config), **(conf or {})},
        )


def show_warnings(warnings: list[str]) -> None:
    """Print warnings, one line each."""
    for warning in warnings:
        click.echo(f"sessionlake: warning: {warning}", err=True)


def format_time(micros: int | None) -> str:
    """Return a UTC time for people."""
    return "-" if micros is None else f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every scheduled job has: --run-id, --dry-run and --apply/--no-apply."""
    for option in (
        click.option(
            "--apply/--no-apply",
            default=True,
            show_default=True,
            help="Run one pass of the sessionizer afterwards, unless a stream runs here, which takes the corrections itself.",
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
        click.option("--run-id", help="Name of this run: a second run of the same name does nothing twice."),
    ):
        command = option(command)
    return command


def print_report(report: JobReport) -> None:
    """Print what a job did: lines for people, then one line of JSON for what called it."""
    state = (
        "dry run, nothing written" if report.dry_run else "done before, nothing repeated" if report.repeated else "done"
    )
    console.print(f"[bold]{report.job}[/bold] {report.run_id}: {state}")
    for name, value in report.counts.items():
        console.print(f"  {name.replace('_', ' '):<28}{value:>14,}")
    for note in report.notes:
        console.print(f"  {note}")
    click.echo(json.dumps({"job": report.job, "run_id": report.run_id, "dry_run": report.dry_run, **report.counts}))


def positive_duration(text: str, option: str) -> float:
    """Return the seconds of an option such as "5 seconds"; ConfigError where it is none, or zero."""
    micros = parse_duration(text, option)
    if micros == 0:
        raise ConfigError(f"{option}: {text!r} must be longer than zero; write for example '5 seconds'")
    return micros / 1e6
