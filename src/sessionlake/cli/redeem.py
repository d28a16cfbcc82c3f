"""The command that redeems dead letters."""

from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import apply_option, run_job, run_options
from sessionlake.cli.shared import one_line_errors
from sessionlake.config.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep


@click.command("redeem")
@click.argument("config_path", metavar="CONFIG")
@click.option(
    "--reason",
    "reasons",
    multiple=True,
    required=True,
    metavar="TEXT",
    help="A reason of dead_letters, up to its colon, such as 'too far in the future'; may be given several times.",
)
@click.option(
    "--from", "from_", metavar="TIME", help="ISO date or time (UTC), inclusive, of the batch that refused them."
)
@click.option("--to", metavar="TIME", help="ISO date or time (UTC), exclusive, of the batch that refused them.")
@run_options
@apply_option
@one_line_errors
def redeem_command(
    config_path: str,
    reasons: tuple[str, ...],
    from_: str | None,
    to: str | None,
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001 (click passes flags by name)
    apply: bool,  # noqa: FBT001
) -> None:
    """Read dead letters again and restate the events that now keep the contract; each is redeemed once."""
    from_us = None if from_ is None else parse_time(from_, "--from")
    to_us = None if to is None else parse_time(to, "--to")

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.redeem.job import redeem

        return redeem(
            spark,
            config,
            reasons=reasons,
            from_us=from_us,
            to_us=to_us,
            run_id=run_id,
            dry_run=dry_run,
            on_step=on_step,
        )

    run_job("redeem", config_path, job, dry_run=dry_run, apply_where="redeemed" if apply else None)
