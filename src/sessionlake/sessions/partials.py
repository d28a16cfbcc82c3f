"""Partials: what everything is inside the engine, as columns. One event is a partial with start = end = its time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.aggregates import Aggregate, States
from sessionlake.aggregates.scalars import BYTES
from sessionlake.columnar.arrays import Ints, binary_array, byte_slices, nullable, numbers, offsets_of, plain_text

STATE_LAYOUT = 2
"""Version of the byte layout of states; with another one, stored states can't be read and ask for a rebuild."""


@dataclass(frozen=True)
class Partials:
    """(key, start, end, count, revision, aggregate states) in columns of equal length; times inclusive, microseconds.

    `states` holds the state columns of all aggregates, one after the other. `revision` is the batch_id of a stored
    session's last change and meaningless for what is not stored. Keys that come of `premerge` are a dictionary.
    """

    keys: pa.Array
    start: Ints
    end: Ints
    count: Ints
    revision: Ints
    states: States

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.integer]) -> "Partials":
        """Return the given rows, in that order."""
        index = pa.array(rows)
        columns = [column.take(index) for column in self.states]
        return Partials(
            self.keys.take(index), self.start[rows], self.end[rows], self.count[rows], self.revision[rows], columns
        )

    def to_table(self) -> pa.Table:
        """Return the columns key, start_us, end_us, event_count, revision, s0, s1, ... ."""
        columns = {
            "key": plain_text(self.keys),
            "start_us": self.start,
            "end_us": self.end,
            "event_count": self.count,
            "revision": self.revision,
        }
        return pa.table({**columns, **{f"s{i}": column for i, column in enumerate(self.states)}})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Partials":
        """Invert `to_table`."""
        table = table.combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]
        start, end, count, revision = (column.to_numpy() for column in columns[1:5])
        return cls(columns[0], start, end, count, revision, columns[5:])

    @classmethod
    def empty(cls, aggregates: Sequence[Aggregate]) -> "Partials":
        """Return no rows, with the state columns of the given aggregates."""
        none = np.zeros(0, np.int64)
        return cls(
            pa.array([], pa.string()),
            none,
            none,
            none,
            none,
            [pa.array([], type_) for a in aggregates for type_ in a.state],
        )


def concat(parts: Sequence[Partials]) -> Partials:
    """Return the rows of all parts, in order; at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Partials(
        keys=pa.concat_arrays([plain_text(p.keys) for p in parts]),
        start=np.concatenate([p.start for p in parts]),
        end=np.concatenate([p.end for p in parts]),
        count=np.concatenate([p.count for p in parts]),
        revision=np.concatenate([p.revision for p in parts]),
        states=[pa.concat_arrays(columns) for columns in zip(*(p.states for p in parts), strict=True)],
    )


class StateCodec:
    """Pack a session's state columns into one byte string and back.

    Layout, little endian: a validity bitmap, then 8 bytes for each number and a 4-byte length for each byte string,
    then the byte strings.
    """

    def __init__(self, aggregates: Iterable[Aggregate]) -> None:
        self.types = [type_ for aggregate in aggregates for type_ in aggregate.state]
        self._bitmap = -(-len(self.types) // 8)
        formats = {"int64": "<i8", "double": "<f8", "binary": "<u4"}
        fields = [("valid", np.uint8, (self._bitmap,)), *((f"f{i}", formats[str(t)]) for i, t in enumerate(self.types))]
        self._fixed = np.dtype(fields)

    def encode(self, states: States, rows: int) -> pa.Array:
        """Return one byte string for each of the rows."""
        fixed = np.zeros(rows, self._fixed)
        tails = []
        valid = np.ones((rows, self._bitmap * 8), bool)
        for i, (type_, column) in enumerate(zip(self.types, states, strict=True)):
            if type_ == BYTES:
                offsets, data = offsets_of(column)
                fixed[f"f{i}"] = np.diff(offsets)
                tails.append(binary_array(data, offsets))
                mask = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
            else:
                fixed[f"f{i}"], mask = numbers(column)
            if mask is not None:
                valid[:, i] = mask
        fixed["valid"] = np.packbits(valid, axis=1, bitorder="little")
        head = binary_array(fixed, np.arange(rows + 1) * self._fixed.itemsize)
        return pa.compute.binary_join_element_wise(head, *tails, b"") if tails else head

    def decode(self, packed: pa.Array) -> States:
        """Return the state columns of byte strings that `encode` made."""
        rows = len(packed)
        offsets, data = offsets_of(packed)
        if not rows or not self.types:
            return [pa.array([], type_) for type_ in self.types]
        fixed = offsets_of(byte_slices(data, offsets[:-1], np.full(rows, self._fixed.itemsize)))[1].view(self._fixed)
        valid = np.unpackbits(fixed["valid"], axis=1, bitorder="little").astype(bool)
        tail = offsets[:-1] + self._fixed.itemsize
        states: States = []
        for i, type_ in enumerate(self.types):
            mask = None if valid[:, i].all() else valid[:, i]
            if type_ == BYTES:
                lengths = fixed[f"f{i}"].astype(np.int64)
                column = byte_slices(data, tail, lengths)
                tail = tail + lengths
                states.append(
                    column if mask is None else pa.compute.if_else(pa.array(mask), column, pa.scalar(None, BYTES))
                )
            else:
                states.append(nullable(np.ascontiguousarray(fixed[f"f{i}"]), mask, type_))
        return states
