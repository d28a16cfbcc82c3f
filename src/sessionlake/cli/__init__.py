"""The command line: the jobs, with progress, and every user error in one line with exit code 2."""

import click

from sessionlake.cli.backfill import backfill_command, rebuild_command
from sessionlake.cli.compact import compact_command
from sessionlake.cli.expire import expire_command
from sessionlake.cli.forget import forget_command
from sessionlake.cli.metrics import metrics_command
from sessionlake.cli.publish import publish_command
from sessionlake.cli.quality import quality_command
from sessionlake.cli.reprocess_late import reprocess_late_command
from sessionlake.cli.sessionizer import bootstrap_command, run_command
from sessionlake.cli.shared import console, one_line_errors
from sessionlake.cli.status import status_command
from sessionlake.cli.tables import sql_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sessionlake")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="SESSIONLAKE_TRACEBACK",
    help="Where a command fails, print the whole trace too.",
)
def main(traceback: bool) -> None:  # noqa: FBT001 (click passes flags by name; read off the context)
    """Session windows for the lakehouse: early and exact sessions on Spark and Delta Lake."""


@click.command("demo")
@click.option(
    "--directory", default="demo", show_default=True, help="Where the demo's pipeline is made; an old one is replaced."
)
@one_line_errors
def demo_command(directory: str) -> None:
    """Turn 62,726 real commit events into sessions, run all jobs on them, and show what came out."""
    from sessionlake.demo import run_demo

    run_demo(directory, console)


for command in (
    run_command,
    bootstrap_command,
    sql_command,
    status_command,
    metrics_command,
    reprocess_late_command,
    expire_command,
    forget_command,
    compact_command,
    backfill_command,
    rebuild_command,
    quality_command,
    publish_command,
    demo_command,
):
    main.add_command(command)
