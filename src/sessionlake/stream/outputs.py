"""From what tasks put out to the columns of tables. Workers unpickle these functions, so that nothing of Spark is imported here."""

import pyarrow as pa

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.identity import record_ids
from sessionlake.warehouse.schemas import SIDE

LATE = "late"
"""Kind of the events that are past grace and within retention."""


def same_rows(rows: pa.Table) -> pa.Table:
    """Return rows that are as their table has them."""
    return rows


def sided_rows(rows: pa.Table) -> pa.Table:
    """Return rows that are as their table has them, but that those of corrections lack the side."""
    if SIDE in rows.column_names:
        return rows
    return rows.append_column(SIDE, pa.nulls(rows.num_rows, pa.string()))


def archived_rows(events: pa.Table) -> pa.Table:
    """Return events as the archive has them."""
    names = {"key": "session_key", "time_us": "event_time"}
    return events.rename_columns([names.get(name, name) for name in events.column_names])


def late_rows(late: pa.Table) -> pa.Table:
    """Return late events as their table has them, with the columns that are an operator's own."""
    names = {"key": "session_key", "time_us": "event_time", "close_us": "close_time"}
    return late.rename_columns([names.get(name, name) for name in late.column_names])


def identified_rows(changes: pa.Table, name: str) -> pa.Table:
    """Return changes of what a changelog calls `name`, with the id that is a hash of their key and start."""
    start = changes[f"{name}_start"].cast(pa.int64()).to_numpy()
    return changes.append_column(f"{name}_id", pa.array(record_ids(combined(changes[f"{name}_key"]), start)))
