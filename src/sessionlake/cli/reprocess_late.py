"""The command that reprocesses late events."""

from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import apply_option, run_job, run_options
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep


@click.command("reprocess-late")
@click.argument("config_path", metavar="CONFIG")
@click.option(
    "--from", "from_", metavar="TIME", help="ISO date or time (UTC), inclusive; from the first where not given."
)
@click.option("--to", metavar="TIME", help="ISO date or time (UTC), exclusive; to the last where not given.")
@run_options
@apply_option
@one_line_errors
def reprocess_late_command(
    config_path: str,
    from_: str | None,
    to: str | None,
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001 (click passes flags by name)
    apply: bool,  # noqa: FBT001
) -> None:
    """Restate the late events that are still within retention; the others go to dead_letters."""
    from_us = None if from_ is None else parse_time(from_, "--from")
    to_us = None if to is None else parse_time(to, "--to")

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.late.reprocess import reprocess_late

        return reprocess_late(
            spark, config, from_us=from_us, to_us=to_us, run_id=run_id, dry_run=dry_run, on_step=on_step
        )

    run_job("reprocess_late", config_path, job, dry_run=dry_run, apply_where="corrections" if apply else None)
