"""The tables of windows by count. Light: who only reads tables imports it."""

import pyarrow as pa

from sessionlake.operators.shared.windowing.tables import slice_table, window_table
from sessionlake.warehouse.changelog import STATE, NumberedChangelog
from sessionlake.warehouse.row_table import INT64, VALUES, Column, Role, RowTable

SLICES = slice_table(
    NumberedChangelog("slice"),
    "messages",
    "First message that the slice can have, inclusive",
    Column("slice_end", INT64, "Last message that it has, inclusive", Role.VALUE, "last"),
    Column("first", INT64, "The number of the key's first message, since it is known", Role.VALUE, "first"),
    Column("newest", INT64, "The newest event time of the key, microseconds", Role.VALUE, "newest"),
    Column(STATE, pa.binary(), "Packed aggregate states; what a restore needs", Role.VALUE, STATE),
)
"""The state that windows are made of."""


def _windows(numbers: str) -> RowTable:
    return window_table(
        NumberedChangelog("window", (SLICES.changelog,)),
        "messages",
        f"First message of the window, inclusive: {numbers}",
        "Last message of the window, inclusive",
        "Messages in the window, so far",
        "early, full",
        VALUES,
    )


WINDOWS, BY_PARTITION = _windows("a key's number"), _windows("a position (docs/windows.md)")
"""The windows that were sent, if messages are numbered by key or by partition."""
