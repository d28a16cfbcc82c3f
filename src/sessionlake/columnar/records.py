"""Columnar records: an operator's results for keys and stretches of time, as columns of equal length.

For example, a session or a window is one record. It has a key, a start and an end, the number of events, the batch that changed
it last, and packed aggregate states. Stores pack and unpack records, rules compute on them, and changelogs have them as rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined

UNTIL = "until_us"
"""The column of `Records.until`."""


@dataclass(frozen=True)
class Records:
    """Records in columns; `codes` say which of some keys each belongs to. Times are inclusive, microseconds.

    States stay packed (`aggregates.codec.StateCodec`): most stored records of a batch's keys take no part in it, and need
    no unpacking.
    """

    codes: Ints
    start: Ints
    end: Ints
    count: Ints
    revision: Ints
    state: pa.Array
    until: Ints | None = None
    """The last time at which an event still joins the record, if its end does not determine it."""

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def empty(cls) -> "Records":
        """Return no records."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, pa.array([], pa.binary()))

    @classmethod
    def from_table(cls, codes: Ints, table: pa.Table) -> "Records":
        """Return the records from a table's columns start_us, end_us, event_count, revision, state, and until_us if present."""
        names = ("start_us", "end_us", "event_count", "revision")
        start, end, count, revision = (table[name].to_numpy() for name in names)
        until = table[UNTIL].to_numpy() if UNTIL in table.column_names else None
        return cls(codes, start, end, count, revision, combined(table["state"]), until)

    def take(self, rows: Ints) -> "Records":
        """Return the given rows, in that order."""
        return Records(
            self.codes[rows],
            self.start[rows],
            self.end[rows],
            self.count[rows],
            self.revision[rows],
            self.state.take(pa.array(rows)),
            None if self.until is None else self.until[rows],
        )


def concat(parts: Sequence[Records]) -> Records:
    """Return the records of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Records.empty()
    names = ("codes", "start", "end", "count", "revision")
    codes, start, end, count, revision = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    state = pa.concat_arrays([part.state for part in parts])
    return Records(codes, start, end, count, revision, state, together([(len(part), part.until) for part in parts]))


def together(parts: Sequence[tuple[int, Ints | None]]) -> Ints | None:
    """Return several parts' column (rows, column) as one, for example `until`. Either all parts with rows have the column, or none has."""
    known = [column for rows, column in parts if rows and column is not None]
    return np.concatenate(known) if known else None
