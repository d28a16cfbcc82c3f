"""The command that queries the tables."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, one_line_errors, open_session
from sessionlake.config.load import Config, load_config
from sessionlake.errors import SessionlakeError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("duckdb", "spark")


@click.command("sql")
@click.argument("config_path", metavar="CONFIG")
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Rows to print at the most.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=ENGINES[0],
    show_default=True,
    help="What reads the tables, and whose SQL it is; Spark takes some seconds to start.",
)
@one_line_errors
def sql_command(config_path: str, query: str, limit: int, engine: str) -> None:
    """Run SQL over the tables and sessions_live or windows_live, each registered by name."""
    config = load_config(config_path)
    with progress() as shown:
        if engine == "spark":
            spark = open_session(config)
            shown.step("running the query")
            register_tables(spark, config)
            columns, rows = run_sql(spark, query, limit + 1)
        else:
            from sessionlake.serve.queries import query_tables

            shown.step("running the query")
            columns, rows = query_tables(config, query, limit + 1)
    print_rows(columns, rows, limit)


def print_rows(columns: list[str], rows: list[Any], limit: int) -> None:
    """Print the first rows of a table, and that there are more."""
    table = Table(*columns)
    for row in rows[:limit]:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)
    if len(rows) > limit:
        console.print(f"only the first {limit} rows; raise --limit for more")


def register_tables(spark: "SparkSession", config: Config) -> None:
    """Register the pipeline's tables and the view of its latest rows as temporary views."""
    from sessionlake.operators.views import read_live, read_quarantined
    from sessionlake.warehouse import schemas
    from sessionlake.warehouse.changelog import QUARANTINED, QUARANTINED_KEYS, quarantined_keys_sql
    from sessionlake.warehouse.tables import Tables
    from sessionlake.warehouse.views import read_batches

    tables = Tables.of(spark, config)
    read_live(spark, config).createOrReplaceTempView(tables.changelog.live)
    if config.quarantine is not None:
        read_quarantined(spark, config).createOrReplaceTempView(QUARANTINED)
        spark.sql(quarantined_keys_sql("spark")).createOrReplaceTempView(QUARANTINED_KEYS)
    for name in (*tables.changelog.tables, *schemas.SHARED):
        if tables[name].exists():
            tables[name].read().createOrReplaceTempView(name)
    read_batches(tables).createOrReplaceTempView(schemas.BATCHES)


def run_sql(spark: "SparkSession", query: str, limit: int) -> tuple[list[str], list[Any]]:
    """Return the columns and the first rows of a query; what Spark refuses or fails on is a user's error."""
    from pyspark.errors import PySparkException

    try:
        result = spark.sql(query)
        return result.columns, result.limit(limit).collect()
    except PySparkException as error:
        raise SessionlakeError(f"sql: {first_line(error)}; correct the query") from error


def _cell(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return "" if value is None else str(value)
