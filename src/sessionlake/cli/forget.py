"""The command `forget`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from sessionlake.cli.jobs import apply_option, run_job, run_options
from sessionlake.cli.keys_file import read_keys, refuse_arguments
from sessionlake.cli.shared import console, one_line_errors, open_session
from sessionlake.config.load import load_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep


@click.command("forget")
@click.argument("config_path", metavar="CONFIG")
@click.argument("words", metavar="", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--keys-file", help="The keys, one a line: a file that only you can read (mode 0600), or - for standard input."
)
@click.option(
    "--proof",
    is_flag=True,
    help="Only look where the keys are; remove nothing. Exit code 1 where one is found, or may be.",
)
@click.option("--wait", default="10 minutes", show_default=True, help="How long to wait for a stream that runs.")
@click.option(
    "--data-docs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where `quality` keeps validation results and HTML.  [default: quality, beside the config]",
)
@run_options
@apply_option
@one_line_errors
def forget_command(
    config_path: str,
    words: tuple[str, ...],
    keys_file: str | None,
    proof: bool,  # noqa: FBT001 (click passes flags by name)
    wait: str,
    data_docs: Path | None,
    run_id: str | None,
    dry_run: bool,  # noqa: FBT001
    apply: bool,  # noqa: FBT001
) -> None:
    """Remove all that is kept of some keys, and prove it: sessions, late events, dead letters, files, logs, stores."""
    refuse_arguments(words)
    chosen = read_keys(keys_file)
    if proof:
        _prove(config_path, chosen, data_docs)

    def job(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.forget import forget

        return forget(
            spark,
            config,
            chosen,
            wait=wait,
            apply=apply,
            run_id=run_id,
            dry_run=dry_run,
            data_docs=data_docs,
            on_step=on_step,
        )

    run_job(
        "forget",
        config_path,
        job,
        dry_run=dry_run,
        failed=lambda report: any(report.counts.get(name) for name in ("found", "unsearched")) and not dry_run,
    )


def _prove(config_path: str, keys: list[str], data_docs: Path | None) -> NoReturn:
    config = load_config(config_path)
    from sessionlake.jobs.forget import check

    spark = open_session(config)
    with console.status("forget") as status:
        found = check(spark, config, keys, status.update, data_docs)
    for line in found.lines():
        console.print(line)
    sys.exit(0 if found.clean else 1)
