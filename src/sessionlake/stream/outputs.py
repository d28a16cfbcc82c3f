"""From the tasks' output rows to the columns of tables.

Workers unpickle these functions, so this module must not import Spark.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.identity import record_ids
from sessionlake.columnar.keys import key_parts
from sessionlake.warehouse.schemas import SIDE

Rows = Callable[[pa.Table], pa.Table]
LATE = "late"
"""Kind of the events that are past grace and within retention."""


def same_rows(rows: pa.Table) -> pa.Table:
    """Return rows as their table has them."""
    return rows


def sided_rows(rows: pa.Table) -> pa.Table:
    """Return rows as their table has them, except that rows of corrections lack the side."""
    if SIDE in rows.column_names:
        return rows
    return rows.append_column(SIDE, pa.nulls(rows.num_rows, pa.string()))


def archived_rows(events: pa.Table) -> pa.Table:
    """Return events as the archive has them."""
    names = {"time_us": "event_time"}
    return events.rename_columns([names.get(name, name) for name in events.column_names])


def late_rows(late: pa.Table) -> pa.Table:
    """Return late events as their table has them, with the operator's own columns."""
    names = {"time_us": "event_time", "close_us": "close_time"}
    return late.rename_columns([names.get(name, name) for name in late.column_names])


def keyed_rows(changes: pa.Table, key: str, names: Sequence[str], rows: Rows = same_rows) -> pa.Table:
    """Return changes, converted by `rows`, with their key's columns after the column `key`."""
    changes = rows(changes)
    at = changes.column_names.index(key) + 1
    parts = key_parts(combined(changes[key]), len(names)) if names else []
    for place, (name, part) in enumerate(zip(names, parts, strict=True), at):
        changes = changes.add_column(place, name, part)
    return changes


def identified_rows(changes: pa.Table, name: str) -> pa.Table:
    """Return changes of the changelog `name`, with an id, the hash of key and start."""
    start = changes[f"{name}_start"].cast(pa.int64()).to_numpy()
    return changes.append_column(f"{name}_id", pa.array(record_ids(combined(changes[f"{name}_key"]), start)))
