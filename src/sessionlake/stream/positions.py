"""Positions: accepted rows numbered from 1 on in the order of their source, whichever tasks and shards they pass.

The position of a row is 2^40 times the number of its source partition, plus its number among the rows of that partition that
were accepted, from 1 on, since the pipeline's first batch. Its *arrival* is its number among the accepted rows of all
partitions: those of earlier batches come first, then, of one batch, those of partitions with lower numbers.

No task sees all rows. So each map task sends to every shard the number of accepted rows in each chunk (`Rows`), and the
chunk's place in the order. A row travels with the number of its chunk and its place in the chunk. A shard adds up the rows
before it: those of the partition in earlier batches, which the state has, and those of earlier chunks. The order is logged
with the batch (offsets, the log of files, a Delta table's log), so a rerun gives the same numbers.

On the map side, for each `Rows` of `Decoder.decode_in_order` (the columns must be `ordered`):

    chunk = chunk_of(context, number)                         # number: its place among those of its table
    yield from accepted_rows(name, rows, len(accepted), chunk)
    ... send `chunk` and np.arange(len(accepted)) with the accepted rows, which are in the order of `rows`

In the shard: `Numbering.of(inputs, context.state, name)`, then `positions(chunk, row)`. The kind says `numbers_messages`, and
its `next_state` adds `counted(state, stats)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, combined, starts_of
from sessionlake.engine.operator import BatchContext, Counted, Everywhere, Inputs, Split
from sessionlake.sources.decoding.rows import Rows

PARTITION = 1 << 40
"""Positions of a source partition: the number of its accepted rows stays below."""
CHUNK, ROW = "chunk", "row"
"""Columns of rows on their way to a shard: the row's chunk, and the number of accepted rows of the chunk before it."""
CHUNKS = "chunks"
"""Kind of the rows that report a chunk to every shard."""
POSITIONS = "positions"
"""A key of an operator's state: the number of accepted rows by input and source partition.

The names of a batch's numbers for it begin with this text, too."""
_ORDER = ("first", "second", "third")
CHUNKS_SCHEMA = pa.schema(
    [
        ("input", pa.string()),
        (CHUNK, pa.int64()),
        ("partition", pa.int64()),
        *((name, pa.int64()) for name in _ORDER),
        ("accepted", pa.int64()),
    ]
)
_NUMBERS, _PARTS = 1 << 22, 1 << 20


def chunk_of(context: BatchContext, number: int) -> int:
    """Return a chunk's number, unique in the batch's input; `number` is its place in the task's table."""
    return (context.task * _PARTS + context.part) * _NUMBERS + number


def place_of(chunk: int) -> tuple[int, int, int]:
    """Return the task, the part and the number that `chunk_of` made a chunk's number of."""
    table, number = divmod(chunk, _NUMBERS)
    return *divmod(table, _PARTS), number


def accepted_rows(name: str, rows: Rows, accepted: int, chunk: int) -> Split:
    """Yield the pieces that report to every shard, and to the state, the number of accepted rows in an input's chunk.

    ValueError if the rows have no origin: their columns are not `ordered`.
    """
    if rows.origin is None:
        raise ValueError("rows without an origin can't be numbered")
    if accepted:
        values = (name, chunk, rows.origin.partition, *rows.origin.order, accepted)
        arrays = [pa.array([value], field.type) for value, field in zip(values, CHUNKS_SCHEMA, strict=True)]
        yield Everywhere(CHUNKS, pa.Table.from_arrays(arrays, schema=CHUNKS_SCHEMA))
        yield Counted({f"{POSITIONS}:{name}:{rows.origin.partition}": accepted})


def counted(state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
    """Return the positions in the state after a batch with these numbers; JSON values."""
    counts = {name: dict(each) for name, each in state.get(POSITIONS, {}).items()}
    for told, accepted in stats.items():
        prefix, _, place = told.partition(":")
        if prefix == POSITIONS:
            name, _, partition = place.rpartition(":")
            of_input = counts.setdefault(name, {})
            of_input[partition] = of_input.get(partition, 0) + accepted
    return {POSITIONS: counts}


@dataclass(frozen=True)
class Numbering:
    """The numbers of an input's rows in a batch, in a shard. All arrays of chunks ascend by chunk number."""

    before: Mapping[int, int]
    """Accepted rows by source partition before the batch."""
    after: Mapping[int, int]
    """The same after it."""
    chunks: Ints
    first_position: Ints
    """For each chunk the position of its first accepted row."""
    first_arrival: Ints

    @classmethod
    def of(cls, inputs: Inputs, state: Mapping[str, Any], name: str) -> "Numbering":
        """Return the numbering, from the rows that report chunks and from the state before the batch."""
        before = {int(p): int(n) for p, n in state.get(POSITIONS, {}).get(name, {}).items()}
        chunks = inputs.get(CHUNKS, CHUNKS_SCHEMA.empty_table())
        chunks = chunks.filter(pa.compute.equal(chunks["input"], name))
        chunk, partition, accepted = (combined(chunks[c]).to_numpy() for c in (CHUNK, "partition", "accepted"))
        order = np.lexsort([combined(chunks[c]).to_numpy() for c in (*reversed(_ORDER), "partition")])
        chunk, partition, accepted = chunk[order], partition[order], accepted[order]
        running = starts_of(accepted)
        numbers, starts = np.unique(partition, return_index=True)
        # Chunks are sorted by partition: a partition's chunks are a slice.
        sums = np.add.reduceat(accepted, starts) if len(starts) else accepted
        held = np.array([before.get(p, 0) for p in numbers.tolist()], np.int64)
        of_chunk = np.searchsorted(numbers, partition)  # the index of each chunk's partition in `numbers`
        position = partition * PARTITION + held[of_chunk] + running - running[starts][of_chunk] + 1
        arrival = sum(before.values()) + running + 1
        after = {**before, **dict(zip(numbers.tolist(), (held + sums).tolist(), strict=True))}
        # Chunks are looked up by number; no two have one number.
        by_number = np.argsort(chunk)
        return cls(before, after, chunk[by_number], position[by_number], arrival[by_number])

    def positions(self, chunk: Ints, row: Ints) -> Ints:
        """Return the positions of rows, each given by its chunk and the number of accepted rows of the chunk before it."""
        # `chunks` ascend and have every chunk of the batch.
        return self.first_position[np.searchsorted(self.chunks, chunk)] + row

    def arrivals(self, chunk: Ints, row: Ints) -> Ints:
        """Return the arrivals of rows: from 1 on over all partitions and batches, without a gap."""
        # As in `positions`.
        return self.first_arrival[np.searchsorted(self.chunks, chunk)] + row
