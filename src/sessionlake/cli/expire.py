"""The command `expire`."""

from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import apply_option, run_job, run_options
from sessionlake.cli.shared import one_line_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep


@click.command("expire")
@click.argument("config_path", metavar="CONFIG")
@click.option("--where", help="SQL over a session's row, in place of the config's rule.")
@click.option("--ttl", help="Time to live after session_end, as in '90 days', in place of the config's rule.")
@click.option("--table", "named", multiple=True, metavar="NAME=PATH", help="A Delta table that --where may name.")
@click.option("--max-per-run", type=click.IntRange(min=1), help="Tombstones of this run at the most.")
@click.option("--max-per-second", type=click.IntRange(min=1), help="Tombstones a second at the most.")
@click.option("--max-share", type=click.FloatRange(0, 1), help="Refuse to remove more than this share of all sessions.")
@click.option("--to-topic", is_flag=True, help="Send the tombstones to the Kafka topic that the events come from.")
@run_options
@apply_option
@one_line_errors
def expire_command(
    config_path: str,
    where: str | None,
    ttl: str | None,
    named: tuple[str, ...],
    max_per_run: int | None,
    max_per_second: int | None,
    max_share: float | None,
    to_topic: bool,  # noqa: FBT001 (click passes flags by name)
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001
    apply: bool,  # noqa: FBT001
) -> None:
    """Remove expired sessions: by age, or by any SQL over the session and other tables."""
    tables = {}
    for text in named:
        name, equals, path = text.partition("=")
        if not (name.isidentifier() and equals and path):
            raise click.BadParameter(f"{text!r} is no NAME=PATH", param_hint="--table")
        tables[name] = path

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.expire import expire

        return expire(
            spark,
            config,
            where=where,
            ttl=ttl,
            tables=tables,
            max_per_run=max_per_run,
            max_per_second=max_per_second,
            max_share=max_share,
            run_id=run_id,
            dry_run=dry_run,
            to_topic=to_topic,
            on_step=on_step,
        )

    run_job("expire", config_path, job, dry_run=dry_run, apply_where="expired" if apply else None)
