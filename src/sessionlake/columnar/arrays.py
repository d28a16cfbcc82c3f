"""Small vectorised tools between Arrow arrays and numpy: groups, slices of byte buffers, ranks, hashes.

Data are stored and sent as Arrow, which has text, nulls and IPC. They are computed as numpy, which has sorts, reductions by
group and arithmetic in place. This module converts between the two, and adds functions that neither has. No function loops
over rows in Python.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.errors import StoreError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_ROOM = 1 << 62
_SIPHASH_KEY = "0123456789123456"
"""pandas' default."""
_DENSE = 16
"""Numbers are looked up in a table of flags if their span is at most so many times their count."""
_TOO_MUCH = (
    "in one Arrow array, which holds 2 GiB; raise it, or lower source.max_bytes_per_batch (of a topic: max_offsets_per_batch) "
    "and start once with `sessionlake run --replan`, which makes a smaller batch"
)


@dataclass(frozen=True)
class Groups:
    """Rows in group order: group g has the rows [starts[g], starts[g + 1]). No group is empty.

    >>> groups = Groups(np.array([0, 2]), 5)
    >>> groups.sizes.tolist(), groups.ids.tolist()
    ([2, 3], [0, 0, 1, 1, 1])
    """

    # `starts` is the argument of numpy's `ufunc.reduceat`. For an empty group `reduceat` returns the row at the group's
    # start, which is another group's row. So no group may be empty.

    starts: Ints
    """The first row of each group, ascending."""
    rows: int
    """All rows; the last group ends there."""
    keys: Callable[[], pa.Array] = field(default=lambda: pa.nulls(0), compare=False)
    """The key of each group, computed only on request: of all aggregates, only users' classes read it."""

    @cached_property
    def sizes(self) -> Ints:
        """Rows per group."""
        return np.diff(self.starts, append=self.rows)

    @cached_property
    def ids(self) -> Ints:
        """The group of each row."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)

    def sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of each group's values, one a row."""
        return np.add.reduceat(values, self.starts)  # `starts` are ascending, and no group is empty

    def any(self, flags: Bools) -> Bools:
        """Say which groups have a row with a true flag."""
        return np.logical_or.reduceat(flags, self.starts)  # as in `sum`


def starts_of(sizes: Ints) -> Ints:
    """Return the first row of each of consecutive groups, by their sizes.

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2]
    """
    return np.cumsum(sizes) - sizes  # each group's end less its size


def bounds_of(sizes: Ints) -> Ints:
    """Return where consecutive groups begin, by their sizes, and last the end: Arrow's offsets.

    >>> bounds_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes)])  # a group ends where the next one begins


def numbers(array: pa.Array, fill: float = 0) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return an int64 or float64 array as numpy, nulls filled, and its validity (None if nothing is null)."""
    if array.null_count == 0:
        return array.to_numpy(zero_copy_only=False), None
    valid = validity(array)
    filled = pc.fill_null(array, pa.scalar(fill, array.type)).to_numpy(zero_copy_only=False)
    return filled, valid


def validity(array: pa.Array) -> Bools | None:
    """Return which values are not null, or None if none is."""
    return None if array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)


def nullable(values: npt.NDArray[Any], valid: Bools | None, type_: pa.DataType | None = None) -> pa.Array:
    """Return numpy values as an Arrow array, which is null at the rows that are not valid.

    >>> nullable(np.array([1, 2]), np.array([True, False])).to_pylist()
    [1, None]
    """
    return pa.array(values, type_, mask=None if valid is None else ~valid)


def combined(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return one contiguous array of any chunks; StoreError above Arrow's 2 GiB."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    try:
        return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    except pa.ArrowInvalid as error:
        raise StoreError(f"pipeline.shards: {array.nbytes} bytes {_TOO_MUCH}") from error


def taken(array: pa.Array, rows: pa.Array) -> pa.Array:
    """Return the given rows, as `take` does; StoreError if they are more than Arrow's 2 GiB."""
    if pa.types.is_binary(array.type):
        # Asked first: `take` copies 2 GiB before it finds that they are too many.
        size = pc.sum(pc.binary_length(array).take(rows)).as_py() or 0
        if size >= 1 << 31:
            raise StoreError(f"pipeline.shards: {size} bytes {_TOO_MUCH}")
    return array.take(rows)


def concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays; StoreError above Arrow's 2 GiB."""
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise StoreError(f"pipeline.shards: {sum(array.nbytes for array in arrays)} bytes {_TOO_MUCH}") from error


def picked(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Return the given rows of a column; of one that is all null, as most states' further bits are, in an eighth of the time of `take`.

    >>> picked(pa.array([1, 2]), pa.array([1, 0])).to_pylist(), picked(pa.nulls(2, pa.int64()), pa.array([0])).to_pylist()
    ([2, 1], [None])
    """
    return pa.nulls(len(rows), column.type) if column.null_count == len(column) else column.take(rows)


def plain_text(texts: pa.Array) -> pa.Array:
    """Return texts, possibly a dictionary, without the dictionary."""
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def distinct(values: Ints) -> Ints:
    """Return the distinct numbers, ascending, as `np.unique` does.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    # `np.unique` is ten times slower, since it hashes from NumPy 2.3 on.
    ordered = np.sort(values)
    # The prepended number differs from the first one, so the first row counts as new.
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def is_among(values: Ints, some: Ints) -> Bools:
    """Say which values are among some others, as `np.isin` does.

    >>> is_among(np.array([1, 2, 5]), np.array([5, 1])).tolist()
    [True, False, True]
    """
    # `np.isin` calls the slow `np.unique` if the numbers lie far apart.
    if not len(some):
        return np.zeros(len(values), bool)
    low, high = int(some.min()), int(some.max())
    if high - low <= _DENSE * (len(values) + len(some)) and -_ROOM < low <= high < _ROOM:
        # A flag for each possible number, such as a code of a key, is 30 times as fast. The first and the last one bound the others.
        flags = np.zeros(high - low + 3, bool)
        flags[some - (low - 1)] = True
        return flags[np.clip(values, low - 1, high + 1) - (low - 1)]
    ordered = np.sort(some)
    # `searchsorted` returns len(ordered) for a value above all others: it is clipped, and then differs from the last one.
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def offsets_of(array: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the n + 1 offsets of a binary array, zero-based, and the bytes that they cut. Nulls have length zero.

    >>> offsets, data = offsets_of(pa.array([b"ab", None, b"c"]))
    >>> offsets.tolist(), data.tobytes()
    ([0, 2, 2, 3], b'abc')
    """
    if len(array) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    if array.null_count:
        array = pc.fill_null(array, b"")
    _, offsets, data = array.buffers()
    # A slice shares its parent's buffers and begins at `offset` in them, so both ends must be cut off here. An offset in the
    # buffer has 4 bytes.
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
    """Return the binary array of data[at[i] : at[i] + lengths[i]], copied.

    >>> data = np.frombuffer(b"abcdef", np.uint8)
    >>> byte_slices(data, np.array([4, 0]), np.array([1, 3])).to_pylist()
    [b'e', b'abc']
    """
    if not len(lengths):
        return pa.array([], pa.binary())
    # Slices of one length are overlapping values of an array, which need a single index for each slice.
    if lengths[0] > 0 and (lengths == lengths[0]).all():
        size = int(lengths[0])
        windows = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
        return binary_array(windows[at], np.arange(len(lengths) + 1) * size)
    if (at[1:] >= at[:-1] + lengths[:-1]).all():
        # The slices, and the bytes between them, are values of an array over the same data. `take` copies each slice as a
        # whole: 1.4 ms for 100,000 slices of about 90 bytes, and 40 ms by an index for each byte.
        cuts = np.empty(2 * len(at) + 1, np.int64)
        cuts[:-1:2], cuts[1::2], cuts[-1] = at, at + lengths, len(data)
        return binary_array(data, cuts).take(pa.array(np.arange(0, 2 * len(at), 2)))
    # Byte j of the result is in slice i, and comes from at[i] + (j - offsets[i]).
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    source = np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])
    return binary_array(data[source], offsets)


def exploded(array: pa.Array, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Ints]:
    """Return the fixed-width elements that a binary array packs, flat, and how many each row holds.

    Aggregate states hold lists in this form.

    >>> flat, counts = exploded(pa.array([bytes([1, 2]), b"", bytes([3])]), np.uint8)
    >>> flat.tolist(), counts.tolist()
    ([1, 2, 3], [2, 0, 1])
    """
    offsets, data = offsets_of(array)
    return data.view(dtype), np.diff(offsets) // np.dtype(dtype).itemsize


def packed(flat: npt.NDArray[Any], counts: Ints) -> pa.Array:
    r"""Return the inverse of `exploded`: row i has the next counts[i] elements.

    >>> packed(np.array([1, 2, 3], np.uint8), np.array([2, 1])).to_pylist()
    [b'\x01\x02', b'\x03']
    """
    offsets = bounds_of(counts).astype(np.int64) * flat.dtype.itemsize
    return binary_array(np.ascontiguousarray(flat), offsets)


def below_zero(counts: Ints, sizes: Ints) -> Bools:
    """Say which rows have a number below 0; row i has the next sizes[i] of the counts.

    >>> below_zero(np.array([1, -1, 2]), np.array([2, 0, 1])).tolist()
    [True, False, False]
    """
    found = np.zeros(len(sizes), bool)
    found[np.repeat(np.arange(len(sizes)), sizes)[counts < 0]] = True
    return found


def ranks(array: pa.Array) -> Ints:
    """Return dense ranks from 1 on, in the values' order: equal values share a rank. Nulls rank last.

    Bytes are compared as unsigned.

    >>> ranks(pa.array([b"b", None, b"a", b"b"])).tolist()
    [2, 3, 1, 2]
    """
    dense = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy()
    return cast(Ints, dense.astype(np.int64))


def argsort(values: Ints, bound: int) -> Ints:
    """Return the order that sorts values in [0, bound); equal values keep their order.

    It takes about half of np.argsort's time on random values.

    >>> argsort(np.array([5, 1, 5, 0]), 6).tolist()
    [3, 1, 0, 2]
    """
    # A direct sort is much faster than an indirect one, so value and position are packed into a number: the high bits are
    # the value, the low bits the position. After the sort the low bits are the order, with ties by position. If both don't
    # fit in 63 bits, low bits of the values are cut off. The order is then nearly right, and a merge sort of it is quick.
    bits = len(values).bit_length()
    cut = max(0, bound.bit_length() + bits - 63)
    mixed = ((values >> cut) << bits) | np.arange(len(values))
    mixed.sort()
    order = mixed & ((1 << bits) - 1)
    if cut:
        nearly = values[order]
        if (nearly[1:] < nearly[:-1]).any():
            # The low bits of the values were cut off: sort again what is nearly in order, which a stable sort does fast.
            order = order[np.argsort(nearly, kind="stable")]
    return order


def within_group(counts: Ints) -> Ints:
    """Return 0, 1, 2, ... for each group, given the groups' sizes.

    >>> within_group(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    # The sum of the sizes before a group is the row at which it starts.
    starts = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(starts, counts)


def hash64(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each value that never changes between processes, machines or releases.

    The hashes are those of `pandas.util.hash_array`, which sketches in tables have: SipHash-2-4 of strings and bytes, the bits of
    numbers, each mixed. Nulls have no meaningful hash.

    >>> hash64(pa.array(["a", "b"])).tolist(), hash64(pa.array([1])).tolist()
    ([13950350942979735504, 12688059582079114975], [6238072747940578789])
    """
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values = numbers(array)[0] + 0  # -0.0 + 0 is 0.0: equal values must share a hash
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan  # and so must NaNs of any payload
        return _mixed(values.view(np.uint64))
    from siphashc import siphash  # noqa: PLC0415 (only a few aggregates hash)

    # The library hashes Python objects singly, so only one is made of each distinct value.
    encoded = array.dictionary_encode()
    uniques = encoded.dictionary.cast(pa.string() if pa.types.is_string(array.type) else pa.binary()).to_pylist()
    hashes = _mixed(np.array([siphash(_SIPHASH_KEY, value) for value in uniques], np.uint64))
    return hashes[pc.fill_null(encoded.indices, 0).to_numpy()] if len(hashes) else np.zeros(len(array), np.uint64)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return words with their bits spread over all 64 (the last step of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
