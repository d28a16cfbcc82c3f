"""The command that keeps the snapshot and the changelog small."""

import click

from sessionlake.cli.observed import observed
from sessionlake.cli.shared import console, one_line_errors, open_session, print_report
from sessionlake.config import load_config
from sessionlake.jobs.compact import METHODS, compact


@click.command("compact")
@click.argument("config_path", metavar="CONFIG")
@click.option("--run-id", help="Name of this run: a second run of the same name does nothing twice.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default=METHODS[0],
    show_default=True,
    help="How the changelog gets into the snapshot; auto takes what is cheaper for its size.",
)
@one_line_errors
def compact_command(config_path: str, run_id: str | None, dry_run: bool, method: str) -> None:  # noqa: FBT001 (click passes flags by name)
    """Fold the changelog into the snapshot, trim it, and put both tables' files in order."""
    config = load_config(config_path)
    with observed(config, "compact", dry_run=dry_run) as counted:
        spark = open_session(config)
        with console.status("compact") as status:
            report = compact(
                spark,
                config,
                method=method,
                run_id=run_id,
                dry_run=dry_run,
                on_step=lambda step: status.update(f"compact: {step.replace('_', ' ')}"),
            )
        print_report(report)
        counted(report.counts)
