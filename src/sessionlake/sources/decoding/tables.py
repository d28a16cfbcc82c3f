"""Rows that are columns already, as a Delta table's are."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.raw import raw_text
from sessionlake.sources.decoding.rows import BATCH, Rows, no_text


@dataclass(frozen=True)
class TableDecoder:
    """Take rows as they are; see `Decoder` for the methods."""

    columns: EventColumns
    place: str | None
    """Where the rows come from, as dead letters name it: a table's streams know nothing finer."""

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: a table sends no corrections."""
        return table, None

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the rows; their text is a JSON object of the columns read."""
        yield Rows(
            table=table,
            error=None,
            raw=lambda at: _json(table.take(pa.array(at))),
            source=lambda at: pa.repeat(pa.scalar(self.place, pa.string()), len(at)),
        )

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield the rows of each batch."""
        batch = table[BATCH].to_numpy()
        events = table.drop_columns([BATCH])
        for batch_id in np.unique(batch).tolist():
            some = events.filter(pa.array(batch == batch_id)).combine_chunks()
            yield batch_id, Rows(some, None, no_text, no_text)


def _json(table: pa.Table) -> pa.Array:
    frame = table.to_pandas()
    lines = frame.to_json(orient="records", lines=True, date_format="iso", date_unit="us").splitlines()
    return pa.array([raw_text(line.encode()) for line in lines], pa.string())
