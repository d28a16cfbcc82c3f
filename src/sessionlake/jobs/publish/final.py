"""Final sessions or windows to a topic: each when the watermark passes its close, and its changes after that.

No change in the changelog says that a session closes: only the watermark moves, which is in every batch's commit. So
the publisher compares one committed batch with a later one, and reads the rows that closed between from the tables, by
their end. The stream's stores keep nothing for this, so a stream that is not published has no cost
(docs/decisions/0013).

A correction may open a final session again, and so may an event that joins it to an open one (docs/rules.md, rule 5).
The topic keeps the old row until the session is final again or deleted.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.sections import OperatorSection
from sessionlake.config.source import KafkaSink
from sessionlake.engine import failpoints
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.publish.records import OnBatch, OnTurn, send, without_quarantined
from sessionlake.jobs.publish.steps import Progress
from sessionlake.stopping import pause
from sessionlake.stream.positions import POSITIONS
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import FINAL
from sessionlake.warehouse.views import changes, latest_changes, merged_rows, read_batches, rows_meeting


@dataclass(frozen=True)
class Reached:
    """How far the topic is: all rows that were final as of a batch are in it, as they were then."""

    batch_id: int = -1
    close_us: int = NO_WATERMARK
    """Rows that ended strictly before this time are final."""
    version: int = -1
    """The changelog's version of that batch."""
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many messages were accepted by then, of rows that start and end with their numbers."""


def publish_final(
    tables: Tables,
    config: Config,
    sink: KafkaSink,
    checkpoint: str,
    *,
    once: bool,
    on_batch: OnBatch,
    meanwhile: OnTurn,
) -> tuple[int, bool]:
    """Publish until stopped or, with `once`, up to now; return how often records were sent, and whether from the beginning on."""
    every_s = max(1.0, parse_duration(config.pipeline.trigger) / 1e6)
    reached, sent = read_reached(tables, checkpoint), 0
    first = reached.batch_id < 0
    while True:
        last = last_batch(tables)
        if last.batch_id > reached.batch_id:
            as_then = config.as_taken(last.settings.rebuild, last.settings.live)
            close = max(reached.close_us, closed_us(as_then, last))
            now = Reached(last.batch_id, close, last.version, last.state.get(POSITIONS, {}))
            became_final = finals if tables.changelog.has_times else full
            found = became_final(tables, as_then.section, reached, now)
            send(without_quarantined(found, config), tables.changelog, sink)
            # Killed here, the same are sent again, as they are by then: a reader sees nothing that was not so.
            failpoints.hit("published_final")
            _progress(tables, checkpoint).write(now.batch_id, json.dumps(asdict(now)))
            reached, sent = now, sent + 1
            on_batch(sent, first and sent == 1)
        if once:
            return sent, first
        meanwhile()
        pause(every_s)


def read_reached(tables: Tables, checkpoint: str) -> Reached:
    """Return how far a topic is."""
    text = _progress(tables, checkpoint).read()
    return Reached(**json.loads(text)) if text else Reached()


def _progress(tables: Tables, checkpoint: str) -> Progress:
    return Progress(tables, f"{checkpoint}/{FINAL}")


def closed_us(config: Config, last: BatchCommit) -> int:
    """Return the time before which rows must have ended, strictly, to be final as of a batch."""
    closed = config.section.closed_us(last.watermark_us)
    return NO_WATERMARK if closed is None else closed


def finals(tables: Tables, section: OperatorSection, before: Reached, now: Reached) -> DataFrame:
    """Return rows that became final between two batches, and changes of rows that were final before: rows with op."""
    of = tables.changelog
    rows = rows_meeting(tables, before.close_us - section.closes_late_us, changelog_version=now.version)
    closing = F.expr(section.closing_sql("unix_micros({})", of.end))
    closed = rows.where((closing >= before.close_us) & (closing < now.close_us)).withColumn("op", F.lit("upsert"))
    if before.batch_id < 0:
        return closed
    tail = changes(tables[of.changes].read(now.version), before.batch_id, now.batch_id)
    _require_whole(tables, tail, before, now)
    was_final = closing < before.close_us
    # A row that opened again may be deleted while its end is after the close; its start says that it may be in the
    # topic.
    may_be_there = (F.col("op") == "delete") & (F.unix_micros(of.start) < before.close_us)
    return closed.unionByName(latest_changes(tail, of).where(was_final | may_be_there).select(*columns(closed.columns)))


def full(tables: Tables, section: OperatorSection, before: Reached, now: Reached) -> DataFrame:
    """Return, of rows that start and end with numbers, those that got full between two batches, and the deleted ones: rows with op.

    A full window never changes again.
    """
    of = tables.changelog
    is_final, was_final = (F.expr(section.final_sql(of.end, {POSITIONS: at.positions})) for at in (now, before))
    rows = merged_rows(tables, changelog_version=now.version).withColumn("op", F.lit("upsert"))
    known = was_final & (F.col("revision") <= before.batch_id)
    found = rows.where(is_final & ~known)
    if before.batch_id < 0:
        return found
    tail = changes(tables[of.changes].read(now.version), before.batch_id, now.batch_id)
    _require_whole(tables, tail, before, now)
    return found.unionByName(latest_changes(tail, of).where("op = 'delete'").select(*columns(found.columns)))


def _require_whole(tables: Tables, tail: DataFrame, before: Reached, now: Reached) -> None:
    """Raise PipelineStateError if changes since the batch before are trimmed from the changelog."""
    of_span = (F.col("batch_id") > before.batch_id) & (F.col("batch_id") <= now.batch_id)
    summed = read_batches(tables).where(of_span).agg(F.coalesce(F.sum(F.col("upserts") + F.col("deletes")), F.lit(0)))
    if tail.count() < summed.collect()[0][0]:
        raise PipelineStateError(
            f"publish: changes that were not read yet are gone from {tables.changelog.changes!r}; make a new topic, which then gets all that "
            "is final"
        )
