"""The events that the stream had consumed, read again as it read them: each with the batch that classified it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from sessionlake.aggregates.partials import Partials, lift
from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.columnar.records import UNTIL
from sessionlake.engine import exchange
from sessionlake.engine.exchange import WIRE_DDL
from sessionlake.engine.operator import Keyed
from sessionlake.operators.sessions.mapper import ALONE, MERGED, split_events
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.stream.ingest import events_of
from sessionlake.stream.input_log import BatchInputs
from sessionlake.stream.watermark import NO_WATERMARK

Piece = tuple[int, str, Partials]
"""A batch, a kind of wire rows, and partials of that kind which the batch brought: MERGED were accepted whatever they met,
ALONE are single events that may have been late. They go on as `Partials.to_table` has them, the column revision holding
the batch."""
Pieces = Callable[[SessionizerSpec, dict[int, BatchInputs], pa.Table], Iterator[Piece]]


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


def split_basis(
    rows: DataFrame,
    spec: SessionizerSpec,
    shards: int,
    inputs: Iterable[BatchInputs],
    window: Window,
    pieces: Pieces,
) -> DataFrame:
    """Return wire rows of the kinds merged and alone: what the rows' batches did not refuse, as far as it meets the window.

    `inputs` are those of the rows' batches; they go to every task.
    """
    by_batch = {i.batch_id: i for i in inputs}

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for record in batches:
            for batch_id, kind, partials in pieces(spec, by_batch, pa.Table.from_batches([record])):
                inside = np.flatnonzero(window.meets(partials.start, partials.end))
                if len(inside):
                    read = at_batch(partials.take(inside), np.full(len(inside), batch_id))
                    shard = shard_of(read.keys, shards)
                    yield from exchange.wire_rows(by_shard(kind, read.to_table(), shard))

    return rows.mapInArrow(split, WIRE_DDL)


def source_pieces(spec: SessionizerSpec, by_batch: dict[int, BatchInputs], table: pa.Table) -> Iterator[Piece]:
    """Yield what the rows' batches did not refuse, read and judged by the stream's own mapper."""
    for batch_id, rows in spec.events.decoder.decode_again(table):
        live, bounds = bounds_of(spec, by_batch[batch_id])
        live = replace(live, events=replace(live.events, archive=False))
        for piece in split_events(live, bounds, by_batch[batch_id].clock_us, rows):
            if not isinstance(piece, Keyed):
                continue
            if piece.kind == MERGED:
                yield batch_id, MERGED, Partials.from_table(piece.rows)
            elif piece.kind == ALONE:
                until = piece.rows[UNTIL].to_numpy() if UNTIL in piece.rows.column_names else None
                yield batch_id, ALONE, lift(spec.aggregates, events_of(spec.events, piece.rows), until)


def bounds_of(spec: SessionizerSpec, inputs: BatchInputs) -> tuple[SessionizerSpec, Bounds]:
    """Return the spec under the settings of a batch, and the times that decided about it."""
    live = spec.under(inputs.settings)
    before = NO_WATERMARK if inputs.watermark_before_us is None else inputs.watermark_before_us
    return live, live.windows.bounds(before)


def at_batch(partials: Partials, batch: Ints) -> Partials:
    """Return partials whose revision is the batch that consumed them."""
    return replace(partials, revision=batch)


def rows_by_shard(kind: str, table: pa.Table, shards: int) -> Iterator[pa.RecordBatch]:
    """Yield a table with a column `key` as wire rows."""
    yield from exchange.wire_rows(by_shard(kind, table, shard_of(combined(table["key"]), shards)))
