"""Pattern `segments`: rows lie in segments of the times at which they were written, which go whole, without being read.

Nothing is found and nothing deleted: a row counts as absent as soon as its time is over, wherever it is read, and the changelog
says nothing of it. What a window store does with its windows.
"""

from dataclasses import dataclass

from sessionlake.columnar.arrays import Bools
from sessionlake.operators.keyed.expiry.pattern import Found, Pass, Unindexed
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import RowStore

_SEGMENTS = 3
"""How many times a segment's length goes into a row's time to live: so many segments and one are live."""


@dataclass(frozen=True)
class Segments(Unindexed):
    """See `Pattern` for the methods. A row is hidden so long after it was written."""

    ttl_us: int

    @property
    def hides_us(self) -> int:
        """Return the time to live."""
        return self.ttl_us

    @property
    def interval_us(self) -> int:
        """How long a segment is written to."""
        return max(self.ttl_us // _SEGMENTS, 1)

    @property
    def layout(self) -> str:
        """Return the segments' length, since rows lie by it."""
        return f"segments/{self.interval_us}"

    def lag_us(self, rows: TableRows, clock_us: int) -> None:
        """Return None: nothing is taken away."""

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Raise NotImplementedError: no cleanup takes rows away."""
        raise NotImplementedError

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return None: nothing is taken away."""
        del store, at
        return None
