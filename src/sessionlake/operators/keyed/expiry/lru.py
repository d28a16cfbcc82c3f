"""Pattern `lru`: a shard keeps so many rows, and those go first whose last change is the oldest.

The bound holds at the end of every batch that gives the shard a row, whatever the clock says. A row is as recent as the
update that it is of: the batch of it, then its time, then its key. To read a row changes nothing.

Rows may also be hidden so long after they were written. These go without a delete, and before others: by the order of the index, since
batches are written at clocks that never go back.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.operators.keyed.expiry.pattern import CHUNK, Found, Moved, Pass
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import RECENCY, RowStore, parted, sorted_numbers
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.changelog import LRU

_FIRST_LOOK = 64
"""Entries that are read to find whether rows are hidden."""


@dataclass(frozen=True)
class Lru:
    """See `Pattern` for the methods."""

    bound: int
    """Rows of a shard."""
    hides_us: int | None = None
    """How long after it was written a row is absent without a delete; None for no such time."""
    index: int = RECENCY
    cause: str = LRU
    layout: str = "lru"

    def entries(self, rows: TableRows) -> pa.Array:
        """Return the entry of each row."""
        number = sorted_numbers(rows.revision, rows.time)
        return pc.binary_join_element_wise(number, rows.keys.cast(pa.binary()), b"")

    def moved(self, put: TableRows, was: TableRows, found: Found) -> Moved:
        """Return the entries of rows that are put, and those of rows that are replaced or go."""
        return Moved(self.entries(put), pa.concat_arrays([self.entries(was), found.passed]))

    def lag_us(self, rows: TableRows, clock_us: int) -> None:
        """Return None: rows go for their number."""

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the least recent rows, as many as there are too many of, and those that are hidden."""
        hidden = self._hidden(store, at)
        before = store.entry_count(self.index) - len(hidden)
        total = before - at.held + len(at.put)
        excess = max(total - self.bound, 0)
        # Of these at most `held` are the batch's own, so that at least as many others are left as must go, if there are.
        after = hidden[-1].as_py() if len(hidden) else None
        shown = store.entries(self.index, None, excess + at.held, after) if excess else hidden[:0]
        gone = [entries.filter(pa.array(at.unchanged(parted(entries, 2)[1]))) for entries in (hidden, shown)]
        gone[1] = gone[1][:excess]
        at_once = np.zeros(len(at.put), bool)
        at_once[pc.sort_indices(self.entries(at.put)).to_numpy()[: excess - len(gone[1])]] = True
        passed = pa.concat_arrays(gone)
        keys = parted(passed, 2)[1]
        keys = keys.take(pc.sort_indices(keys))
        return Found(at_once, keys, store.rows(keys), scanned=len(hidden) + len(shown), passed=passed)

    def _hidden(self, store: RowStore, at: Pass) -> pa.Array:
        """Return the entries, ascending, of rows that are hidden, and that the store still has: the first ones of the index."""
        found, limit = pa.array([], pa.binary()), _FIRST_LOOK
        while at.hidden_us != NO_WATERMARK:
            page = store.entries(self.index, None, limit, found[-1].as_py() if len(found) else None)
            keys = parted(page, 2)[1]
            rows = store.rows(keys.take(pc.sort_indices(keys)))
            hidden = int((rows["written"] <= at.hidden_us).sum())
            found = pa.concat_arrays([found, page[:hidden]])
            if hidden < limit:
                break
            limit = CHUNK
        return found
