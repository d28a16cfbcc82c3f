"""Pattern `index`: the store has an index of rows by their expiry, and a cleanup reads it from its start to the clock."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.operators.cleanups.rule import NEVER, Rule
from sessionlake.operators.keyed.expiry.pattern import MOST, ByRule, Found, Pass
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import EXPIRY, RowStore, parted, sorted_numbers
from sessionlake.warehouse.changelog import TTL


@dataclass(frozen=True)
class Index(ByRule):
    """See `Pattern` for the methods. The rule has no `where`: only times can be sorted."""

    rule: Rule
    most: int = MOST
    """Rows that a cleanup takes away at most."""
    index: int = EXPIRY
    cause: str = TTL
    hides_us: ClassVar[None] = None

    @property
    def layout(self) -> str:
        """Return the rule, since entries are its expiries."""
        rule = self.rule
        return f"index/{f'{rule.ttl_us} {rule.since}' if rule.expires_at is None else rule.expires_at.text}"

    def entries(self, rows: TableRows) -> pa.Array:
        """Return an entry for each row that ever expires."""
        expires = self.rule.expires_us(rows)
        found = pc.binary_join_element_wise(sorted_numbers(expires), rows.keys.cast(pa.binary()), b"")
        return found.filter(pa.array(expires != NEVER))

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the first rows whose entries are at the clock or before it; no other entry is read."""
        if at.clock_us is None:
            return None
        # Inclusive, and an entry of the next microsecond is longer.
        high = sorted_numbers(np.array([at.clock_us + 1]))[0].as_py()
        entries = store.entries(self.index, high, self.most)
        (expires,), keys = parted(entries, 1)
        keys = keys.filter(pa.array(at.unchanged(keys) & (expires <= at.clock_us)))
        keys = keys.take(pc.sort_indices(keys))
        at_once = np.array(self.rule.expired(at.put, at.clock_us), bool)
        return Found(at_once, keys, store.rows(keys), scanned=len(entries), left_over=len(entries) == self.most)
