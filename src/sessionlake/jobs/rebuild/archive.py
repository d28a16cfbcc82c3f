"""The archive that a rebuild is made of: which batches it has, and the positions in the source at the last of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.operators import OPERATORS, named
from sessionlake.config.times import format_time
from sessionlake.errors import JobError
from sessionlake.stream.control import ADVANCE, FLUSH, TICK
from sessionlake.stream.input_log import BatchInputs, batch_inputs
from sessionlake.stream.planned_offsets import fingerprint
from sessionlake.stream.whole import ALL
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after, last_batch
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ARCHIVED_FROM

FROM_SOURCE = "rebuild from the source, without --from-archive"
"""The remedy where the archive is not enough."""


@dataclass(frozen=True)
class Archive:
    """The archived events of a warehouse as of a batch."""

    tables: Tables
    version: int
    """Of the table `events`."""
    checkpoint: str
    batch: BatchCommit
    """The last batch that the archive has."""
    offsets: str
    """The text of that batch's file of offsets."""
    from_us: int | None
    """The event time before which events have left the archive; None if none have."""
    whole_since: int | None
    """The batch from which on it has whole rows of all that it has; None if it has none of the last batch."""
    first: int
    """The first batch that it has."""
    whole_version: int
    """Of the table `source_rows`; -1 if there is none."""

    @property
    def is_whole(self) -> bool:
        """Whether it has whole rows of each batch of which it has events."""
        return self.whole_since is not None and self.whole_since <= self.first

    def rows(self) -> DataFrame:
        """Return the archived events up to the batch."""
        return self.tables[schemas.EVENTS].read(self.version).where(F.col(BATCH) <= self.batch.batch_id)

    def whole_rows(self) -> DataFrame:
        """Return the whole rows up to the batch."""
        return self.tables[schemas.SOURCE_ROWS].read(self.whole_version).where(F.col(BATCH) <= self.batch.batch_id)

    def corrections(self) -> Counter[str]:
        """Count the corrections that took effect up to the batch, by kind, without corrections that only move the stream on."""
        outcomes = self.tables[schemas.CORRECTION_OUTCOMES].read()
        applied = outcomes.where((F.col("outcome") == schemas.APPLIED) & (F.col(BATCH) <= self.batch.batch_id))
        others = applied.where(~F.col("kind").isin(ADVANCE, TICK, FLUSH))
        return Counter(dict(others.groupBy("kind").agg(F.count("*")).collect()))


def find_archive(spark: SparkSession, config: Config, *, incomplete: bool) -> Archive:
    """Return the archive of a config's warehouse, whatever operator made it, as of the last batch that it has.

    Raises JobError if it lacks events of an earlier batch, unless `incomplete`, or if the checkpoint no longer has the
    positions of that batch.
    """
    tables = _with_its_changelog(Tables.of(spark, config))
    last = last_batch(tables)
    if last.pipeline != config.pipeline.name:
        raise JobError(
            f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {last.pipeline!r}, not {config.pipeline.name!r}; "
            "write the old name"
        )
    # Before the mark of a trimmed archive is read: a compaction, which may run now, sets the mark, and then deletes.
    version, whole_version = (tables[name].latest_version() for name in (schemas.EVENTS, schemas.SOURCE_ROWS))
    inputs = batch_inputs(tables, config, last.batch_id)
    batch = _last_archived(tables, config, inputs, last, incomplete=incomplete)
    offsets = tables.read_text(f"{config.checkpoint}/offsets/{batch.batch_id}")
    if offsets is None or batch.input not in (None, fingerprint(offsets)):
        raise JobError(
            f"--from-archive: the archive ends with batch {batch.batch_id}, and the checkpoint no longer has the positions "
            f"at which that batch ended; {FROM_SOURCE}"
        )
    kept = [i for i in inputs if i.batch_id <= batch.batch_id and i.settings.get("archive")]
    return Archive(
        tables,
        version,
        config.checkpoint,
        batch,
        offsets,
        tables[schemas.EVENTS].app_version(ARCHIVED_FROM),
        whole_since(kept),
        kept[0].batch_id,
        whole_version,
    )


def whole_since(inputs: Sequence[BatchInputs]) -> int | None:
    """Return the first batch from which on all batches' rows were kept whole; None if the last batch's rows were not."""
    since = None
    for each in reversed(inputs):
        if each.settings.get("archive") != ALL:
            break
        since = each.batch_id
    return since


def _with_its_changelog(tables: Tables) -> Tables:
    """Return the tables with the changelog that they have, which may be of another operator than the config's."""
    known = (tables.changelog, *(named(entry.changelog) for entry in OPERATORS.values()))
    found = next((of for of in known if tables[of.changes].exists()), tables.changelog)
    return tables.seen_by(found)


def _last_archived(
    tables: Tables, config: Config, inputs: Sequence[BatchInputs], last: BatchCommit, *, incomplete: bool
) -> BatchCommit:
    archived = [i.batch_id for i in inputs if i.settings.get("archive")]
    if not archived or not tables[schemas.EVENTS].exists():
        raise JobError(
            f"--from-archive: {config.pipeline.warehouse!r} has no archive (pipeline.archive was never true); {FROM_SOURCE}"
        )
    lacking = next((i.batch_id for i in inputs if i.batch_id < archived[-1] and not i.settings.get("archive")), None)
    from_us = tables[schemas.EVENTS].app_version(ARCHIVED_FROM)
    if not incomplete and (lacking is not None or from_us is not None):
        gone = (
            f"lacks the events of batch {lacking}"
            if lacking is not None
            else f"begins with {format_time(from_us or 0)}"
        )
        raise JobError(
            f"--from-archive: the archive {gone}; {FROM_SOURCE}, or pass --from-what-is-there to build from the events that it has"
        )
    if archived[-1] == last.batch_id:
        return last
    return next(batch for batch in batches_after(tables) if batch.batch_id == archived[-1])
