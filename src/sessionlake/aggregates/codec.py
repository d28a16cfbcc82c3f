"""Packed states: all aggregates' states of a record as one byte string, in stores and changelogs alike.

Two packed states are equal if their bytes are, or else their counts, and their values within a tolerance.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, calcsize, unpack_from

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Aggregate, States
from sessionlake.aggregates.scalars import BYTES, LONG
from sessionlake.columnar.arrays import Bools, Ints, binary_array, bounds_of, byte_slices, nullable, numbers, offsets_of
from sessionlake.errors import StoreError

STATE_LAYOUT = 2
"""Version of the byte layout of states. Stored states of another version can't be read, and ask for a rebuild."""


_RARE_BYTES = 16
_RARE = np.dtype([("column", "<u2"), ("value", f"V{_RARE_BYTES}")])
_RARE_ONE = Struct(f"<H{_RARE_BYTES}s")

Scalar = int | float | bytes | None
"""A state column's row."""


class StateCodec:
    """Pack a session's state columns into one byte string and back.

    Store, changelog and corrections hold this string, so that a restore copies it unread (docs/decisions/0002). Layout,
    little endian: a validity bitmap, then 8 bytes for each number and a 4-byte length for each byte string, then the byte
    strings. `Aggregate.rare` columns come last, and only the values that there are: 2 bytes for the number of the column before it, 16 bytes of
    value. So a state without any has the bytes that it had before there were such columns. Another layout asks for another STATE_LAYOUT.
    """

    def __init__(
        self, aggregates: Iterable[Aggregate], columns: Iterable[pa.DataType] = (), *, all_rare: bool = False
    ) -> None:
        """Make one for the states of aggregates, then for plain columns of state types.

        With `all_rare` each int64 column among `columns` is followed by a rare one.
        """
        self.types: list[pa.DataType] = []
        self._rare: list[tuple[int, int]] = []
        """For each rare column the place among all columns, and the number of the packed column before it."""
        for aggregate in aggregates:
            for i, type_ in enumerate(aggregate.state):
                if i in aggregate.rare:
                    self._add_rare()
                else:
                    self.types.append(type_)
        for type_ in columns:
            self.types.append(type_)
            if all_rare and type_ == LONG:
                self._add_rare()
        self._bitmap = -(-len(self.types) // 8)  # bytes of the bitmap, rounded up
        formats = {"int64": "<i8", "double": "<f8", "binary": "<u4"}
        fields = [("valid", np.uint8, (self._bitmap,)), *((f"f{i}", formats[str(t)]) for i, t in enumerate(self.types))]
        self._fixed = np.dtype(fields)
        one = {"int64": "q", "double": "d", "binary": "I"}
        # Not a Struct, which can't be sent to tasks. The module caches Structs by format.
        self._one = f"<{self._bitmap}s{''.join(one[str(t)] for t in self.types)}"
        self._texts = [i for i, type_ in enumerate(self.types) if type_ == BYTES]
        self._all_valid = b"\xff" * self._bitmap

    def encode(self, states: States, rows: int) -> pa.Array:
        """Return a byte string for each row, with nulls inside of a state kept."""
        rare = {number: states[place] for place, number in self._rare}
        at = {place for place, _ in self._rare}
        states = [column for place, column in enumerate(states) if place not in at] if at else states
        # Columns of a fixed width form a structured array of numpy, the heads. Byte strings are then joined to the heads.
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
        if any(column.null_count < rows for column in rare.values()):
            tails.append(_packed_rare(rare, rows))
        return pa.compute.binary_join_element_wise(head, *tails, b"") if tails else head

    def decode(self, packed: pa.Array) -> States:
        """Return the state columns from `encode`'s byte strings for the same aggregates. No string is null."""
        rows = len(packed)
        offsets, data = offsets_of(packed)
        if not rows or not self.types:
            return self._with_rare([pa.array([], type_) for type_ in self.types], {}, 0)
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
        if not self._rare:
            return states
        left = offsets[1:] - tail
        return self._with_rare(states, _unpacked_rare(data, tail, left) if left.any() else {}, rows)

    def decode_one(self, packed: bytes) -> list[Scalar]:
        """Return one row of state columns. `decode` reads many; for a few, numpy's overhead takes longer than this."""
        if not self.types:
            return []
        valid, *values = unpack_from(self._one, packed)
        row: list[Scalar] = values
        at = calcsize(self._one)
        for i in self._texts:
            end = at + values[i]
            row[i] = packed[at:end]
            at = end
        if valid != self._all_valid:
            bits = int.from_bytes(valid, "little")
            row = [value if bits >> i & 1 else None for i, value in enumerate(row)]
        if self._rare:
            more = dict(_RARE_ONE.iter_unpack(packed[at:]))
            for place, number in self._rare:
                row.insert(place, more.get(number))
        return row

    def _add_rare(self) -> None:
        self._rare.append((len(self.types) + len(self._rare), len(self.types) - 1))

    def _with_rare(self, states: States, found: Mapping[int, tuple[Ints, bytes]], rows: int) -> States:
        """Return packed and rare columns, in order; `found` has rows and values by the number of the column before."""
        if unknown := found.keys() - {number for _, number in self._rare}:
            raise StoreError(
                f"a state has a wide number for its column {min(unknown)}, which has none; is it of a newer release?"
            )
        for place, number in self._rare:
            column = pa.nulls(rows, BYTES)
            if number in found:
                at, values = found[number]
                lengths = np.zeros(rows, np.int64)
                lengths[at] = _RARE_BYTES
                plain = binary_array(values, bounds_of(lengths))
                column = pa.compute.if_else(pa.array(lengths > 0), plain, pa.scalar(None, BYTES))
            states.insert(place, column)
        return states


def _packed_rare(columns: Mapping[int, pa.Array], rows: int) -> pa.Array:
    """Return what each row has of rare columns, given by the number of the column before each."""
    at = {
        n: np.flatnonzero(c.is_valid().to_numpy(zero_copy_only=False))
        for n, c in columns.items()
        if c.null_count < rows
    }
    entries = np.empty(sum(map(len, at.values())), _RARE)
    row = np.concatenate([*at.values()])
    entries["column"] = np.repeat([*at], [len(some) for some in at.values()])
    entries["value"] = np.concatenate([offsets_of(columns[n])[1] for n in at]).view(f"V{_RARE_BYTES}")
    # By row; stable, so a row's entries stay in column order.
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=rows)
    return binary_array(np.ascontiguousarray(entries[order]), bounds_of(counts) * _RARE.itemsize)


def _unpacked_rare(data: npt.NDArray[np.uint8], at: Ints, left: Ints) -> dict[int, tuple[Ints, bytes]]:
    """Invert `_packed_rare`: return rows and values by the number of the column before, from the places and lengths of the rows' parts."""
    some = np.flatnonzero(left)
    entries = offsets_of(byte_slices(data, at[some], left[some]))[1].view(_RARE)
    row = np.repeat(some, left[some] // _RARE.itemsize)
    rare = {}
    for number in np.unique(entries["column"]).tolist():
        mine = entries["column"] == number
        rare[number] = row[mine], entries["value"][mine].tobytes()
    return rare


RELATIVE, ABSOLUTE = 1e-9, 1e-9
"""Sums of floats depend on their terms' order, which a backfill does not repeat."""


def states_equal(aggregates: Sequence[Aggregate], left: pa.Array, right: pa.Array) -> Bools:
    """Say which pairs of packed states are equal."""
    equal = pc.equal(left, right).to_numpy(zero_copy_only=False).astype(bool)
    rest = np.flatnonzero(~equal)
    if len(rest):
        codec, index = StateCodec(aggregates), pa.array(rest)
        equal[rest] = _values_equal(aggregates, codec.decode(left.take(index)), codec.decode(right.take(index)))
    return equal


def _values_equal(aggregates: Sequence[Aggregate], left: States, right: States) -> Bools:
    equal = np.ones(len(left[0]) if left else 0, bool)
    at = 0
    for aggregate in aggregates:
        width = len(aggregate.state)
        a, b = left[at : at + width], right[at : at + width]
        for n, (x, y) in enumerate(zip(a, b, strict=True)):
            if x.type == LONG or (n in aggregate.rare and x.null_count + y.null_count < 2 * len(x)):
                equal &= values_close(x, y)
        equal &= values_close(aggregate.value(a), aggregate.value(b))
        at += width
    return equal


def values_close(left: pa.Array, right: pa.Array) -> Bools:
    """Say which pairs of values are the same; floats may differ by the tolerance. Two nulls are the same.

    >>> values_close(pa.array([0.1 + 0.2, 1.0, None]), pa.array([0.3, 2.0, None])).tolist()
    [True, False, True]
    """
    if not (pa.types.is_floating(left.type) or pa.types.is_integer(left.type)):
        # Only pairs whose bytes differ come here; lists have no comparison in Arrow.
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), bool, len(left))
    nulls = left.is_null().to_numpy(zero_copy_only=False), right.is_null().to_numpy(zero_copy_only=False)
    a, b = (pc.fill_null(x, 0).to_numpy(zero_copy_only=False) for x in (left, right))
    exact = pa.types.is_integer(left.type)
    same = a == b if exact else np.isclose(a, b, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    return (nulls[0] == nulls[1]) & (same | nulls[0])
