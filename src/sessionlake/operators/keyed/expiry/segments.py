"""Pattern `segments`: rows lie in segments by the times at which they were written. A segment is dropped whole, without being read.

No row is searched for and none is deleted: a row counts as missing as soon as its time is over, in every read, and the changelog
has no delete. Window stores drop their windows in the same way.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sessionlake.columnar.arrays import Bools
from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.expiry.pattern import Expirations, Pass, Unindexed
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.shared.cleanups.rule import Since
from sessionlake.operators.shared.cleanups.schedule import Schedule
from sessionlake.store.rows import RowStore

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.section import TtlSection

_SEGMENTS = 3
"""The time to live divided by a segment's length. That number of segments and one more are live."""


@dataclass(frozen=True)
class Segments(Unindexed):
    """See `Pattern` for the methods. A row is hidden `ttl_us` after it was written."""

    ttl_us: int

    @property
    def hides_us(self) -> int:
        """Return the time to live."""
        return self.ttl_us

    @property
    def interval_us(self) -> int:
        """How long a segment is written to."""
        return max(self.ttl_us // _SEGMENTS, 1)

    @property
    def layout(self) -> str:
        """Return the segments' length, since rows lie by it."""
        return f"segments/{self.interval_us}"

    def lag_us(self, rows: TableRows, clock_us: int) -> None:
        """Return None: no row is removed."""

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Raise NotImplementedError: no cleanup removes rows."""
        raise NotImplementedError

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return None: no row is removed."""
        del store, at
        return None


def section() -> type["TtlSection"]:
    """Return the class of [ttl] with this pattern; made on the driver only, since pydantic stays out of workers."""
    from sessionlake.config.fields import Duration
    from sessionlake.operators.keyed.expiry.section import TtlSection, Types

    class SegmentsSection(TtlSection):
        pattern: Literal["segments"]
        ttl: Duration
        """How long after it was written a row is absent."""
        since: Since = "write"
        """The time that `ttl` counts from; segments have no other."""
        every: Duration = "1 minute"

        @property
        def hides_us(self) -> int:
            return parse_duration(self.ttl)

        def check(self) -> None:
            super().check()
            if self.since != "write":
                raise ConfigError(
                    f"ttl.since: {self.since!r} can't be used with segments; write 'write', or pattern = 'index'"
                )
            self.check_longer_than_zero("every", "ttl")

        def build(self, types: Types, shards: int, *, allowed: bool = False) -> Ttl:
            del types, shards
            schedule = Schedule(every_us=parse_duration(self.every), allowed=allowed)
            return Ttl(Segments(self.hides_us), schedule, "write", self.max_share)

    return SegmentsSection
