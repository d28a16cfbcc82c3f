"""The table of a keyed table's rows. Light: who only reads tables imports it."""

from functools import cache

import pyarrow as pa

from sessionlake.warehouse.changelog import CAUSE, DELETED, INSERTED, WRITTEN, KeyedChangelog
from sessionlake.warehouse.row_table import INT64, VALUES, Column, Role, RowTable
from sessionlake.warehouse.schemas import TIME

TABLE = KeyedChangelog("table", time="event_time", counts=("changed", "superseded", "unchanged"))
"""The names of the tables, and of the counts of batches."""


@cache
def table_of(*, has_offsets: bool, has_ids: bool) -> RowTable:
    """Return the table of rows and deletions; events have offsets, ids or neither."""
    places = [Column(f"event_{name}", INT64, f"The {name} of that event") for name in ("partition", "offset")]
    ids = [Column("event_id", pa.string(), "The id of that event")]
    columns = (
        Column(TABLE.key, pa.string(), "The key", Role.KEY),
        Column("event_time", TIME, "Time of the event that the row is of, or that deleted it"),
        VALUES,
        # VALUEs, and not the CLOCK and REVISION of the row: a row that is replaced has those of its last change.
        Column("revision", INT64, "batch_id of the row's last change"),
        Column(WRITTEN, TIME, "Clock of that batch; it never goes back"),
        Column(INSERTED, TIME, "Clock of the batch that gave the key a row; null in a delete"),
        *(places if has_offsets else []),
        *(ids if has_ids else []),
    )
    cause = Column(CAUSE, pa.string(), "update (an event), tombstone (a correction), ttl or lru (too many rows)")
    deleted = Column(DELETED, pa.bool_(), "Whether the key was deleted: no row, kept for the retention")
    notes = {TABLE.snapshot: ", and deletions"}
    return RowTable(TABLE, columns, TABLE.snapshot, changed_only=(cause,), stored_only=(deleted,), notes=notes)
