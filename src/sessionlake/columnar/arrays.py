"""Small vectorised tools between Arrow arrays and numpy: groups, slices of byte buffers, ranks, hashes.

Data travel and rest as Arrow, which has text, nulls and IPC; they are computed on as numpy, which has sorts, reductions by
group and arithmetic in place. These are the crossings, and what neither has. Nothing here loops over rows in Python.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.errors import StoreError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_TOO_MUCH = (
    "in one Arrow array, which holds 2 GiB; raise it, or lower source.max_bytes_per_batch (of a topic: max_offsets_per_batch) "
    "and start once with `sessionlake run --replan`, which makes a smaller batch"
)


@dataclass(frozen=True)
class Groups:
    """Rows in group order: group g is the rows [starts[g], starts[g + 1]); no group is empty.

    It is what numpy's `ufunc.reduceat` takes, which is why no group may be empty: for an empty one it returns the row at its
    start, which is another group's.
    """

    starts: Ints
    """The first row of each group, ascending."""
    rows: int
    """All rows; the last group ends there."""
    keys: Callable[[], pa.Array] = field(default=lambda: pa.nulls(0), compare=False)
    """The session key of each group, made only when asked for: of all aggregates, only users' own read it."""

    @cached_property
    def sizes(self) -> Ints:
        """Rows per group."""
        return np.diff(self.starts, append=self.rows)

    @cached_property
    def ids(self) -> Ints:
        """The group of each row."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)


def numbers(array: pa.Array, fill: float = 0) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return an int64 or float64 array as numpy, nulls filled, and its validity (None where nothing is null)."""
    if array.null_count == 0:
        return array.to_numpy(zero_copy_only=False), None
    valid = validity(array)
    filled = pc.fill_null(array, pa.scalar(fill, array.type)).to_numpy(zero_copy_only=False)
    return filled, valid


def validity(array: pa.Array) -> Bools | None:
    """Return which values are not null, or None where none is."""
    return None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)


def nullable(values: npt.NDArray[Any], valid: Bools | None, type_: pa.DataType | None = None) -> pa.Array:
    """Return numpy values as an Arrow array that is null where not valid."""
    return pa.array(values, type_, mask=None if valid is None else ~valid)


def combined(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return one contiguous array, whatever its chunks were; StoreError where that is more than Arrow's 2 GiB."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    try:
        return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    except pa.ArrowInvalid as error:
        raise StoreError(f"pipeline.shards: {array.nbytes} bytes {_TOO_MUCH}") from error


def taken(array: pa.Array, rows: pa.Array) -> pa.Array:
    """Return the given rows, as `take` does; StoreError where they are more than Arrow's 2 GiB."""
    if pa.types.is_binary(array.type):
        # Asked first: `take` copies 2 GiB before it finds that they are too many.
        size = pc.sum(pc.binary_length(array).take(rows)).as_py() or 0
        if size >= 1 << 31:
            raise StoreError(f"pipeline.shards: {size} bytes {_TOO_MUCH}")
    return array.take(rows)


def concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return one array after the other in one; StoreError where they are more than Arrow's 2 GiB."""
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise StoreError(f"pipeline.shards: {sum(array.nbytes for array in arrays)} bytes {_TOO_MUCH}") from error


def plain_text(texts: pa.Array) -> pa.Array:
    """Return texts, which may be a dictionary of them, without one."""
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def sorted_codes(keys: pa.ChunkedArray | pa.Array) -> tuple[Ints, pa.Array]:
    """Return for each key the number of its value among the distinct ones, and these, ascending. No key is null."""
    encoded = combined(keys).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], encoded.dictionary.take(order)


def distinct(values: Ints) -> Ints:
    """Return the distinct ones of some numbers, ascending: what `np.unique` does, which is ten times slower since NumPy 2.3 has it hash."""
    ordered = np.sort(values)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def is_among(values: Ints, some: Ints) -> Bools:
    """Say which values are among some: what `np.isin` does, which calls `np.unique` where numbers lie far apart."""
    if not len(some):
        return np.zeros(len(values), bool)
    ordered = np.sort(some)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def offsets_of(array: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the n + 1 offsets of a binary array, zero-based, and the bytes that they cut. Nulls have length zero."""
    if len(array) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    if array.null_count:
        array = pc.fill_null(array, b"")
    _, offsets, data = array.buffers()
    # A slice shares its parent's buffers and begins at `offset` in them: both ends must be cut off by hand.
    cuts = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    if data is None or cuts[-1] == cuts[0]:
        return np.zeros(len(array) + 1, np.int64), np.zeros(0, np.uint8)
    return cuts - cuts[0], np.frombuffer(data, np.uint8)[cuts[0] : cuts[-1]]


def binary_array(data: npt.NDArray[Any] | bytes, offsets: Ints, type_: pa.DataType | None = None) -> pa.Array:
    """Return the binary array that the n + 1 offsets (in bytes) cut from contiguous data; StoreError for 2 GiB and more."""
    if len(offsets) and offsets[-1] >= 1 << 31:
        raise StoreError(f"pipeline.shards: {offsets[-1]} bytes {_TOO_MUCH}")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_ or pa.binary(), len(offsets) - 1, buffers)


def byte_slices(data: npt.NDArray[np.uint8], at: Ints, lengths: Ints) -> pa.Array:
    """Return the binary array of data[at[i] : at[i] + lengths[i]], copied, without a loop over the slices."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # Slices of one length are rows of a matrix: one index a slice. Of different lengths each byte needs an index of its
    # own, eight bytes for one.
    if len(lengths) and lengths[0] > 0 and (lengths == lengths[0]).all():
        windows = np.lib.stride_tricks.sliding_window_view(data, int(lengths[0]))
        return binary_array(np.ascontiguousarray(windows[at]), offsets)
    source = np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])
    return binary_array(data[source], offsets)


def exploded(array: pa.Array, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """Return the fixed-width elements that a binary array packs, flat, and how many each row holds.

    So lists lie in aggregate states: [b"<8 bytes><8 bytes>", b"<8 bytes>"] as int64 is three numbers, and [2, 1].
    """
    offsets, data = offsets_of(array)
    return data.view(dtype), np.diff(offsets) // np.dtype(dtype).itemsize


def packed(flat: npt.NDArray[Any], counts: Ints) -> pa.Array:
    """Invert `exploded`: row i holds the next counts[i] elements."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) * flat.dtype.itemsize
    return binary_array(np.ascontiguousarray(flat), offsets)


def ranks(array: pa.Array) -> Ints:
    """Return dense ranks: equal values share one, order is the values' own (bytes compare as unsigned). Nulls rank last."""
    dense = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy()
    return cast(Ints, dense.astype(np.int64))


def argsort(values: Ints, bound: int) -> Ints:
    """Return the order of values in [0, bound), in about half of np.argsort's time on random ones.

    Sorts values and positions packed into one number, which is much faster than to sort indirectly. Low bits of the
    values that leave no room for positions are cut off; the order is then nearly right, and a merge sort quick.
    """
    # The high bits are the value, the low ones the position: sorted, the positions stand in the values' order, ties by position.
    bits = len(values).bit_length()
    cut = max(0, bound.bit_length() + bits - 63)
    mixed = ((values >> cut) << bits) | np.arange(len(values))
    mixed.sort()
    order = mixed & ((1 << bits) - 1)
    if cut:
        nearly = values[order]
        if (nearly[1:] < nearly[:-1]).any():
            order = order[np.argsort(nearly, kind="stable")]
    return order


def within_group(counts: Ints) -> Ints:
    """Return 0, 1, 2, ... counting anew in each group of the given sizes."""
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)


def hash64(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each value that never changes between processes, machines or releases.

    Strings are hashed by SipHash with pandas' documented default key. Nulls have no meaningful hash.
    """
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values = numbers(array)[0] + 0  # -0.0 + 0 is 0.0: equal values must share a hash
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan  # and so must NaNs of any payload
        return cast(npt.NDArray[np.uint64], pd.util.hash_array(values))
    # pandas hashes Python objects one by one: of each distinct value only one is made.
    encoded = array.dictionary_encode()
    uniques = encoded.dictionary.cast(pa.string() if pa.types.is_string(array.type) else pa.binary())
    objects = uniques.to_numpy(zero_copy_only=False)
    hashes: npt.NDArray[np.uint64] = pd.util.hash_array(np.asarray(objects, dtype=object), categorize=False)
    return hashes[pc.fill_null(encoded.indices, 0).to_numpy()] if len(hashes) else np.zeros(len(array), np.uint64)
