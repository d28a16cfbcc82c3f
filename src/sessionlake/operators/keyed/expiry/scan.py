"""Pattern `scan`: a cleanup looks at all rows. Any rule will do; what it costs grows with the table."""

from dataclasses import dataclass, replace
from functools import partial

from sessionlake.operators.cleanups.rule import Rule
from sessionlake.operators.keyed.expiry.pattern import ByRule, Found, Pass, Unindexed, paged
from sessionlake.store.rows import RowStore


@dataclass(frozen=True)
class Scan(Unindexed, ByRule):
    """See `Pattern` for the methods."""

    rule: Rule
    most: int
    """Rows that a cleanup takes away at most."""

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the first rows that have expired, looking page by page."""
        if at.clock_us is None:
            return None
        expired = partial(self.rule.expired, clock_us=at.clock_us)
        found = paged(store, at, expired, self.most)
        return replace(found, decoded=found.scanned if self.rule.reads_columns else 0)
