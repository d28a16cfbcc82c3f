"""The command that gives other engines the view sessions_live or windows_live."""

import click

from sessionlake.cli.operands import CONFIG, config_argument
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.load import load_config

DIALECTS = ("spark", "duckdb", "trino")


@click.command("views")
@config_argument(CONFIG)
@click.option("--dialect", type=click.Choice(DIALECTS), required=True, help="The engine for which the SQL is written.")
@click.option("--schema", help="Schema in which the tables are registered, as in 'delta.clicks'. Without it the tables are named by their paths; in Trino, which knows no paths, they are those of the schema in use.")  # fmt: skip
@one_line_errors
def views_command(config_path: str, dialect: str, schema: str | None) -> None:
    """Print the SQL that makes sessions_live or windows_live a view in another engine."""
    config = load_config(config_path)
    from sessionlake.serve.views import live_view

    click.echo(live_view(config, dialect, schema))
