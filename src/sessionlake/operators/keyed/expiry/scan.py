"""Pattern `scan`: a cleanup looks at all rows. Any rule will do; what it costs grows with the table."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from sessionlake.operators.cleanups.rule import Rule
from sessionlake.operators.keyed.expiry.pattern import ByRule, Found, Pass, Unindexed, paged
from sessionlake.store.rows import RowStore

CHUNK = 100_000
"""Rows that are in memory at a time."""


@dataclass(frozen=True)
class Scan(Unindexed, ByRule):
    """See `Pattern` for the methods."""

    rule: Rule
    chunk: int = CHUNK

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return all rows that have expired, page by page."""
        if at.clock_us is None:
            return None
        expired = partial(self.rule.expired, clock_us=at.clock_us)
        keys, rows, scanned = paged(store, at, expired, self.chunk)
        decoded = scanned if self.rule.reads_columns else 0
        return Found(np.array(expired(at.put), bool), keys, rows, scanned=scanned, decoded=decoded)
