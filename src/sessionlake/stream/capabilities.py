"""Capabilities of operators that jobs ask for.

`Redeeming` takes in events that were refused before, whatever came since. `Restating` makes late events corrections, merged as far
as the operator's rules allow. `TopicTombstones` removes rows by tombstones in the topic of its events.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.aggregates import Aggregate, Events
from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.sources.columns import EventColumns
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse.schemas import TIME

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Redeeming:
    """The reading of the events' texts; pickled to the workers."""

    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    refuses: Callable[[Events], Bools] | None = None
    """Says which events the operator refuses, besides contract breaks."""

    @property
    def columns(self) -> EventColumns:
        """The columns of the source that are read."""
        return self.events.columns


RESTATES_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("start_time", TIME),
        ("end_time", TIME),
        ("event_count", pa.int64()),
        ("state", pa.binary()),
    ]
)
"""The columns of the table of corrections in which restates differ; `start_time` and key are theirs alone in a run."""


@dataclass(frozen=True)
class Merge:
    """The merge of late events of a key; pickled to the workers."""

    cell: Callable[[Ints], Ints]
    """The stretch of time that each event of a key may share with others, ascending with time; none is divided."""
    merge: Callable[[pa.Table], pa.Table]
    """From late events with the columns of `stream.ingest.event_table` and the operator's own ones, whole cells of keys,
    sorted by key and time, to rows of the schema."""
    schema: pa.Schema = RESTATES_SCHEMA
    """RESTATES_SCHEMA with the columns that an operator adds: a `kind` other than "restate", and an `ordinal` that distinguishes
    restates of one key and start."""


@dataclass(frozen=True)
class Restating:
    """The capability of an operator to take late events in again."""

    start_us: "Callable[[], Column]"
    """Returns, for a row of late_events, the start of its restate, in microseconds."""
    merge: Callable[[int], Merge]
    """Returns the merge of late events under a watermark, microseconds."""
    alone: Callable[[pa.Table], pa.Table] | None = None
    """Makes a restate of each late event alone, in order, as `Merge.merge` makes one of several; None if the operator can't."""


@dataclass(frozen=True)
class TopicTombstones:
    """The tombstones' records: a row's key, no value, and headers."""

    key: str
    """The column of the key, of the rows that are given."""
    headers: "Callable[[], Mapping[str, Column]]"
    """Returns the values of the headers, by their names in `sources.decoding.kafka_records.TOMBSTONE_HEADERS`."""
    partition: str | None = None
    """The column of the record's partition; None if its key decides."""
    of_keys: bool = False
    """Whether a tombstone removes a key's row whatever its revision, as any reader of the topic takes it.
    Its record's key must then equal the events' keys, and rows come as the changelog has them, with CAUSE."""
