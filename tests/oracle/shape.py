"""Rules 210 to 212 in plain Python: computed columns from top to bottom, then the rows for which a condition is true."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Value = Callable[[Row], Any]


def shaped(rows: Sequence[Row], columns: Mapping[str, Value], where: Value) -> tuple[list[dict[str, Any]], int]:
    """Return the rows that are events, with their computed columns, and the number of the others."""
    kept = []
    for row in rows:
        seen = dict(row)
        for name, value in columns.items():
            seen[name] = value(seen)
        if where(seen) is True:
            kept.append(seen)
    return kept, len(rows) - len(kept)
