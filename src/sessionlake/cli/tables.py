"""The command that queries the tables."""

import re
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.rows import at_most, limit_option, print_note, print_rows, row_formats
from sessionlake.cli.shared import one_line_errors, open_session
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import is_project, load_project
from sessionlake.errors import ConfigError, LakeError, SessionlakeError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = ("duckdb", "spark")


@click.command("sql")
@config_argument(EITHER)
@click.argument("query")
@limit_option
@row_formats()
@click.option(
    "--allow-files",
    is_flag=True,
    help="Let the query use files, network and extensions with this user's rights. Without it the query can read only the tables.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=ENGINES[0],
    show_default=True,
    help="The engine that reads the tables, and whose SQL the query is. Spark takes some seconds to start, and needs --allow-files.",
)
@one_line_errors
def sql_command(
    config_path: str,
    query: str,
    limit: int | None,
    form: str,
    allow_files: bool,  # noqa: FBT001 (click passes flags by name)
    engine: str,
) -> None:
    """Run SQL over the pipeline's tables and its live view, for example sessions_live.

    Of a project, a directory, the tables of each pipeline are in a schema of its name, for example clicks.sessions_live.
    """
    if engine == "spark" and not allow_files:
        raise ConfigError(
            "--engine: Spark's SQL can read and write all files that this user may; add --allow-files, or leave --engine out"
        )
    if is_project(config_path):
        # To open all tables of many pipelines takes a while.
        configs = load_project(config_path).configs
        from sessionlake.serve.queries import shows_tables

        named = {} if shows_tables(query) else configs
        asked = [config for name, config in named.items() if _names(query, name)] or list(configs.values())
        if engine == "spark":
            _print_project_by_spark(asked, query, limit, form)
        else:
            _print_project_sql(asked, query, limit, form, allow_files=allow_files)
        return
    config = load_config(config_path)
    if engine == "spark":
        with progress() as shown:
            spark = open_session(config)
            shown.step("running the query")
            register_tables(spark, config)
            columns, rows = run_sql(spark, query, at_most(limit, form))
        print_rows(columns, rows, limit=limit, form=form)
        return
    from sessionlake.serve.queries import answer_sql

    with ExitStack() as stack:
        with progress() as shown:
            shown.step("running the query")
            answer = stack.enter_context(answer_sql(config, query, allow_files=allow_files))
        print_rows(answer.columns, answer.rows, limit=limit, form=form)
    if answer.batch_id is None:
        print_note("no batch is committed yet, so that the tables are empty; run `sessionlake run` first", form)


def _names(query: str, pipeline: str) -> bool:
    """Say whether a query may name a pipeline, in whose name Spark's SQL has a `_` for each `-`."""
    return any(re.search(rf"(?i)\b{name}_?\b", query) for name in {pipeline, pipeline.replace("-", "_")})


def _print_project_sql(configs: list[Config], query: str, limit: int | None, form: str, *, allow_files: bool) -> None:
    from sessionlake.serve.queries import answer_project_sql

    with ExitStack() as stack:
        with progress() as shown:
            shown.step("running the query")
            answer = stack.enter_context(answer_project_sql(configs, query, allow_files=allow_files))
        print_rows(answer.columns, answer.rows, limit=limit, form=form)


def _print_project_by_spark(configs: list[Config], query: str, limit: int | None, form: str) -> None:
    from sessionlake.serve.views import with_tables

    with suppress(LakeError):  # what Hadoop alone can read is looked at later
        with_tables(configs)
    from sessionlake.operators.views import create_schemas

    with TemporaryDirectory(prefix="sessionlake-") as folder, progress() as shown:
        # The schemas last as long as the query, whatever catalog the machine's settings name.
        place = {"spark.sql.catalogImplementation": "in-memory", "spark.sql.warehouse.dir": Path(folder).as_uri()}
        spark = open_session(configs[0], conf=place, name="project")
        shown.step("running the query")
        create_schemas(spark, configs)
        columns, rows = run_sql(spark, query, at_most(limit, form))
    print_rows(columns, rows, limit=limit, form=form)


def register_tables(spark: "SparkSession", config: Config) -> None:
    """Register the pipeline's tables and the view of its latest rows as temporary views."""
    from sessionlake.operators.views import read_live
    from sessionlake.warehouse import schemas
    from sessionlake.warehouse.dialects import SPARK
    from sessionlake.warehouse.tables import Tables
    from sessionlake.warehouse.views import merged_rows, read_batches

    tables = Tables.of(spark, config)
    read_live(spark, config).createOrReplaceTempView(tables.changelog.live)
    merged_rows(tables).createOrReplaceTempView(tables.changelog.every)
    for name, query in config.section.further_views("spark", SPARK.micros, tables.changelog.every).items():
        spark.sql(query).createOrReplaceTempView(name)
    for name in (*tables.changelog.tables, *schemas.SHARED):
        if tables[name].exists():
            tables[name].read().createOrReplaceTempView(name)
    read_batches(tables).createOrReplaceTempView(schemas.BATCHES)


def run_sql(spark: "SparkSession", query: str, most: int | None) -> tuple[list[str], list[Any]]:
    """Return the columns and the rows of a query, at most one more than `most`; an error of Spark is a user's error."""
    from pyspark.errors import PySparkException

    try:
        result = spark.sql(query)
        return result.columns, _rows(result if most is None else result.limit(most + 1))
    except PySparkException as error:
        raise SessionlakeError(f"sql: {first_line(error)}; correct the query") from error


def _rows(frame: "DataFrame") -> list[Any]:
    """Return the rows of a frame, with times in UTC. Rows of PySpark have times of this process's zone, and none of the first day of the year 1."""
    found = frame.toArrow()
    return list(zip(*(column.to_pylist(maps_as_pydicts="strict") for column in found.columns), strict=True))
