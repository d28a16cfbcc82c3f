"""The commands that save a pipeline and put it back."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sessionlake.cli.shared import console, format_time, one_line_errors, open_session
from sessionlake.config.load import load_config

if TYPE_CHECKING:
    from sessionlake.jobs.backup.manifest import Manifest


@click.command("backup")
@click.argument("config_path", metavar="CONFIG")
@click.argument("directory", metavar="DIR")
@one_line_errors
def backup_command(config_path: str, directory: str) -> None:
    """Save tables and checkpoint as of one batch into DIR, a new path or URI, while the pipeline runs.

    Repeated after a kill it starts anew in the same DIR. A backup holds keys, and `forget` does not reach it.
    """
    config = load_config(config_path)
    from sessionlake.jobs.backup import backup

    with console.status("backup") as status:
        spark = open_session(config)
        made = backup(
            spark, config, _absolute(directory), lambda n, of: status.update(f"backup: {n:,} of {of:,} files")
        )
    console.print(f"saved {_told(made)}")


@click.command("restore")
@click.argument("config_path", metavar="CONFIG")
@click.argument("directory", metavar="DIR")
@one_line_errors
def restore_command(config_path: str, directory: str) -> None:
    """Put the backup in DIR back into CONFIG's warehouse, which must be empty; `run` then goes on.

    Repeated after a kill it starts anew; until it has ended nothing runs on the warehouse.
    """
    config = load_config(config_path)
    from sessionlake.jobs.backup import restore

    with console.status("restore") as status:
        spark = open_session(config)
        put = restore(
            spark, config, _absolute(directory), lambda n, of: status.update(f"restore: {n:,} of {of:,} files")
        )
    console.print(f"restored {_told(put)}; `sessionlake run` goes on with batch {put.batch_id + 1}")


def _absolute(directory: str) -> str:
    return directory.rstrip("/") if "://" in directory else str(Path(directory).resolve())


def _told(manifest: "Manifest") -> str:
    size = sum(file.bytes for file in manifest.files)
    return (
        f"pipeline {manifest.pipeline} as of batch {manifest.batch_id}: {len(manifest.files):,} files, {size / 1e6:,.1f} MB, "
        f"made at {format_time(manifest.saved_us)} UTC"
    )
