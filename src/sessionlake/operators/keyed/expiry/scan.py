"""Pattern `scan`: a cleanup looks at all rows. It takes any rule; its cost grows with the table."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from sessionlake.operators.keyed.expiry.pattern import ByRule, Expirations, Pass, Unindexed, find_expired
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.shared.cleanups.rule import Rule
from sessionlake.store.rows import RowStore

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.section import TtlSection


@dataclass(frozen=True)
class Scan(Unindexed, ByRule):
    """See `Pattern` for the methods."""

    rule: Rule
    most: int
    """Rows that a cleanup takes away at most."""

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return the first rows that have expired, looking page by page."""
        if at.clock_us is None:
            return None
        expired = partial(self.rule.expired, clock_us=at.clock_us)
        found = find_expired(store, at, expired, self.most)
        return replace(found, decoded=found.scanned if self.rule.reads_columns else 0)


def section() -> type["TtlSection"]:
    """Return the class of [ttl] with this pattern; made on the driver only, since pydantic stays out of workers."""
    from sessionlake.operators.keyed.expiry.section import SinceSection, Types
    from sessionlake.operators.shared.cleanups.section import BoundedSection, ConditionSection

    class ScanSection(SinceSection, ConditionSection, BoundedSection):
        pattern: Literal["scan"]

        def build(self, types: Types, shards: int, *, allowed: bool = False) -> Ttl:
            del shards
            scan = Scan(self.rule(types, self.counts_from), self.max_per_cleanup)
            return Ttl(scan, self.schedule(allowed=allowed), self.counts_from)

    return ScanSection
