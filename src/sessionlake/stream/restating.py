"""How late events become restates: corrections that hand them in again, merged as far as the operator's rules allow."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.warehouse.schemas import TIME

RESTATES_SCHEMA = pa.schema(
    [
        ("session_key", pa.string()),
        ("session_start", TIME),
        ("session_end", TIME),
        ("event_count", pa.int64()),
        ("state", pa.binary()),
    ]
)
"""The columns of the table of corrections in which restates differ; `session_start` and key are theirs alone in a run."""


@dataclass(frozen=True)
class Restating:
    """An operator's way to do so; pickled to the workers."""

    cell: Callable[[Ints], Ints]
    """The stretch of time that each event of a key may share with others, ascending with time; none is divided."""
    merge: Callable[[pa.Table], pa.Table]
    """From late events with the columns of `stream.ingest.event_table` and the operator's own ones, whole cells of keys,
    sorted by key and time, to rows of the schema."""
    schema: pa.Schema = RESTATES_SCHEMA
    """RESTATES_SCHEMA, or what an operator adds: a `kind` that is not "restate", and a `revision` that tells restates of one
    key and start apart."""
