"""The events that the stream had consumed, read again as it read them: each with the batch that classified it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.aggregates.partials import Partials
from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.engine import exchange
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.recompute import Pieces, Window
from sessionlake.warehouse.spark_columns import map_in_arrow


def needed_batches(inputs: Iterable[BatchInputs], window: Window) -> set[int]:
    """Return the batches that can have brought events of a window.

    An event that a batch accepts is at most the retention older than the watermark before the batch, and no newer than
    the watermark after it. Late events are included.
    """
    return {
        i.batch_id
        for i in inputs
        if i.watermark_us is not None
        and i.watermark_us >= window.low
        and (i.watermark_before_us is None or i.watermark_before_us - i.settings["retention_us"] <= window.high)
    }


def split_basis(rows: DataFrame, shards: int, window: Window, pieces: Pieces) -> DataFrame:
    """Cut rows into pieces, and return wire rows of the pieces that meet the window: accepted events only."""

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in batches:
            for batch_id, kind, partials in pieces(pa.Table.from_batches([record])):
                inside = np.flatnonzero(window.meets(partials.start, partials.end))
                if len(inside):
                    read = at_batch(partials.take(inside), np.full(len(inside), batch_id))
                    shard = shard_of(read.keys, shards)
                    yield from exchange.wire_rows(by_shard(kind, read.to_table(), shard))

    return map_in_arrow(rows, split, WIRE_DDL)


def at_batch(partials: Partials, batch: Ints) -> Partials:
    """Return partials whose revision is the batch that consumed them."""
    return replace(partials, revision=batch)


def rows_by_shard(kind: str, table: pa.Table, shards: int) -> Iterator[pa.RecordBatch]:
    """Yield a table with a column `key` as wire rows."""
    yield from exchange.wire_rows(by_shard(kind, table, shard_of(combined(table["key"]), shards)))
