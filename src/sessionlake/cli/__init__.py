"""The command line: the jobs, with progress, and every error in one line, with the exit code of its kind."""

import click

from sessionlake.cli.registry import LazyGroup
from sessionlake.errors import ExitCode

EXIT_CODES = (
    "Exit codes: "
    + ", ".join(f"{code} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
    + ", 130 and 143 stopped by ctrl-C and SIGTERM, 141 not read to the end; see docs/commands.md."
)


@click.group(cls=LazyGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sessionlake")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="SESSIONLAKE_TRACEBACK",
    help="If a command fails, print the whole trace, too.",
)
@click.option("-q", "--quiet", is_flag=True, envvar="SESSIONLAKE_QUIET", help="Show no progress on standard error.")
def main(traceback: bool, quiet: bool) -> None:  # noqa: FBT001 (click passes flags by name; read off the context)
    """Stateful streams for the lakehouse: sessions, windows, joins, tables, groups and processors, exact, on Spark and Delta Lake."""
