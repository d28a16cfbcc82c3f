"""Pattern `time_ordered_keys`: keys begin with the time at which they were made, so that the store is sorted by it itself.

A cleanup reads the rows from the first key to the first one that is too young, and no other. `where` may narrow the rule: what it
keeps is looked at by each cleanup again.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sessionlake.columnar.arrays import Bools
from sessionlake.operators.cleanups.rule import NEVER, Rule
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, KeyFormat
from sessionlake.operators.keyed.expiry.pattern import Found, Pass, Unindexed, paged
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import RowStore


@dataclass(frozen=True)
class TimeOrderedKeys(Unindexed):
    """See `Pattern` for the methods. A row expires so long after its key was made, where `narrowed`, if given, is true of it."""

    ttl_us: int
    key_format: KeyFormat
    narrowed: Rule | None
    most: int
    """Rows that a cleanup takes away at most."""

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the rows that have expired, page by page, up to the first key that is too young."""
        if at.clock_us is None:
            return None
        # A row expires at the clock or before it where its key was made at the clock less ttl or before.
        high = FORMATS[self.key_format].first_at(at.clock_us - self.ttl_us + 1)
        expired = partial(self.expired, clock_us=at.clock_us)
        found = paged(store, at, expired, self.most, high)
        return replace(found, decoded=0 if self.narrowed is None else found.scanned)

    def lag_us(self, rows: TableRows, clock_us: int) -> int | None:
        """Return how long ago, at most, the time of some rows that go was over; None where the rule is narrowed."""
        if self.narrowed is not None:
            return None
        made_us = FORMATS[self.key_format].made_us(rows.keys)
        return max(clock_us - self.ttl_us - int(made_us.min(initial=NEVER)), 0)

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired."""
        made_us = FORMATS[self.key_format].made_us(rows.keys)
        expired: Bools = (made_us != NEVER) & (made_us <= clock_us - self.ttl_us)
        return expired if self.narrowed is None else expired & np.asarray(self.narrowed.expired(rows, clock_us))
