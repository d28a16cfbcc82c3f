"""Checks that a pipeline has only one driver, and that its checkpoint and changelog belong together."""

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.config.paths import make_private
from sessionlake.errors import LockedError, PipelineStateError, StoreError
from sessionlake.stream.planned_offsets import fingerprint
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.history import check_format, stamp
from sessionlake.warehouse.tables import Tables


def check_checkpoint(tables: Tables, config: Config, last: BatchCommit | None) -> str | None:
    """Return the id of a pipeline's checkpoint, None if there is no checkpoint yet; nothing is written.

    Raises PipelineStateError if this package does not read the checkpoint's format, or if it is not the checkpoint of the
    last batch, or has other offsets of it than those that it read.
    """
    text = tables.read_text(_metadata(config))
    written = json.loads(text) if text else {}
    if written:
        check_format(written, f"checkpoint: {config.checkpoint!r}")
    found = written.get("id")
    name, checkpoint = config.pipeline.name, config.checkpoint
    if last is not None and found != last.checkpoint_id:
        what = "is missing" if found is None else "is another pipeline's or a new one"
        raise PipelineStateError(
            f"checkpoint: {checkpoint!r} {what}, but the changelog has batches of {name!r} up to {last.batch_id}; "
            "put the old checkpoint back, or start a new warehouse with `sessionlake bootstrap`"
        )
    if last is not None:
        _check_offsets(tables, config, last)
    if last is None and any(batch.isdigit() for batch in tables.names(f"{checkpoint}/commits")):
        raise PipelineStateError(
            f"checkpoint: {checkpoint!r} has batches of {name!r} but the changelog has none; "
            "restore the tables, or remove the whole warehouse to start again"
        )
    return None if found is None else str(found)


def _check_offsets(tables: Tables, config: Config, last: BatchCommit) -> None:
    """Raise PipelineStateError unless the last batch's offsets are what it read: the next batch would begin elsewhere.

    Not every file system keeps two drivers from writing one file. If the file is not there, the checkpoint is older
    than the changelog, and the first batch is refused.
    """
    file = f"{config.checkpoint}/offsets/{last.batch_id}"
    text = tables.read_text(file)
    if text is not None and last.input not in (None, fingerprint(text)):
        raise PipelineStateError(
            f"checkpoint: {file!r} is not what batch {last.batch_id} of {config.pipeline.name!r} has read: another driver wrote it, or it was changed, "
            "and input would be lost or counted twice; put that file back (from a backup, or the storage's older versions), "
            "or rebuild the tables with `sessionlake rebuild` (docs/recovery.md)"
        )


def make_checkpoint(tables: Tables, config: Config) -> str:
    """Make the checkpoint and return its id; if another driver has just made it, return that driver's id."""
    tables.write_text_once(_metadata(config), json.dumps({"id": str(uuid.uuid4()), **stamp()}))
    return str(json.loads(tables.read_text(_metadata(config)) or "{}")["id"])


def _metadata(config: Config) -> str:
    return f"{config.checkpoint}/metadata"


@contextmanager
def locked_store(config: Config) -> Iterator[None]:
    """Hold the store directory's lock while the driver lives; LockedError if another has it, StoreError if it can't be written."""
    directory = Path(config.lock_dir)
    try:
        make_private(directory)
        file = (directory / "LOCK").open("a+")
    except OSError as error:
        raise StoreError(
            f"pipeline.store: {str(directory)!r} can't be written ({error.strerror}); choose a directory this user may write"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "?"
            raise LockedError(
                f"pipeline.store: {str(directory)!r} is locked by process {holder}; a pipeline has one driver, stop that one first"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
