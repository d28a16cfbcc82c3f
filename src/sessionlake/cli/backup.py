"""The commands that save a pipeline and put it back."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sessionlake.cli.jobs import command_of
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, format_time, has_little_data, open_session
from sessionlake.config.load import load_config

if TYPE_CHECKING:
    from sessionlake.jobs.backup.manifest import Manifest


@command_of("backup")
def backup_command(config_path: str, directory: str) -> None:
    """Save a backup, and print what its manifest says."""
    config = load_config(config_path)
    from sessionlake.jobs.backup import backup

    with progress() as shown:
        spark = open_session(config, little_java=has_little_data(config))
        shown.step("copying")
        made = backup(spark, config, _absolute(directory), shown.count)
    console.print(f"saved {_manifest_line(made)}")
    _print_counts("backup", made)


@command_of("restore")
def restore_command(config_path: str, directory: str) -> None:
    """Put a backup back, and print what its manifest says."""
    config = load_config(config_path)
    from sessionlake.jobs.backup import restore
    from sessionlake.jobs.backup.manifest import LocalFiles, check_backup

    place = _absolute(directory)
    with progress() as shown:
        if "://" not in place:
            shown.step("checking the backup")
            check_backup(LocalFiles(), config, place)  # before Spark, which takes seconds to start
        spark = open_session(config)
        shown.step("copying")
        put = restore(spark, config, place, shown.count)
    console.print(f"restored {_manifest_line(put)}; `sessionlake run` goes on with batch {put.batch_id + 1}")
    _print_counts("restore", put)


def _absolute(directory: str) -> str:
    return directory.rstrip("/") if "://" in directory else str(Path(directory).resolve())


def _manifest_line(manifest: "Manifest") -> str:
    return (
        f"pipeline {manifest.pipeline} as of batch {manifest.batch_id}: {len(manifest.files):,} files, {_size(manifest) / 1e6:,.1f} MB, "
        f"made at {format_time(manifest.saved_us)} UTC"
    )


def _print_counts(command: str, manifest: "Manifest") -> None:
    """Print a line of JSON, the last line, for the calling program, as jobs do."""
    counts = {"batch_id": manifest.batch_id, "files": len(manifest.files), "bytes": _size(manifest)}
    click.echo(json.dumps({"job": command, **counts}))


def _size(manifest: "Manifest") -> int:
    return sum(file.bytes for file in manifest.files)
