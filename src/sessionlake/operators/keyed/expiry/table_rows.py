"""Rows of a keyed table, as rules of expiry see them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.column_types import TIME
from sessionlake.columnar.expressions import EVENT_TIME, KEY
from sessionlake.operators.shared.cleanups.rule import Since


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
    """The columns by name, made only if a rule reads them: they are packed in the store."""

    def __len__(self) -> int:
        return len(self.time)

    def take(self, at: Ints) -> "TableRows":
        """Return some of the rows."""
        index = pa.array(at)

        def columns() -> Mapping[str, pa.Array]:
            return {name: column.take(index) for name, column in self.columns().items()}

        time, revision, written, inserted = (c[at] for c in (self.time, self.revision, self.written, self.inserted))
        return TableRows(self.keys.take(index), time, revision, written, inserted, columns)

    def since(self, which: Since) -> Ints:
        """Return the time of each row's event, or of when it was written last, or of when its key got a row."""
        return {"event": self.time, "write": self.written, "insert": self.inserted}[which]

    def visible(self) -> Mapping[str, pa.Array]:
        """Return key, time and columns."""
        return {KEY: self.keys, EVENT_TIME: pa.array(self.time).cast(TIME), **self.columns()}
