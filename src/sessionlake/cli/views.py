"""The command that gives other engines the pipelines' views, and dbt their tables."""

import click

from sessionlake.cli.operands import EITHER, config_argument
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.project import configs_of

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
