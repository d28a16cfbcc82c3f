"""Pattern `time_ordered_keys`: keys begin with their creation time, so the store is sorted by it.

A cleanup reads the rows from the first key to the first one that is too young, and no other. `where` may narrow the rule: each
cleanup then looks again at the rows that it keeps.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from sessionlake.columnar.arrays import Bools
from sessionlake.config.durations import parse_duration
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, KeyFormat
from sessionlake.operators.keyed.expiry.pattern import Expirations, Pass, Unindexed, find_expired
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.shared.cleanups.rule import NEVER, Rule
from sessionlake.store.rows import RowStore

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.section import TtlSection


@dataclass(frozen=True)
class TimeOrderedKeys(Unindexed):
    """See `Pattern` for the methods. A row expires `ttl_us` after its key was created, unless `narrowed` is given and false."""

    ttl_us: int
    id_format: KeyFormat
    narrowed: Rule | None
    most: int
    """Rows that a cleanup takes away at most."""

    @property
    def key_format(self) -> KeyFormat:
        """Return the format that keys must have."""
        return self.id_format

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return the rows that have expired, page by page, up to the first key that is too young."""
        if at.clock_us is None:
            return None
        # A row has expired if its key was created at clock - ttl or before.
        high = FORMATS[self.id_format].first_at(at.clock_us - self.ttl_us + 1)
        expired = partial(self.expired, clock_us=at.clock_us)
        found = find_expired(store, at, expired, self.most, high)
        return replace(found, decoded=0 if self.narrowed is None else found.scanned)

    def lag_us(self, rows: TableRows, clock_us: int) -> int | None:
        """Return how long ago, at most, the time of some rows that go was over; None if the rule is narrowed."""
        if self.narrowed is not None:
            return None
        made_us = FORMATS[self.id_format].made_us(rows.keys)
        return max(clock_us - self.ttl_us - int(made_us.min(initial=NEVER)), 0)

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired."""
        made_us = FORMATS[self.id_format].made_us(rows.keys)
        expired: Bools = (made_us != NEVER) & (made_us <= clock_us - self.ttl_us)
        return expired if self.narrowed is None else expired & np.asarray(self.narrowed.expired(rows, clock_us))


def section() -> type["TtlSection"]:
    """Return the class of [ttl] with this pattern; made on the driver only, since pydantic stays out of workers."""
    from sessionlake.config.fields import Duration
    from sessionlake.config.sections import EventSection
    from sessionlake.errors import ConfigError
    from sessionlake.operators.keyed.expiry.section import ScheduledSection, Types
    from sessionlake.operators.shared.cleanups.section import BoundedSection

    class TimeOrderedKeysSection(ScheduledSection, BoundedSection):
        pattern: Literal["time_ordered_keys"]
        ttl: Duration
        """How long after its key was made a row expires."""
        where: str | None = None
        """SQL over the row that narrows the rule; now() is the clock."""
        key_format: KeyFormat = "uuid7"
        """The format of the keys, which begin with their creation time."""

        def check_event(self, event: EventSection) -> None:
            if len(event.key_columns) > 1:
                raise ConfigError(
                    f"ttl.pattern: 'time_ordered_keys' reads the time from the beginning of a key, and event.key is {event.key!r}; write pattern = 'index'"
                )

        def build(self, types: Types, shards: int, *, allowed: bool = False) -> Ttl:
            del shards
            narrowed = None if self.where is None else self.rule(types, "event")
            keys = TimeOrderedKeys(parse_duration(self.ttl), self.key_format, narrowed, self.max_per_cleanup)
            return Ttl(keys, self.schedule(allowed=allowed))

    return TimeOrderedKeysSection
