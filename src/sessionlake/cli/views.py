"""The commands that give other engines the pipelines' views, and dbt their tables: as SQL, or made in a catalog of Spark."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import one_line_errors, open_session
from sessionlake.config.project import configs_of, is_project

if TYPE_CHECKING:
    from sessionlake.project.catalog import Catalog, Step
    from sessionlake.project.entries import Entry, Place

DBT = "dbt"
DIALECTS = ("spark", "duckdb", "trino", DBT)


@click.command("views")
@config_argument(EITHER)
@click.option("--dialect", type=click.Choice(DIALECTS), required=True, help="The engine for which the SQL is written; dbt: a sources.yml.")  # fmt: skip
@click.option("--schema", help="Schema in which the tables are registered, as in 'delta.clicks'. Without it the tables are named by their paths; in Trino, which knows no paths, they are those of the schema in use, and in dbt those of a schema of the pipeline's name.")  # fmt: skip
@one_line_errors
def views_command(config_path: str, dialect: str, schema: str | None) -> None:
    """Print the SQL that makes sessions_live and other views in another engine, or dbt's sources.

    Of a project, a directory, the views have the pipeline's name before their own, for example clicks_sessions_live.
    """
    configs = configs_of(config_path)
    from sessionlake.serve.dbt import dbt_sources
    from sessionlake.serve.views import current_schema_remark, view_statements, with_tables

    there, without = with_tables(configs)
    left_out(without)
    if dialect == DBT:
        click.echo(dbt_sources(there, schema))
        return
    click.echo(current_schema_remark(dialect, schema, there[0].pipeline.name), nl=False)
    click.echo("\n\n".join(text for config in there for text in view_statements(config, dialect, schema).values()))


def left_out(names: list[str]) -> None:
    """Print a line, on standard error, about pipelines without tables."""
    if names:
        click.echo(f"sessionlake: left out, because they have no batches yet: {', '.join(names)}", err=True)


@click.command("register")
@config_argument(EITHER)
@click.option("--schema", required=True, help="The schema in which they are made. It is made, too, if it is not there.")
@click.option("--catalog", default="spark_catalog", show_default=True, help="The catalog that has the schema. Others than Spark's own need its settings (spark.sql.catalog.NAME).")  # fmt: skip
@click.option("--drop", is_flag=True, help="Drop all that `register` has made for the pipeline or project in the schema, and nothing else. No file of a table is deleted.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Also replace tables and views that `register` has made for another warehouse, for example after a rebuild.")  # fmt: skip
@click.option(
    "--print", "prints", is_flag=True, help="Print the statements, and do not run them: Spark is not started."
)
@one_line_errors
def register_command(
    config_path: str,
    schema: str,
    catalog: str,
    drop: bool,  # noqa: FBT001 (click passes flags by name)
    replace: bool,  # noqa: FBT001
    prints: bool,  # noqa: FBT001
) -> None:
    """Make tables and views of a pipeline, or of a project, in Spark's catalog, and keep them as the pipelines are.

    A second run changes nothing. Later runs add new tables, replace views of changed pipelines, and drop tables that are gone.
    Of a project, a directory, names begin with that of the pipeline, for example lake.clicks_sessions_live.
    """
    configs = configs_of(config_path)
    from sessionlake.project.catalog import Catalog, registered, unregistered
    from sessionlake.project.entries import Entry, Place, entries_of, mark_of, project_mark
    from sessionlake.serve.views import with_tables

    place, entries = Place(catalog, schema), list[Entry]()
    if not drop or prints:
        there, without = with_tables(configs)
        left_out(without)
        entries = entries_of(there, place)
    if prints:
        _print(entries, place, drop=drop)
        return
    with progress() as shown:
        found = Catalog(open_session(configs[0], little_java=True, name="register", metastore=True), place)
        shown.step("comparing the catalog with the tables")
        mark = mark_of(configs[0])
        ours = mark if configs[0].in_project and not is_project(config_path) else project_mark(mark)
        steps = unregistered(found, place, ours) if drop else registered(found, place, entries, ours, replace=replace)
    _do(found, steps)


def _print(entries: "list[Entry]", place: "Place", *, drop: bool) -> None:
    from sessionlake.project.entries import create_schema, drop_entry

    if drop:
        statements = [drop_entry(place, entry.name, is_view=entry.is_view) for entry in reversed(entries)]
    else:
        statements = [create_schema(place, entries[0].mark), *(entry.create for entry in entries)]
    click.echo("\n\n".join(f"{statement};" for statement in statements))


def _do(catalog: "Catalog", steps: "list[Step]") -> None:
    """Do the steps, and print each."""
    for step in steps:
        for statement in step.statements:
            catalog.run(statement)
        click.echo(f"{step.action:<8}  {step.name}")
    counts = Counter(step.action.value for step in steps)
    if not counts:
        click.echo("nothing was changed: the schema has nothing that `sessionlake register` has made for this")
    elif set(counts) == {"kept"}:
        click.echo(f"nothing was changed: {counts['kept']} tables and views are as they should be")
    else:
        click.echo(", ".join(f"{number} {action}" for action, number in counts.items()))
