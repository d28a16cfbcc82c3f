"""The tables of windows, by time or by count: slices, which are the state, and the windows that were sent."""

import pyarrow as pa

from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.row_table import INT64, Column, Role, RowTable
from sessionlake.warehouse.schemas import TIME

SLICES = "slices"
"""Name of the changes of slices among the outputs of a shard."""


def slice_table(of: Changelog, rows: str, start: str, end: Column, *more: Column) -> RowTable:
    """Return the table of slices, which restores stores. `rows` names the contents, `start` is a comment, `more` are the last columns."""
    columns = (
        *_identity(of, f"The key whose {rows} the slice holds", start),
        end,
        Column("event_count", INT64, f"{rows.capitalize()} in the slice", Role.COUNT, "count"),
        # A VALUE, and not the REVISION of the row: lists depend on the batch that changed the slice.
        Column("revision", INT64, "batch_id of the slice's last change", Role.VALUE, "revision"),
        *more,
    )
    return RowTable(of, columns, of.snapshot, SLICES, hashed=(of.start,))


def window_table(
    of: Changelog, rows: str, start: str, end: str, count: str, triggers: str, *more: Column | None
) -> RowTable:
    """Return the table of windows that were sent. `start`, `end`, `count` are comments, `triggers` the causes, `more` the last columns."""
    columns = (
        *_identity(of, f"The key whose {rows} the window holds", start),
        Column(of.end, _place(of), end),
        Column("event_count", INT64, count, Role.COUNT, "count"),
        Column("revision", INT64, "batch_id of the window's last change", Role.REVISION, "revision"),
        Column("trigger", pa.string(), f"Why it was sent: {triggers} (docs/windows.md)"),
        Column("emitted_at", TIME, "The clock of the batch that sent the row", Role.CLOCK),
        *more,
    )
    return RowTable(of, columns, of.snapshot, hashed=(of.start,))


def _identity(of: Changelog, key: str, start: str) -> tuple[Column, Column]:
    return Column(of.key, pa.string(), key, Role.KEY, "key"), Column(of.start, _place(of), start, Role.VALUE, "start")


def _place(of: Changelog) -> pa.DataType:
    return TIME if of.has_times else INT64
