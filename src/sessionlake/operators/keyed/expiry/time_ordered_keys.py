"""Pattern `time_ordered_keys`: keys begin with the time at which they were made, so that the store is sorted by it itself.

A cleanup reads the rows from the first key to the first one that is too young, and no other. `where` may narrow the rule: what it
keeps is looked at by each cleanup again.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, KeyFormat
from sessionlake.operators.keyed.expiry.pattern import Found, Pass, joined, taken
from sessionlake.operators.keyed.expiry.rule import NEVER, Rule, TableRows
from sessionlake.operators.keyed.expiry.scan import CHUNK
from sessionlake.store.rows import RowStore, Stored
from sessionlake.warehouse.changelog import TTL


@dataclass(frozen=True)
class TimeOrderedKeys:
    """See `Pattern` for the methods. A row expires so long after its key was made, where `narrowed`, if given, is true of it."""

    ttl_us: int
    key_format: KeyFormat
    narrowed: Rule | None = None
    chunk: int = CHUNK
    index: None = None
    cause: str = TTL
    layout: str = ""

    def entries(self, rows: TableRows) -> pa.Array:
        """Raise NotImplementedError: there is no index."""
        raise NotImplementedError

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the rows that have expired, page by page, up to the first key that is too young."""
        if at.clock_us is None:
            return None
        # A row expires at the clock or before it where its key was made at the clock less ttl or before.
        high = FORMATS[self.key_format].first_at(at.clock_us - self.ttl_us + 1)
        parts: list[tuple[pa.Array, Stored]] = []
        scanned, keys = 0, pa.array([], pa.binary())
        while not parts or len(keys) == self.chunk:
            keys, rows = store.page(keys[-1].as_py() if len(keys) else None, self.chunk, high)
            gone = at.unchanged(keys) & self._expired(at.read(keys, rows), at.clock_us)
            parts.append(taken(keys, rows, gone))
            scanned += len(keys)
        decoded = 0 if self.narrowed is None else scanned
        return Found(self._expired(at.put, at.clock_us), *joined(parts), scanned=scanned, decoded=decoded)

    def _expired(self, rows: TableRows, clock_us: int) -> Bools:
        made_us = FORMATS[self.key_format].made_us(rows.keys)
        expired: Bools = (made_us != NEVER) & (made_us <= clock_us - self.ttl_us)
        return expired if self.narrowed is None else expired & np.asarray(self.narrowed.expired(rows, clock_us))
