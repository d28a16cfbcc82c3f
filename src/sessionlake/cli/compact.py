"""The command that keeps the snapshot and the changelog small."""

import click

from sessionlake.cli.jobs import run_job, run_options
from sessionlake.cli.shared import one_line_errors
from sessionlake.jobs.compact import METHODS, compact


@click.command("compact")
@click.argument("config_path", metavar="CONFIG")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default=METHODS[0],
    show_default=True,
    help="How the changelog gets into the snapshot; auto takes what is cheaper for its size.",
)
@run_options
@one_line_errors
def compact_command(config_path: str, method: str, run_id: str | None, dry_run: bool) -> None:  # noqa: FBT001 (click passes flags by name)
    """Fold the changelog into the snapshot, trim it, and put all tables' files in order."""
    run_job(
        "compact",
        config_path,
        lambda spark, config, on_step: compact(
            spark, config, method=method, run_id=run_id, dry_run=dry_run, on_step=on_step
        ),
        dry_run=dry_run,
    )
