"""Pattern `scan`: a cleanup looks at all rows. Any rule will do; what it costs grows with the table."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.operators.keyed.expiry.pattern import Found, Pass, joined, taken
from sessionlake.operators.keyed.expiry.rule import Rule, TableRows
from sessionlake.store.rows import RowStore, Stored
from sessionlake.warehouse.changelog import TTL

CHUNK = 100_000
"""Rows that are in memory at a time."""


@dataclass(frozen=True)
class Scan:
    """See `Pattern` for the methods."""

    rule: Rule
    chunk: int = CHUNK
    index: None = None
    cause: str = TTL
    layout: str = ""

    def entries(self, rows: TableRows) -> pa.Array:
        """Raise NotImplementedError: there is no index."""
        raise NotImplementedError

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return all rows that have expired, page by page."""
        if at.clock_us is None:
            return None
        parts: list[tuple[pa.Array, Stored]] = []
        scanned, keys = 0, pa.array([], pa.binary())
        while not parts or len(keys) == self.chunk:
            keys, rows = store.page(keys[-1].as_py() if len(keys) else None, self.chunk)
            gone = at.unchanged(keys) & self.rule.expired(at.read(keys, rows), at.clock_us)
            parts.append(taken(keys, rows, gone))
            scanned += len(keys)
        decoded = scanned if self.rule.reads_columns else 0
        at_once = np.array(self.rule.expired(at.put, at.clock_us), bool)
        return Found(at_once, *joined(parts), scanned=scanned, decoded=decoded)
