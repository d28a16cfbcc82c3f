"""Which rows have expired: a function of a row and of a clock (docs/rules.md, rule 171)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.columnar.expressions import EVENT_TIME, KEY, TIME, Expression

Since = Literal["event", "write", "insert"]
NEVER = int(np.iinfo(np.int64).max)
"""The expiry of a row that has none."""


@dataclass(frozen=True)
class TableRows:
    """Rows of a table in columns; times in microseconds."""

    keys: pa.Array
    """Text."""
    time: Ints
    revision: Ints
    written: Ints
    """The clock of the batch that wrote the row last."""
    inserted: Ints
    """The clock of the batch that gave the key a row."""
    columns: Callable[[], Mapping[str, pa.Array]]
    """The columns by name, made only where a rule reads them: they are packed in the store."""

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Rule:
    """One of three: so long after a time of a row, at the time that SQL over the row says, or where SQL is true of it."""

    ttl_us: int | None = None
    since: Since = "event"
    """Which time: of its event, of the batch that wrote it last, or of the one that gave the key a row."""
    expires_at: Expression | None = None
    where: Expression | None = None

    @property
    def reads_columns(self) -> bool:
        """Whether rows must be decoded."""
        return self.ttl_us is None

    def expires_us(self, rows: TableRows) -> Ints:
        """Return when each row expires; NEVER where SQL is null. Not of a rule with `where`."""
        if self.expires_at is None:
            since = {"event": rows.time, "write": rows.written, "insert": rows.inserted}[self.since]
            return since + (self.ttl_us or 0)
        found = self.expires_at.evaluate(_visible(rows), len(rows)).cast(pa.int64())
        return pc.fill_null(found, NEVER).to_numpy(zero_copy_only=False)

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired: those whose expiry is at the clock or before it."""
        if self.where is None:
            return self.expires_us(rows) <= clock_us
        found = self.where.evaluate(_visible(rows), len(rows), clock_us)
        return pc.fill_null(found, fill_value=False).to_numpy(zero_copy_only=False)


def _visible(rows: TableRows) -> Mapping[str, pa.Array]:
    return {KEY: rows.keys, EVENT_TIME: pa.array(rows.time).cast(TIME), **rows.columns()}
