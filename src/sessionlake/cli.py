"""The command line: the jobs, with progress, and every user error in one line with exit code 2."""

import functools
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from sessionlake import schemas
from sessionlake.config import Config, load_config
from sessionlake.durations import format_duration
from sessionlake.engine.spark import build_session
from sessionlake.errors import SessionlakeError
from sessionlake.jobs.sessionizer.run import RunSummary, run
from sessionlake.jobs.status import Status, read_status
from sessionlake.tables import Tables
from sessionlake.views import read_batches, read_sessions

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
            extra_conf=conf,
        )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sessionlake")
def main() -> None:
    """Session windows for the lakehouse: early and exact sessions on Spark and Delta Lake."""


@main.command("run")
@click.argument("config_path", metavar="CONFIG")
@click.option("--once", is_flag=True, help="Process all input that is available now, then exit.")
@click.option("--drain", is_flag=True, help="With --once: then close what is open, as at the end of a finite input.")
@one_line_errors
def run_command(config_path: str, once: bool, drain: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Run the sessionizer until stopped (ctrl-C), or once."""
    if drain and not once:
        raise click.UsageError("--drain goes with --once")
    config = load_config(config_path)
    show_warnings(config.warnings())
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        summary = run(open_session(config), config, once=once, drain=drain, on_commit=print_batch)
    except KeyboardInterrupt:
        console.print("stopped; nothing is lost, `sessionlake run` goes on from here")
        return
    print_summary(summary)


@main.command("bootstrap")
@click.argument("config_path", metavar="CONFIG")
@one_line_errors
def bootstrap_command(config_path: str) -> None:
    """Sessionize all existing input in one bulk pass, for first use on old data; then `run` goes on."""
    config = load_config(config_path)
    print_summary(run(open_session(config), config, bootstrap=True, on_commit=print_batch))


@main.command("sql")
@click.argument("config_path", metavar="CONFIG")
@click.argument("query")
@click.option("--limit", default=100, show_default=True, help="Rows to print at the most.")
@one_line_errors
def sql_command(config_path: str, query: str, limit: int) -> None:
    """Run SQL over the tables and sessions_live, each registered by name."""
    config = load_config(config_path)
    spark = open_session(config)
    register_tables(spark, config)
    columns, rows = run_sql(spark, query, limit + 1)
    table = Table(*columns)
    for row in rows[:limit]:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)
    if len(rows) > limit:
        console.print(f"only the first {limit} rows; raise --limit for more")


@main.command("status")
@click.argument("config_path", metavar="CONFIG")
@one_line_errors
def status_command(config_path: str) -> None:
    """Show watermark, lag, counts that reconcile, store size and the last batches."""
    config = load_config(config_path)
    print_status(config, read_status(open_session(config), config))


@main.command("demo")
@click.option(
    "--directory", default="demo", show_default=True, help="Where the demo's pipeline is made; an old one is replaced."
)
@one_line_errors
def demo_command(directory: str) -> None:
    """Turn 62,726 real commit events into sessions and show them."""
    from sessionlake.demo import run_demo

    run_demo(directory, console)


def register_tables(spark: SparkSession, config: Config) -> None:
    """Register the pipeline's tables and sessions_live as temporary views."""
    tables = Tables(spark, config.pipeline.warehouse)
    read_sessions(spark, config).createOrReplaceTempView(schemas.SESSIONS_LIVE)
    for name in (schemas.CHANGELOG, schemas.SESSIONS, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, schemas.CORRECTIONS):
        tables.read(name).createOrReplaceTempView(name)
    read_batches(tables).createOrReplaceTempView(schemas.BATCHES)


def run_sql(spark: SparkSession, query: str, limit: int) -> tuple[list[str], list[Any]]:
    """Return the columns and the first rows of a query; what Spark refuses or fails on is a user's error."""
    from pyspark.errors import PySparkException

    try:
        result = spark.sql(query)
        return result.columns, result.limit(limit).collect()
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise SessionlakeError(f"sql: {first}; correct the query") from error


def print_batch(metadata: dict[str, Any]) -> None:
    """Print a line a batch."""
    counts = metadata["counts"]
    took = (metadata["committed_us"] - metadata["started_us"]) / 1e6
    refused = "".join(f", {counts[n]:,} {n}" for n in ("late", "dead", "dropped", "emitted", "stale") if counts.get(n))
    console.print(
        f"batch {metadata['batch_id']:>4}  {counts.get('input', 0):>10,} events{refused}  "
        f"{counts.get('upserts', 0):>9,} sessions changed  watermark {format_time(metadata['state'].get('watermark_us'))}  {took:.1f} s"
    )


def print_summary(summary: RunSummary) -> None:
    """Print what a run did and its warnings."""
    c = summary.counts
    console.print(
        f"{summary.batches} batches: {c['input']:,} events = {c['accepted']:,} accepted + {c['late']:,} late + {c['dead']:,} dead"
        f" + {c['dropped']:,} dropped + {c['emitted']:,} emitted; watermark {format_time(summary.watermark_us)}"
    )
    show_warnings(summary.warnings)


def show_warnings(warnings: list[str]) -> None:
    """Print warnings, one line each."""
    for warning in warnings:
        click.echo(f"sessionlake: warning: {warning}", err=True)


def print_status(config: Config, status: Status) -> None:
    """Print a pipeline's status."""
    c = status.counts
    console.print(
        f"[bold]{config.pipeline.name}[/bold]  batch {status.batch_id}, changelog version {status.changelog_version}"
    )
    lag = "-" if status.event_lag_us is None else format_duration(status.event_lag_us)
    console.print(
        f"watermark    {format_time(status.watermark_us)}  (lag {lag}; last commit {format_duration(status.commit_age_us)} ago)"
    )
    console.print(
        f"events       {c['input']:,} = {c['accepted']:,} accepted + {c['late']:,} late + {c['dead']:,} dead + {c['dropped']:,} dropped + {c['emitted']:,} emitted"
    )
    console.print(
        f"corrections  {c['corrections']:,}: {c['applied']:,} applied, {c['stale']:,} stale, {c['expired']:,} expired"
    )
    console.print(f"reconciles   {'yes' if status.reconciles else '[red]NO[/red]'}")
    console.print(f"store        {status.store_bytes / 1e6:,.1f} MB in {status.store_dir}")
    console.print(f"checkpoint   {status.checkpoint}")
    table = Table("batch", "events", "accepted", "late", "dead", "upserts", "deletes", "seconds", "watermark")
    for row in status.last_batches:
        seconds = (row["committed_at"] - row["started_at"]).total_seconds()
        numbers = (f"{row[name]:,}" for name in ("input", "accepted", "late", "dead", "upserts", "deletes"))
        table.add_row(str(row["batch_id"]), *numbers, f"{seconds:.1f}", str(row["watermark"] or "-"))
    console.print(table)


def format_time(micros: int | None) -> str:
    """Return a UTC time for people."""
    return "-" if micros is None else f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _cell(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    return "" if value is None else str(value)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
