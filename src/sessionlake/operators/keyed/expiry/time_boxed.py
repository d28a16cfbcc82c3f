"""Pattern `time_boxed`: a cleanup continues at the row at which the last one stopped, until its budget is spent.

After the last row the next cleanup begins at the first one. The budget is of rows, not of time: how many a batch looks at
must not depend on how fast the machine is when the batch is run again (`operators/shared/cleanups/schedule.py`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from sessionlake.config.durations import parse_duration
from sessionlake.operators.keyed.expiry.pattern import CHUNK, ByRule, Expirations, Pass, Unindexed, joined, taken
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.shared.cleanups.rule import Rule
from sessionlake.operators.shared.cleanups.schedule import BEGAN, began_of
from sessionlake.store.rows import RowStore, Stored

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.section import TtlSection

_AFTER = "after"
"""The cursor's field: the last key that was looked at, as text; none at the start."""


@dataclass(frozen=True)
class TimeBoxed(Unindexed, ByRule):
    """See `Pattern` for the methods."""

    rule: Rule
    duration_us: int

    @property
    def max_duration_us(self) -> int:
        """Return how long a cleanup of a shard may take, about."""
        return self.duration_us

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return the next rows that have expired."""
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
        return Expirations(at_once, *joined(parts), cursor, scanned, decoded, round_us=max(at.clock_us - began_us, 0))


def section() -> type["TtlSection"]:
    """Return the class of [ttl] with this pattern; made on the driver only, since pydantic stays out of workers."""
    from sessionlake.operators.keyed.expiry.section import SinceSection, Types
    from sessionlake.operators.shared.cleanups.section import BoxedSection, ConditionSection

    class TimeBoxedSection(SinceSection, ConditionSection, BoxedSection):
        pattern: Literal["time_boxed"]

        def build(self, types: Types, shards: int, *, allowed: bool = False) -> Ttl:
            del shards
            boxed = TimeBoxed(self.rule(types, self.counts_from), parse_duration(self.max_duration))
            return Ttl(boxed, self.schedule(allowed=allowed), self.counts_from)

    return TimeBoxedSection
