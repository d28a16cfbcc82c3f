"""How late events become restates: corrections that hand them in again, merged as far as the operator's rules allow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.warehouse.schemas import TIME

if TYPE_CHECKING:
    from pyspark.sql import Column

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
    """Returns, of a row of late_events, the start of the restate that it would be part of, in microseconds."""
    merge: Callable[[int], Merge]
    """Returns the merge of late events under a watermark, microseconds."""
    alone: Callable[[pa.Table], pa.Table] | None = None
    """Makes a restate of each late event by itself, in their order, as `Merge.merge` makes one of several; None if the operator can't."""
