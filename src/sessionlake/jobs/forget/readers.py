"""The pipelines that read the results in which the keys were.

Each must have read that the keys' rows are gone before the files go that have the rows as they were: it needs those to take the
rows back.
"""

from pathlib import Path

from sessionlake.config.load import Config, config_of
from sessionlake.config.read_upstream import pipeline_named
from sessionlake.errors import ConfigError, JobError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.forget.wait_budget import Waits
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.seen import Reader, readers_of
from sessionlake.warehouse.tables import Tables


def await_readers(lake: Lake, waits: Waits, run_id: str, *, apply: bool) -> None:
    """Wait until each reader has read the last batch of the results, in which the rows are deleted.

    With `apply` a pass of each is run first, if its config is where it was and no stream runs it. JobError, which names
    the reader, if one has not read it when the time is over.
    """
    needed = last_batch(lake.tables).batch_id
    readers = readers_of(lake.tables, lake.tables.warehouse)
    # All passes before any waiting: a reader whose config was moved is there twice, and one of the two has it.
    for reader in readers:
        config = _config_of(reader) if apply and _is_behind(lake, reader, needed) else None
        if config is not None:
            apply_corrections(lake.tables.spark, config)
    for reader in readers:
        while _is_behind(lake, reader, needed):
            if not waits():
                raise JobError(
                    f"forget: pipeline {reader.name!r} of {reader.warehouse!r} has not read that the keys' rows are gone, and needs them as they were to "
                    f"do so; run it, or delete its tables if it is not used any more, then repeat with --run-id {run_id}"
                )


def _is_behind(lake: Lake, reader: Reader, needed: int) -> bool:
    reached = reader.reached(Tables(lake.tables.spark, reader.warehouse, lake.tables.changelog))
    return reached is not None and reached < needed


def _config_of(reader: Reader) -> Config | None:
    """Return the config of a reader; None if it is not where it was when the reader ran, or is that of another warehouse now."""
    try:
        file, _ = pipeline_named(reader.pin, reader.name, Path(reader.directory))
        config = config_of(file)
    except ConfigError:
        return None
    return config if config.pipeline.warehouse == reader.warehouse else None
