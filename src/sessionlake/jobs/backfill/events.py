"""The events that the stream had consumed, read again as it read them: each with the batch that classified it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.engine import exchange
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.stream.input_log import BatchInputs

Piece = tuple[int, str, Partials]
"""A batch, a kind of wire rows, and partials of that kind which the batch brought. They go on as `Partials.to_table` has
them, the column revision holding the batch."""
Pieces = Callable[[pa.Table], Iterator[Piece]]
"""What rows of the archive or of a source become; pickled to the workers."""


@dataclass(frozen=True)
class Window:
    """Closed interval of event times, microseconds, that is read."""

    low: int
    high: int

    def meets(self, start: Ints, end: Ints) -> np.ndarray:
        """Say which closed intervals have a time in common with the window."""
        return (end >= self.low) & (start <= self.high)


def needed_batches(inputs: Iterable[BatchInputs], window: Window) -> set[int]:
    """Return the batches that can have brought events of a window.

    What a batch does not refuse lies between the retention before the watermark that preceded it and the watermark
    that followed it (late events included).
    """
    return {
        i.batch_id
        for i in inputs
        if i.watermark_us is not None
        and i.watermark_us >= window.low
        and (i.watermark_before_us is None or i.watermark_before_us - i.settings["retention_us"] <= window.high)
    }


def split_basis(rows: DataFrame, shards: int, window: Window, pieces: Pieces) -> DataFrame:
    """Return wire rows of the pieces that rows become: what their batches did not refuse, as far as it meets the window."""

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in batches:
            for batch_id, kind, partials in pieces(pa.Table.from_batches([record])):
                inside = np.flatnonzero(window.meets(partials.start, partials.end))
                if len(inside):
                    read = at_batch(partials.take(inside), np.full(len(inside), batch_id))
                    shard = shard_of(read.keys, shards)
                    yield from exchange.wire_rows(by_shard(kind, read.to_table(), shard))

    return rows.mapInArrow(split, WIRE_DDL)


def at_batch(partials: Partials, batch: Ints) -> Partials:
    """Return partials whose revision is the batch that consumed them."""
    return replace(partials, revision=batch)


def rows_by_shard(kind: str, table: pa.Table, shards: int) -> Iterator[pa.RecordBatch]:
    """Yield a table with a column `key` as wire rows."""
    yield from exchange.wire_rows(by_shard(kind, table, shard_of(combined(table["key"]), shards)))
