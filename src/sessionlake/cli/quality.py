"""The command that checks the tables."""

import sys
from pathlib import Path

import click

from sessionlake.cli.observed import observed
from sessionlake.cli.shared import console, one_line_errors, open_session, print_report
from sessionlake.config import load_config
from sessionlake.errors import JobError

FAILED = 1
_FAILS_ON = {"critical": ("failed_critical",), "warn": ("failed_critical", "failed_warning")}


@click.command("quality")
@click.argument("config_path", metavar="CONFIG")
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAILS_ON)),
    default="critical",
    show_default=True,
    help="Least severity of a failed check that ends the command with exit code 1.",
)
@click.option("--table", "only", multiple=True, help="Check this table only; may be repeated.")
@click.option(
    "--data-docs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where validation results and HTML go.  [default: quality, beside the config]",
)
@click.option("--dry-run", is_flag=True, help="Check and report; write nothing.")
@click.option("--run-id", help="Name of this run: a second run of the same name does nothing twice.")
@one_line_errors
def quality_command(
    config_path: str,
    fail_on: str,
    only: tuple[str, ...],
    data_docs: Path | None,
    dry_run: bool,  # noqa: FBT001 (click passes flags by name)
    run_id: str | None,
) -> None:
    """Check the tables against the suites in expectations/; exit code 1 where checks fail."""
    config = load_config(config_path)
    with observed(config, "quality", dry_run=dry_run) as counted:
        spark = open_session(config)
        with console.status("loading Great Expectations") as status:
            # Its import takes seconds, which no other command should wait for.
            try:
                from sessionlake.jobs.quality.run import run_quality
            except ModuleNotFoundError as error:
                raise JobError(
                    f"quality: Python module {error.name!r} is missing; install great-expectations"
                ) from error

            report = run_quality(
                spark,
                config,
                only=only,
                data_docs=data_docs,
                run_id=run_id,
                dry_run=dry_run,
                on_table=lambda table: status.update(f"checking {table}"),
            )
        print_report(report)
        counted(report.counts)
        if any(report.counts[name] for name in _FAILS_ON[fail_on]):
            sys.exit(FAILED)
