"""The command that checks the tables."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import run_job, run_options
from sessionlake.cli.shared import one_line_errors
from sessionlake.extras import require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep

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
@run_options
@one_line_errors
def quality_command(
    config_path: str,
    fail_on: str,
    only: tuple[str, ...],
    data_docs: Path | None,
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001 (click passes flags by name)
) -> None:
    """Check the tables against the suites in expectations/; exit code 1 where checks fail."""
    require_extra("quality", "great_expectations", "quality")

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        on_step("loading Great Expectations")
        # Its import takes seconds, which no other command should wait for.
        from sessionlake.quality.run import run_quality

        return run_quality(
            spark, config, only=only, data_docs=data_docs, run_id=run_id, dry_run=dry_run, on_step=on_step
        )

    run_job(
        "quality",
        config_path,
        job,
        dry_run=dry_run,
        failed=lambda report: any(report.counts[name] for name in _FAILS_ON[fail_on]),
    )
