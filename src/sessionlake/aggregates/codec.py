"""Packed states: all aggregates' states of a record as one byte string, in stores and changelogs alike."""

from collections.abc import Iterable
from struct import calcsize, unpack_from

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Aggregate, States
from sessionlake.aggregates.scalars import BYTES
from sessionlake.columnar.arrays import binary_array, byte_slices, nullable, numbers, offsets_of

STATE_LAYOUT = 2
"""Version of the byte layout of states; with another one, stored states can't be read and ask for a rebuild."""


Scalar = int | float | bytes | None
"""One row of a state column."""


class StateCodec:
    """Pack a session's state columns into one byte string and back.

    Store, changelog and corrections hold this string, so that a restore copies it unread (docs/decisions/0002). Layout,
    little endian: a validity bitmap, then 8 bytes for each number and a 4-byte length for each byte string, then the byte
    strings. Another layout asks for another STATE_LAYOUT.
    """

    def __init__(self, aggregates: Iterable[Aggregate], columns: Iterable[pa.DataType] = ()) -> None:
        """Make one for the states of aggregates, then for plain columns of state types."""
        self.types = [*(type_ for aggregate in aggregates for type_ in aggregate.state), *columns]
        self._bitmap = -(-len(self.types) // 8)  # bytes of the bitmap, rounded up
        formats = {"int64": "<i8", "double": "<f8", "binary": "<u4"}
        fields = [("valid", np.uint8, (self._bitmap,)), *((f"f{i}", formats[str(t)]) for i, t in enumerate(self.types))]
        self._fixed = np.dtype(fields)
        one = {"int64": "q", "double": "d", "binary": "I"}
        # Not a Struct, which no task could be sent; the module keeps those that it has made of a format.
        self._one = f"<{self._bitmap}s{''.join(one[str(t)] for t in self.types)}"
        self._texts = [i for i, type_ in enumerate(self.types) if type_ == BYTES]
        self._all_valid = b"\xff" * self._bitmap

    def encode(self, states: States, rows: int) -> pa.Array:
        """Return one byte string for each row; nulls inside of a state are kept."""
        # Columns of a fixed width form one structured array of numpy, the heads. Byte strings are then joined to the heads.
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
        """Return the state columns of byte strings that `encode` made for the same aggregates. No string is null."""
        rows = len(packed)
        offsets, data = offsets_of(packed)
        if not rows or not self.types:
            return [pa.array([], type_) for type_ in self.types]
        fixed = offsets_of(byte_slices(data, offsets[:-1], np.full(rows, self._fixed.itemsize)))[1].view(self._fixed)
        valid = np.unpackbits(fixed["valid"], axis=1, bitorder="little").astype(bool)
        # The place at which each row's next byte string begins: after its head, then after the strings read so far.
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

    def decode_one(self, packed: bytes) -> list[Scalar]:
        """Return one row of the state columns, as `decode` does of many: for a few, numpy takes longer to begin than this to end."""
        if not self.types:
            return []
        valid, *found = unpack_from(self._one, packed)
        row: list[Scalar] = found
        at = calcsize(self._one)
        for i in self._texts:
            end = at + found[i]
            row[i] = packed[at:end]
            at = end
        if valid != self._all_valid:
            bits = int.from_bytes(valid, "little")
            row = [value if bits >> i & 1 else None for i, value in enumerate(row)]
        return row
