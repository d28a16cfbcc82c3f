"""Rows of the archive as a source: events that earlier batches took, in the columns that a config reads now."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import combined
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import typed
from sessionlake.sources.decoding.rows import BATCH, Rows, Texts
from sessionlake.sources.decoding.tables import text_of_rows

ARCHIVED = "archived"
"""The column with the needed columns of an archived event, as one struct, so that their names clash with no other column's."""


@dataclass(frozen=True)
class BatchesDecoder(ABC):
    """The part of the archive's decoders that is the same for all of its tables, whose rows name the batch that brought them."""

    columns: EventColumns

    @abstractmethod
    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows."""

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: an archive sends no corrections."""
        return table, None

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Raise NotImplementedError: the archive does not keep the order of its rows."""
        raise NotImplementedError

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of each batch."""
        batch = combined(table[BATCH]).to_numpy()
        for batch_id in np.unique(batch).tolist():
            yield from ((batch_id, rows) for rows in self.decode(table.filter(pa.array(batch == batch_id))))


def places(table: pa.Table) -> Texts:
    """Return the places of the archive's rows, which are their batches."""
    batch = combined(table[BATCH]).to_numpy()
    return lambda at: pa.array([f"archive: batch {each}" for each in batch[at].tolist()], pa.string())


@dataclass(frozen=True)
class ArchiveDecoder(BatchesDecoder):
    """Take events as the archive has them; see `Decoder` for the methods."""

    as_they_are: frozenset[str]
    """Columns that are read as nothing but key, time or id: their text and times are the archive's own, of whatever type
    the source has them."""

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows; a value that is not of its column's type makes its row a dead letter."""
        read = pa.Table.from_struct_array(combined(table[ARCHIVED]))
        found = {name: read.schema.field(name).type for name in self.as_they_are}
        events, error = typed(read, replace(self.columns, types={**self.columns.types, **found}))
        yield Rows(
            table=events,
            error=None if error.null_count == len(error) else error,
            raw=lambda at: text_of_rows(read.take(pa.array(at))),
            source=places(table),
        )
