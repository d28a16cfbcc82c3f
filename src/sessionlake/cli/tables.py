"""The commands that read the tables: sql and status."""

from typing import Any

import click
from pyspark.sql import SparkSession
from rich.table import Table

from sessionlake import schemas
from sessionlake.cli.shared import console, format_time, one_line_errors, open_session
from sessionlake.config import Config, load_config
from sessionlake.durations import format_duration
from sessionlake.errors import SessionlakeError
from sessionlake.jobs.status import Status, read_status
from sessionlake.tables import Tables
from sessionlake.views import read_batches, read_sessions


@click.command("sql")
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


@click.command("status")
@click.argument("config_path", metavar="CONFIG")
@one_line_errors
def status_command(config_path: str) -> None:
    """Show watermark, lag, counts that reconcile, store size and the last batches."""
    config = load_config(config_path)
    print_status(config, read_status(open_session(config), config))


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
    late = status.late
    console.print(
        f"late events  {late.events:,} = {late.reprocessed:,} reprocessed + {late.expired:,} expired + {late.waiting:,} waiting"
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


def _cell(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    return "" if value is None else str(value)
