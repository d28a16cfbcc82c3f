"""Pattern `lru`: a shard keeps so many rows, and those go first whose last change is the oldest.

The bound holds at the end of every batch that gives the shard a row, whatever the clock says. A row is as recent as the
update that it is of: the batch of it, then its time, then its key. To read a row changes nothing.

Rows may also be hidden so long after they were written. These go without a delete, and before others: by the order of the index, since
batches are written at clocks that never go back.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.operators.keyed.expiry.pattern import Found, Pass
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import RECENCY, RowStore, parted, sorted_numbers
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.changelog import LRU

_ROWS = "rows"
"""The cursor's field: how many rows the shard has; counted where it is not there, as after a change of the layout."""


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

    def lag_us(self, rows: TableRows, clock_us: int) -> None:
        """Return None: rows go for their number."""

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the least recent rows, as many as there are too many of, and those that are hidden."""
        if at.hidden_us != NO_WATERMARK:
            return self._found_among_hidden(store, at)
        known = at.cursor.get(_ROWS)
        before = len(store.entries(self.index)) if known is None else int(known)
        total = before - at.held + len(at.put)
        excess = max(total - self.bound, 0)
        # Of these at most `held` are the batch's own, so that at least as many others are left as must go, if there are.
        entries = store.entries(self.index, None, excess + at.held) if excess else pa.array([], pa.binary())
        _, keys = parted(entries, 2)
        keys = keys.filter(pa.array(at.unchanged(keys)))[:excess]
        scanned = len(entries)
        keys = keys.take(pc.sort_indices(keys))
        at_once = np.zeros(len(at.put), bool)
        own = self.entries(at.put)
        at_once[pc.sort_indices(own).to_numpy()[: excess - len(keys)]] = True
        return Found(at_once, keys, store.rows(keys), {_ROWS: total - excess}, scanned)

    def _found_among_hidden(self, store: RowStore, at: Pass) -> Found:
        """Return the same where rows are hidden. All entries are read: how many rows a store still has of those depends on when it was restored."""
        _, keys = parted(store.entries(self.index), 2)

        def is_shown(place: int) -> bool:
            return bool(store.rows(keys[place : place + 1])["written"][0] > at.hidden_us)

        hidden = bisect_left(range(len(keys)), True, key=is_shown)
        excess = max(len(keys) - hidden - at.held + len(at.put) - self.bound, 0)
        left = keys.filter(pa.array(at.unchanged(keys)))
        over = keys[:hidden].filter(pa.array(at.unchanged(keys[:hidden])))
        gone = left[: len(over) + excess]
        at_once = np.zeros(len(at.put), bool)
        at_once[pc.sort_indices(self.entries(at.put)).to_numpy()[: excess - (len(gone) - len(over))]] = True
        gone = gone.take(pc.sort_indices(gone))
        return Found(at_once, gone, store.rows(gone), scanned=len(keys))
