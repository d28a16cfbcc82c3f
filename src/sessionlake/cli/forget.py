"""The command `forget`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sessionlake.cli.each import listed
from sessionlake.cli.jobs import command_of, run_job
from sessionlake.cli.keys_file import read_keys, refuse_arguments
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, open_session
from sessionlake.config.load import load_config
from sessionlake.errors import ExitCode
from sessionlake.jobs.registry import BY_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionlake.config.load import Config
    from sessionlake.jobs.run import JobReport, OnStep


@command_of("forget", click.Argument(["words"], metavar="", nargs=-1, type=click.UNPROCESSED))
def forget_command(
    config_path: str,
    words: tuple[str, ...],
    keys_file: str | None,
    proof: bool,  # noqa: FBT001 (click passes flags by name)
    data_docs: Path | None,
    dry_run: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Read the keys from a file, never from an argument, and erase their data; with `proof` only search for it."""
    refuse_arguments(words)
    keys = read_keys(keys_file)
    if proof:
        _prove(config_path, keys, data_docs)

    def work(spark: "SparkSession", config: "Config", on_step: "OnStep") -> "JobReport":
        from sessionlake.jobs.forget import forget

        return forget(spark, config, keys, data_docs=data_docs, dry_run=dry_run, on_step=on_step, **options)

    run_job(BY_NAME["forget"], config_path, work, dry_run=dry_run)


def _prove(config_path: str, keys: list[str], data_docs: Path | None) -> NoReturn:
    config = load_config(config_path)
    from sessionlake.jobs.forget import check

    with progress() as shown:
        found = check(open_session(config), config, keys, shown.step, data_docs)
    listed({"name": config.pipeline.name, "job": "forget", "clean": found.clean, **asdict(found)})
    for line in found.lines():
        console.print(line)
    sys.exit(ExitCode.DONE if found.clean else ExitCode.FOUND)
