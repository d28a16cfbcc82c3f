"""The command that keeps the snapshot and the changelog small."""

from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import run_job, run_options
from sessionlake.cli.shared import one_line_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep

METHODS = ("auto", "merge", "rewrite")


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

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.compact import compact

        return compact(spark, config, method=method, run_id=run_id, dry_run=dry_run, on_step=on_step)

    run_job("compact", config_path, job, dry_run=dry_run)
