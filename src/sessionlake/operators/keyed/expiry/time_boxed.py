"""Pattern `time_boxed`: a cleanup looks at rows from where the last one stopped, until its budget is spent.

After the last row the next cleanup begins at the first one. The budget is of rows, not of time: how many a batch looks at
must not depend on how fast the machine is when the batch is run again (`operators/cleanups/schedule.py`).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.operators.cleanups.rule import Rule
from sessionlake.operators.cleanups.schedule import BEGAN, began_of
from sessionlake.operators.keyed.expiry.pattern import CHUNK, ByRule, Found, Pass, Unindexed, joined, taken
from sessionlake.store.rows import RowStore, Stored

_AFTER = "after"
"""The cursor's field: the last key that was looked at, as text; none at the start."""


@dataclass(frozen=True)
class TimeBoxed(Unindexed, ByRule):
    """See `Pattern` for the methods."""

    rule: Rule
    max_duration_us: int

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return the expired ones of the next rows."""
        if at.clock_us is None:
            return None
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
        began_us = began_of(at.cursor, at.clock_us)
        cursor = {} if after is None else {_AFTER: after.decode(), BEGAN: began_us}
        return Found(at_once, *joined(parts), cursor, scanned, decoded, round_us=max(at.clock_us - began_us, 0))
