"""Pattern `lru`: a shard keeps so many rows, and those go first whose last change is the oldest.

The bound holds at the end of every batch that gives the shard a row, whatever the clock says. A row is as recent as the
update that it is of: the batch of it, then its time, then its key. To read a row changes nothing.

Rows may also be hidden so long after they were written. A store keeps those until they are too many, and nobody is told of them when they
go: they are the least recent ones, since batches are written at clocks that never go back. So it is the same to those that are shown
how many hidden ones a store has, which depends on when it was restored.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools
from sessionlake.operators.keyed.expiry.pattern import Found, Moved, Pass
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import RECENCY, RowStore, parted, sorted_numbers
from sessionlake.warehouse.changelog import LRU


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

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Raise NotImplementedError: no cleanup takes rows away."""
        raise NotImplementedError

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the least recent rows, as many as there are too many of."""
        total = store.entry_count(self.index) - at.held + len(at.put)
        excess = max(total - self.bound, 0)
        # Of these at most `held` are the batch's own, so that at least as many others are left as must go, if there are.
        entries = store.entries(self.index, None, excess + at.held) if excess else pa.array([], pa.binary())
        passed = entries.filter(pa.array(at.unchanged(parted(entries, 2)[1])))[:excess]
        keys = parted(passed, 2)[1]
        keys = keys.take(pc.sort_indices(keys))
        at_once = np.zeros(len(at.put), bool)
        at_once[pc.sort_indices(self.entries(at.put)).to_numpy()[: excess - len(passed)]] = True
        first = entries[0].as_py() if len(entries) else None
        return Found(at_once, keys, store.rows(keys), scanned=len(entries), first=first, passed=passed)
