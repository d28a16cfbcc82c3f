"""The command line: the jobs, with progress, and every user error in one line with exit code 2."""

import click

from sessionlake.cli.registry import LazyGroup


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sessionlake")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="SESSIONLAKE_TRACEBACK",
    help="Where a command fails, print the whole trace too.",
)
def main(traceback: bool) -> None:  # noqa: FBT001 (click passes flags by name; read off the context)
    """Session windows for the lakehouse: early and exact sessions on Spark and Delta Lake."""
