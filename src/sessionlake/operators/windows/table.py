"""The tables of windows by time. Light: who only reads tables imports it."""

from functools import cache

import pyarrow as pa

from sessionlake.operators.shared.windowing.tables import slice_table, window_table
from sessionlake.warehouse.changelog import STATE, Changelog
from sessionlake.warehouse.row_table import INT64, VALUES, Column, Role, RowTable
from sessionlake.warehouse.schemas import TIME

SLICES = Changelog("slice")
"""The tables of the state that windows are made of, if windows are not the state."""
WINDOWS = Changelog("window", (SLICES,))
"""The tables of windows that were sent."""
_BORN = (
    Column("born", INT64, "batch_id of the batch that made it", Role.VALUE, "born"),
    Column("born_reach", INT64, "The frontier before that batch, microseconds", Role.VALUE, "born_reach"),
)
_AT_EVENT = Column("at_event", pa.bool_(), "Whether an event lies at the window's end (RANGE PRECEDING's rows)")
_STATE = Column(
    STATE, pa.binary(), "Packed aggregate states; what a restore needs beyond the values", Role.VALUE, STATE
)


@cache
def tables_of(*, is_sliding: bool, rows_are_state: bool) -> tuple[RowTable, ...]:
    """Return the tables in the order of their commits: slices, unless the rows of windows are the state, and windows."""
    windows = window_table(
        WINDOWS,
        "events",
        "Start of the window, inclusive",
        f"End of the window, {'inclusive' if is_sliding else 'exclusive'}",
        "Events in the window",
        "early, full, late, restate",
        *((_AT_EVENT,) if is_sliding else ()),
        VALUES,
        *((_STATE,) if rows_are_state else ()),
    )
    slices = slice_table(
        SLICES,
        "events",
        "Start of the slice, inclusive",
        Column("slice_end", TIME, "End of the slice, exclusive"),
        Column("reach", INT64, "The frontier before that batch, microseconds", Role.VALUE, "reach"),
        *(_BORN if is_sliding else ()),
        _STATE,
    )
    return (windows,) if rows_are_state else (slices, windows)
