"""The commands that compute sessions from the events again: backfill of a date range, rebuild of everything."""

import click

from sessionlake.cli.observed import observed
from sessionlake.cli.sessionizer import print_batch, print_summary
from sessionlake.cli.shared import console, job_options, one_line_errors, open_session, print_report
from sessionlake.config import load_config
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.rebuild import apply_switch, plan_switch, rebuild, switched
from sessionlake.times import parse_time


@click.command("backfill")
@click.argument("config_path", metavar="CONFIG")
@click.option("--from", "from_text", required=True, help="ISO date or time, UTC; sessions that reach it or later.")
@click.option("--to", "to_text", required=True, help="ISO date or time, exclusive.")
@job_options
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
    config = load_config(config_path)
    from_us, to_us = parse_time(from_text, "--from"), parse_time(to_text, "--to")
    with observed(config, "backfill", dry_run=dry_run) as counted:
        spark = open_session(config)
        with console.status("backfill") as status:
            report = backfill(
                spark, config, from_us=from_us, to_us=to_us, run_id=run_id, dry_run=dry_run, on_step=status.update
            )
        if report.counts["corrections"] and apply and not dry_run:
            applied = apply_corrections(spark, config, print_batch)
            if not applied:
                console.print("a stream runs here; it takes the corrections with its next batch")
        print_report(report)
        counted(report.counts)


@click.command("rebuild")
@click.argument("config_path", metavar="CONFIG")
@click.option("--warehouse", required=True, help="Path of the new warehouse, as the config is to name it.")
@click.option("--switch", is_flag=True, help="Then write the new path into the config.")
@one_line_errors
def rebuild_command(config_path: str, warehouse: str, switch: bool) -> None:  # noqa: FBT001
    """Sessionize all events into a new warehouse, after a change of gap, key or aggregates."""
    config = switched(config_path, plan_switch(config_path, warehouse))
    summary, edit = rebuild(open_session(config), config_path, warehouse, on_commit=print_batch)
    print_summary(summary)
    if switch:
        apply_switch(config_path, edit)
    console.print(f"line {edit.line} of {config_path} {'is now' if switch else 'has to become'}:", markup=False)
    console.print(f"  - {edit.before}\n  + {edit.after}", markup=False)
    console.print("stop the stream on the old warehouse first, then start `sessionlake run` again")
