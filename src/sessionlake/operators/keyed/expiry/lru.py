"""Pattern `lru`: a shard keeps a number of rows, and those go first whose last change is the oldest.

The bound holds at the end of every batch that gives the shard a row, at any clock. A row is as recent as the
update that it is of: the batch of it, then its time, then its key. To read a row changes nothing.

Rows may also be hidden a time after they were written. A store keeps those until they are too many, and no delete is logged when they
go: they are the least recent ones, since batches are written at clocks that never go back. So it is the same to those that are shown
how many hidden ones a store has, which depends on when it was restored.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools
from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.expiry.pattern import Expirations, IndexChanges, Pass, PatternDefaults
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.shared.cleanups.names import LRU
from sessionlake.operators.shared.cleanups.schedule import Schedule
from sessionlake.store.rows import RECENCY, RowStore, parted, sorted_numbers

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.section import TtlSection


@dataclass(frozen=True)
class Lru(PatternDefaults):
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

    def index_changes(self, put: TableRows, was: TableRows, found: Expirations) -> IndexChanges:
        """Return the entries of rows that are put, and those of rows that are replaced or go."""
        return IndexChanges(self.entries(put), pa.concat_arrays([self.entries(was), found.passed]))

    def lag_us(self, rows: TableRows, clock_us: int) -> None:
        """Return None: rows go for their number."""

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Raise NotImplementedError: no cleanup takes rows away."""
        raise NotImplementedError

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return the least recent rows: all above the bound."""
        total = store.entry_count(self.index) - at.held + len(at.put)
        excess = max(total - self.bound, 0)
        # At most `held` rows among them are the batch's own, so enough other rows are left to go, if there are any.
        entries = store.entries(self.index, None, excess + at.held) if excess else pa.array([], pa.binary())
        passed = entries.filter(pa.array(at.unchanged(parted(entries, 2)[1])))[:excess]
        keys = parted(passed, 2)[1]
        keys = keys.take(pc.sort_indices(keys))
        at_once = np.zeros(len(at.put), bool)
        at_once[pc.sort_indices(self.entries(at.put)).to_numpy()[: excess - len(passed)]] = True
        first = entries[0].as_py() if len(entries) else None
        return Expirations(at_once, keys, store.rows(keys), scanned=len(entries), first=first, passed=passed)


def section() -> type["TtlSection"]:
    """Return the class of [ttl] with this pattern; made on the driver only, since pydantic stays out of workers."""
    from pydantic import Field

    from sessionlake.config.fields import Duration
    from sessionlake.operators.keyed.expiry.section import TopicTombstonesSection, Types

    class LruSection(TopicTombstonesSection):
        pattern: Literal["lru"]
        max_entries: Annotated[int, Field(ge=1)]
        """How many rows the table keeps, about: a shard its part."""
        changelog_retention: Duration | None = None
        """How long after it was written a row is kept at most; then it is absent without a delete. For ever if it is left out."""

        @property
        def hides_us(self) -> int | None:
            return None if self.changelog_retention is None else parse_duration(self.changelog_retention)

        def check(self) -> None:
            super().check()
            if self.hides_us is None and "max_share" in self.model_fields_set:
                raise ConfigError(
                    "ttl.max_share: goes with changelog_retention in pattern 'lru', whose other rows go for their number; remove it"
                )
            if self.hides_us == 0:
                raise ConfigError(f"ttl.changelog_retention: {self.changelog_retention!r} must be longer than zero")
            if self.hides_us is not None and self.topic_tombstones:
                raise ConfigError(
                    "ttl.changelog_retention: removes rows without logging deletes, which topic_tombstones needs; remove one"
                )

        def build(self, types: Types, shards: int, *, allowed: bool = False) -> Ttl:
            del types
            lru = Lru(-(-self.max_entries // shards), self.hides_us)
            # Rows that go because of their number do not depend on a clock: a jump of the clock does not hold them back.
            schedule = Schedule(allowed=allowed or self.hides_us is None)
            return Ttl(lru, schedule, "event" if self.hides_us is None else "write", self.max_share)

    return LruSection
