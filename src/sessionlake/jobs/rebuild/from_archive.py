"""Rebuild from the archive: all archived events as one batch, after which the stream goes on at its old positions."""

from typing import Any, cast

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.engine.coordinator import Coordinator
from sessionlake.errors import JobError
from sessionlake.jobs.rebuild.archive import FROM_SOURCE, Archive, find_archive
from sessionlake.jobs.rebuild.archive_source import ArchiveSource
from sessionlake.jobs.rebuild.checkpoint import copy_checkpoint
from sessionlake.operators.registry import kind_of
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.input_log import InputLog
from sessionlake.stream.kind import Kind
from sessionlake.stream.lock import locked_store, make_checkpoint
from sessionlake.stream.pipeline import make_pipeline
from sessionlake.stream.planned_offsets import clock_of, fingerprint
from sessionlake.stream.run import OnCommit, RunSummary, save_batches
from sessionlake.stream.tables import create_tables
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import REBUILDING
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ARCHIVED_FROM


def rebuild_from_archive(
    spark: SparkSession, old: Config, new: Config, *, incomplete: bool, on_commit: OnCommit | None = None
) -> RunSummary:
    """Make the tables of the config `new` of the archive of `old`, and a checkpoint that goes on after it; return the batch's summary.

    A warehouse in which this was begun and not finished is emptied first. Raises JobError if the rows depend on the
    order of messages, which an archive does not keep.
    """
    archive = find_archive(spark, old, incomplete=incomplete)
    source = ArchiveSource(archive, new)
    # The archive has the rows that `where` let in; it need not have the columns that `where` reads now.
    taken = new.model_copy(update={"event": new.event.model_copy(update={"where": None})})
    kind = kind_of(new).make(taken, cast("Any", {EVENTS: source}), None)
    if kind.numbers_messages:
        raise JobError(
            f"--from-archive: a [{new.operator}] depends on the order of messages, which the archive does not keep; {FROM_SOURCE}"
        )
    tables = Tables.of(spark, new)
    _prepare(tables, new)
    failpoints.hit("rebuild_marked")
    with locked_store(new):
        summary = _computed(spark, tables, new, kind, source, on_commit)
    tables.remove(f"{tables.warehouse}/{REBUILDING}")
    return summary


def _prepare(tables: Tables, config: Config) -> None:
    """Mark the warehouse as half made, and remove the half that an earlier attempt has made."""
    marker = f"{tables.warehouse}/{REBUILDING}"
    tables.make_private(tables.warehouse)
    if tables.read_text(marker) is None:
        tables.write_text_once(marker, config.pipeline.name)
        return
    for name in tables.names(tables.warehouse):
        if tables[name].exists():
            tables.remove(tables[name].uri)
    tables.remove(config.checkpoint)


def _computed(
    spark: SparkSession, tables: Tables, config: Config, kind: Kind, source: ArchiveSource, on_commit: OnCommit | None
) -> RunSummary:
    """Compute and commit the one batch."""
    create_tables(tables, config, kind)
    pipeline = make_pipeline(tables, config, kind, make_checkpoint(tables, config))
    batch_id = source.archive.batch.batch_id
    offsets = copy_checkpoint(tables, source.archive, config.checkpoint)
    failpoints.hit("rebuild_checkpoint_copied")
    coordinator = Coordinator(spark, tables, pipeline, first=batch_id)
    if on_commit is not None:
        coordinator.on_commit = on_commit
    rows = source.rows(kind.inputs[EVENTS].decoder.columns)
    coordinator.run_batch(rows, batch_id, fingerprint(offsets), clock_of(offsets))
    if source.archive.from_us is not None and tables[schemas.EVENTS].exists():
        from_us = source.archive.from_us
        tables[schemas.EVENTS].set_app_versions({ARCHIVED_FROM: lambda _: from_us})
    save_batches(tables)
    InputLog(tables, config).committed(batch_id)
    return _summary(coordinator, source.archive)


def _summary(coordinator: Coordinator, archive: Archive) -> RunSummary:
    counts = {name: coordinator.totals.get(name, 0) for name in schemas.COUNTS}
    watermark = coordinator.last.watermark_us if coordinator.last else None
    lost = ", ".join(f"{count:,} {name}" for name, count in sorted(archive.corrections().items()))
    told = [f"corrections of the old warehouse were not repeated: {lost}"] if lost else []
    return RunSummary(1, counts, watermark, told)
