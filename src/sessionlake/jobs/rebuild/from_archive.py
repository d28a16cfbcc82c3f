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
from sessionlake.jobs.rebuild.whole_source import WholeSource
from sessionlake.sources.registry import sources_of
from sessionlake.stream.computed import asks_otherwise
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.input_log import InputLog
from sessionlake.stream.inputs import pin_of
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
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
    source, taken = _source(spark, archive, new)
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


def _source(spark: SparkSession, archive: Archive, config: Config) -> tuple[ArchiveSource | WholeSource, Config]:
    """Return what the batch is made of, and the config under which it is shaped.

    Whole rows have no columns that were looked up, and their events have.
    """
    if archive.is_whole and not config.lookup:
        return WholeSource(archive, config, sources_of(spark, config)[EVENTS]), config
    # The archive has the rows that `where` let in; it need not have the columns that `where` reads now.
    taken = config.model_copy(update={"event": config.event.model_copy(update={"where": None})})
    return ArchiveSource(archive, config), taken


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
    spark: SparkSession,
    tables: Tables,
    config: Config,
    kind: Kind,
    source: ArchiveSource | WholeSource,
    on_commit: OnCommit | None,
) -> RunSummary:
    """Compute and commit the batch."""
    create_tables(tables, config, kind)
    # The batches to come go on from what was read of another pipeline.
    read = {
        pin: version for pin, version in source.archive.batch.pins.items() if pin in map(pin_of, config.inputs.values())
    }
    pipeline = make_pipeline(tables, config, kind, make_checkpoint(tables, config), pins=lambda *_: read)
    batch_id = source.archive.batch.batch_id
    offsets = copy_checkpoint(tables, source.archive, config.checkpoint)
    failpoints.hit("rebuild_checkpoint_copied")
    coordinator = Coordinator(spark, tables, pipeline, first=batch_id)
    if on_commit is not None:
        coordinator.on_commit = on_commit
    rows = source.rows(kind.inputs[EVENTS].decoder.columns)
    coordinator.run_batch(lambda _: rows, batch_id, fingerprint(offsets), clock_of(offsets))
    from_us = source.archive.from_us
    for name in (schemas.EVENTS, schemas.SOURCE_ROWS):
        if from_us is not None and tables[name].exists():
            tables[name].set_app_versions({ARCHIVED_FROM: lambda _: from_us})
    save_batches(tables)
    InputLog(tables, config).committed(batch_id)
    return _summary(coordinator, source, config)


def _summary(coordinator: Coordinator, source: ArchiveSource | WholeSource, config: Config) -> RunSummary:
    archive = source.archive
    counts = {name: coordinator.totals.get(name, 0) for name in schemas.COUNTS}
    watermark = coordinator.last.watermark_us if coordinator.last else None
    lost = ", ".join(f"{count:,} {name}" for name, count in sorted(archive.corrections().items()))
    told = [f"corrections of the old warehouse were not repeated: {lost}"] if lost else []
    if isinstance(source, ArchiveSource) and asks_otherwise(config, archive.batch.settings):
        why = "whole rows lack the columns of lookups" if archive.is_whole else _whole_from(archive)
        told.append(f"{config.event_at}.where was not asked of archived events, which an earlier one let in: {why}")
    return RunSummary(1, counts, watermark, told)


def _whole_from(archive: Archive) -> str:
    if archive.whole_since is None:
        return "whole rows are kept with pipeline.archive = 'all'"
    return f"whole rows are kept from batch {archive.whole_since} on, and events from batch {archive.first} on"
