"""The commands that compute sessions from the events again: backfill of a date range, rebuild of everything."""

from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import apply_option, run_job, run_options
from sessionlake.cli.sessionizer import print_batch, print_summary
from sessionlake.cli.shared import console, one_line_errors, open_session
from sessionlake.config.load import load_config
from sessionlake.config.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep


@click.command("backfill")
@click.argument("config_path", metavar="CONFIG")
@click.option("--from", "from_text", required=True, help="ISO date or time, UTC; sessions that reach it or later.")
@click.option("--to", "to_text", required=True, help="ISO date or time, exclusive.")
@run_options
@apply_option
@one_line_errors
def backfill_command(
    config_path: str,
    from_text: str,
    to_text: str,
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001 (click passes flags by name)
    apply: bool,  # noqa: FBT001
) -> None:
    """Compute a date range's sessions from the events again and correct those that differ."""
    from_us, to_us = parse_time(from_text, "--from"), parse_time(to_text, "--to")

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.backfill import backfill

        return backfill(spark, config, from_us=from_us, to_us=to_us, run_id=run_id, dry_run=dry_run, on_step=on_step)

    run_job(
        "backfill",
        config_path,
        job,
        dry_run=dry_run,
        apply_where="corrections" if apply else None,
    )


@click.command("rebuild")
@click.argument("config_path", metavar="CONFIG")
@click.option("--warehouse", required=True, help="Path of the new warehouse, as the config is to name it.")
@click.option("--switch", is_flag=True, help="Then write the new path into the config.")
@click.option("--from-topic", is_flag=True, help="Kafka: build from what the topic still holds, be that all or not.")
@one_line_errors
def rebuild_command(config_path: str, warehouse: str, switch: bool, from_topic: bool) -> None:  # noqa: FBT001
    """Sessionize all events into a new warehouse, after a change of gap, key or aggregates."""
    load_config(config_path)  # a fault in it is told at once, before the modules of Spark are loaded
    from sessionlake.jobs.rebuild import apply_switch, plan_switch, rebuild, switched

    config = switched(config_path, plan_switch(config_path, warehouse))
    spark = open_session(config)
    summary, edit = rebuild(spark, config_path, warehouse, from_topic=from_topic, on_commit=print_batch)
    print_summary(summary)
    if switch:
        apply_switch(config_path, edit)
    console.print(f"line {edit.line} of {config_path} {'is now' if switch else 'has to become'}:")
    console.print(f"  - {edit.before}\n  + {edit.after}")
    console.print("stop the stream on the old warehouse first, then start `sessionlake run` again")
