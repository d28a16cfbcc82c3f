"""The command that reprocesses late events."""

import click

from sessionlake.cli.observed import observed
from sessionlake.cli.sessionizer import print_batch
from sessionlake.cli.shared import console, job_options, one_line_errors, open_session, print_report
from sessionlake.config import load_config
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.reprocess_late import reprocess_late
from sessionlake.times import parse_time


@click.command("reprocess-late")
@click.argument("config_path", metavar="CONFIG")
@click.option(
    "--from", "from_", metavar="TIME", help="ISO date or time (UTC), inclusive; from the first where not given."
)
@click.option("--to", metavar="TIME", help="ISO date or time (UTC), exclusive; to the last where not given.")
@job_options
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
    config = load_config(config_path)
    from_us = None if from_ is None else parse_time(from_, "--from")
    to_us = None if to is None else parse_time(to, "--to")
    with observed(config, "reprocess_late", dry_run=dry_run) as counted:
        spark = open_session(config)
        with console.status("reprocessing late events") as status:
            report = reprocess_late(
                spark, config, from_us=from_us, to_us=to_us, run_id=run_id, dry_run=dry_run, on_step=status.update
            )
        print_report(report)
        counted(report.counts)
        if apply and not dry_run and report.counts["corrections"] and not apply_corrections(spark, config, print_batch):
            console.print("a stream runs here; it takes the corrections with its next batch")
