"""Pattern `time_boxed`: a cleanup looks at rows from where the last one stopped, until its budget is spent.

After the last row the next cleanup begins at the first one. The budget is of rows, not of time: how many a batch looks at
must not depend on how fast the machine is when the batch is run again (`next_rate`).
"""

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.operators.keyed.expiry.pattern import Found, Pass, Unindexed, joined, taken
from sessionlake.operators.keyed.expiry.rule import Rule
from sessionlake.operators.keyed.expiry.scan import CHUNK
from sessionlake.store.rows import RowStore, Stored

LEAST_ROWS = 1000
"""The least that a cleanup looks at, however slow it was before."""
_AFTER = "after"
"""The cursor's field: the last key that was looked at, as text; null at the start."""
FIRST_RATE = 200
"""Rows a millisecond, before any was measured."""


@dataclass(frozen=True)
class TimeBoxed(Unindexed):
    """See `Pattern` for the methods."""

    rule: Rule
    max_duration_us: int

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the expired ones of the next rows."""
        if at.clock_us is None:
            return None
        began = time.perf_counter_ns()
        named = at.cursor.get(_AFTER)
        after = None if named is None else named.encode()
        parts: list[tuple[pa.Array, Stored]] = []
        scanned, ended = 0, False
        while scanned < at.budget and not ended:
            asked = min(CHUNK, at.budget - scanned)
            keys, rows = store.page(after, asked)
            gone = at.unchanged(keys) & self.rule.expired(at.read(keys, rows), at.clock_us)
            parts.append(taken(keys, rows, gone))
            scanned += len(keys)
            ended = len(keys) < asked
            after = None if ended else keys[-1].as_py()
        decoded = scanned if self.rule.reads_columns else 0
        at_once = np.array(self.rule.expired(at.put, at.clock_us), bool)
        cursor = {_AFTER: None if after is None else after.decode()}
        took = (time.perf_counter_ns() - began) // 1000
        return Found(at_once, *joined(parts), cursor, scanned, decoded, took)


def next_rate(before: int, scanned: int, took_us: int) -> int:
    """Return the rows a millisecond that the next budget goes by: mostly the old rate, at most doubled, at least 1."""
    if not scanned:
        return before
    measured = scanned * 1000 // max(took_us, 1)
    return max(1, min(2 * before, (7 * before + 3 * measured) // 10))
