"""The archive as a backfill's source: the events of each batch as they were accepted, even if the source has lost them."""

import itertools
from collections.abc import Collection, Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.config.times import format_time
from sessionlake.sources.decoding.whole import SCHEMA
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.recompute import Window
from sessionlake.stream.whole import ALL
from sessionlake.warehouse import schemas
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import ARCHIVED_FROM


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
