"""The events that the stream had consumed, read again as it read them: each with the batch that classified it."""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.config.times import format_time
from sessionlake.engine import exchange
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.sources.decoding.whole import SCHEMA
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.recompute import Pieces, Window
from sessionlake.stream.whole import ALL
from sessionlake.warehouse import schemas
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ARCHIVED_FROM


def needed_batches(inputs: Iterable[BatchInputs], window: Window) -> set[int]:
    """Return the batches that can have brought events of a window.

    An event that a batch accepts is at most the retention older than the watermark before the batch, and no newer than
    the watermark after it. Late events are included.
    """
    return {
        i.batch_id
        for i in inputs
        if i.watermark_us is not None
        and i.watermark_us >= window.low
        and (i.watermark_before_us is None or i.watermark_before_us - i.settings["retention_us"] <= window.high)
    }


def split_basis(rows: DataFrame, shards: int, window: Window, pieces: Pieces) -> DataFrame:
    """Cut rows into pieces, and return wire rows of the pieces that meet the window: accepted events only."""

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in batches:
            for batch_id, kind, partials in pieces(pa.Table.from_batches([record])):
                inside = np.flatnonzero(window.meets(partials.start, partials.end))
                if len(inside):
                    read = at_batch(partials.take(inside), np.full(len(inside), batch_id))
                    shard = shard_of(read.keys, shards)
                    yield from exchange.wire_rows(by_shard(kind, read.to_table(), shard))

    return map_in_arrow(rows, split, WIRE_DDL)


def at_batch(partials: Partials, batch: Ints) -> Partials:
    """Return partials whose revision is the batch that consumed them."""
    return replace(partials, revision=batch)


def rows_by_shard(kind: str, table: pa.Table, shards: int) -> Iterator[pa.RecordBatch]:
    """Yield a table with a column `key` as wire rows."""
    yield from exchange.wire_rows(by_shard(kind, table, shard_of(combined(table["key"]), shards)))


def lacking(
    tables: Tables, inputs: Iterable[BatchInputs], needed: Collection[int], window: Window, version: int
) -> str | None:
    """Return a line about the events or tombstones of a window that a version of the archive lacks; None if it has all.

    A tombstone in a topic may come at any time after its session. Therefore all batches from the first needed one on
    must be archived.
    """
    first = min(needed)
    batch = max((i.batch_id for i in inputs if i.batch_id >= first and not i.settings.get("archive")), default=None)
    if batch is not None:
        return f"batch {batch} was not archived; set pipeline.archive = true: then events of later batches can be backfilled"
    from_us = tables[schemas.EVENTS].app_version(ARCHIVED_FROM, version)
    if from_us is not None and from_us > window.low:
        return f"the archive begins with {format_time(from_us)} (compact.archive); backfill a range that begins at least a gap after it"
    return None


def archived_events(
    tables: Tables, inputs: list[BatchInputs], window: Window, version: int, but: Collection[int] = ()
) -> DataFrame:
    """Return the events of the window that the batches, `but` some, read and did not refuse: key, time_us, event_id, event, batch_id.

    `version` is the one that `lacking` has checked, because a concurrent compaction may delete old events.
    """
    time = F.unix_micros("event_time")
    rows = tables[schemas.EVENTS].read(version).where(F.col(BATCH) <= inputs[-1].batch_id)
    rows = rows.where(time.between(window.low, window.high) & ~_is_among(but))
    return rows.select(F.col("key").alias("key"), time.alias("time_us"), "event_id", "event", BATCH)


def whole_batches(
    tables: Tables,
    inputs: Iterable[BatchInputs],
    needed: Collection[int],
    window: Window,
    events: EventSpec,
    version: int,
) -> set[int]:
    """Return the needed batches of which whole rows are read: their archived events lack a column, and a version has all whole rows.

    There is none if duplicates are looked for: whole rows have them, and archived events have not; nor if `version` is -1.
    """
    if events.unique_us is not None or version < 0:
        return set()
    from_us = tables[schemas.SOURCE_ROWS].app_version(ARCHIVED_FROM, version)
    if from_us is not None and from_us > window.low:
        return set()
    names = {*events.columns.inputs}
    kept = {i.batch_id for i in inputs if i.settings.get("archive") == ALL}
    return {batch for batch in needed if batch in kept and not names <= events.read_at(batch)}


def whole_rows(tables: Tables, window: Window, batches: Collection[int], version: int) -> DataFrame:
    """Return the whole rows of some batches with a time in the window, for `read_again`; `version` as in `archived_events`."""
    rows = tables[schemas.SOURCE_ROWS].read(version).where(_is_among(batches))
    time = F.unix_micros("event_time")
    return rows.where(time.between(window.low, window.high)).select(*SCHEMA.names, BATCH)


def _is_among(batches: Collection[int]) -> Column:
    """Return the condition of rows of some batches, run by run: there may be many."""
    ordered, found = sorted(batches), F.expr("false")
    starts = [at for at, batch in enumerate(ordered) if not at or ordered[at - 1] < batch - 1]
    for first, end in itertools.pairwise([*starts, len(ordered)]):
        found = found | F.col(BATCH).between(ordered[first], ordered[end - 1])
    return found
