"""Which rows have expired: a function of a row and of a clock (docs/rules.md, rules 171 and 177)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.expressions import Expression

Since = Literal["event", "write", "insert"]
NEVER = int(np.iinfo(np.int64).max)
"""The expiry of a row that has none."""


class Rows(Protocol):
    """Rows of an operator, as a rule sees them."""

    def __len__(self) -> int:
        """How many there are."""

    def since(self, which: Since) -> Ints:
        """Return a time of each row, in microseconds."""

    def visible(self) -> Mapping[str, pa.Array]:
        """Return the columns for SQL, by name. They are unpacked only if a rule reads them, since the store packs rows."""


@dataclass(frozen=True)
class Rule:
    """One of three: so long after a time of a row, at the time that SQL over the row says, or if SQL is true of it."""

    ttl_us: int | None = None
    since: Since = "event"
    """Which time: of its event (of a session: its end), of the batch that wrote it last, or of the one that gave the key a row."""
    expires_at: Expression | None = None
    where: Expression | None = None

    @property
    def reads_columns(self) -> bool:
        """Whether rows must be decoded."""
        return self.ttl_us is None

    def expires_us(self, rows: Rows) -> Ints:
        """Return when each row expires; NEVER if SQL is null. A rule with `where` has no such times."""
        if self.expires_at is None:
            return rows.since(self.since) + (self.ttl_us or 0)
        found = self.expires_at.evaluate(rows.visible(), len(rows)).cast(pa.int64())
        return pc.fill_null(found, NEVER).to_numpy(zero_copy_only=False)

    def expired(self, rows: Rows, clock_us: int) -> Bools:
        """Return which rows have expired: those whose expiry is at the clock or before it."""
        if self.where is None:
            return self.expires_us(rows) <= clock_us
        found = self.where.evaluate(rows.visible(), len(rows), clock_us)
        return pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)

    def lag_us(self, rows: Rows, clock_us: int) -> int | None:
        """Return how long ago, at most, some rows expired; 0 if there are none, None for a rule with `where`, which has no times."""
        if self.where is not None:
            return None
        return clock_us - int(self.expires_us(rows).min(initial=clock_us))
