"""Whole numbers of 128 bits, beside int64 columns of numbers that need no more; vectorised.

A number is in the int64 column if it fits, else in the binary column next to it: 16 bytes, two's complement, little endian.
A row of two nulls is no number.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints, binary_array, bounds_of, offsets_of

BYTES_OF_ONE = 16
_HALF = 32
_LOW = (1 << _HALF) - 1


def none_wide(rows: int) -> pa.Array:
    """Return the column beside numbers that all fit."""
    return pa.nulls(rows, pa.binary())


def added(values: Ints, wide: pa.Array, starts: Ints, below: int | None = None) -> tuple[Ints, Bools, pa.Array]:
    """Return the sums of groups modulo 2 ** 64, which of them fit int64, and the column of the others.

    `values` are 0 where there is no number, or a wide one. With `below` only sums nearer to 0 than that count as fitting.
    """
    # Three columns that can't overflow: 32 bits, the 32 bits above them, and the signed rest.
    low, middle, high = values & _LOW, (values >> _HALF) & _LOW, values >> 63
    if wide.null_count < len(wide):
        at = np.flatnonzero(wide.is_valid().to_numpy(zero_copy_only=False))
        words = offsets_of(wide)[1].view("<i8").reshape(-1, 2)
        low[at], middle[at], high[at] = words[:, 0] & _LOW, (words[:, 0] >> _HALF) & _LOW, words[:, 1]
    # The two lower words have 32 bits each: sums of 2^31 rows fit in 63. Carries follow.
    low, middle, high = (np.add.reduceat(part, starts) for part in (low, middle, high))
    middle += low >> _HALF
    high += middle >> _HALF
    total = ((middle & _LOW) << _HALF) | (low & _LOW)
    fits = high == total >> 63
    if below is not None:
        fits &= (total > -below) & (total < below)
    return total, fits, _column(total, high, ~fits)


def of_whole(numbers: Sequence[int], at: Bools) -> pa.Array:
    """Return the column with these numbers at the true rows, null at the others."""
    words = [(n & ((1 << 64) - 1), n >> 64) for n in numbers]
    low, high = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    low[at] = np.array([word for word, _ in words], np.uint64).view(np.int64)
    high[at] = [word for _, word in words]
    return _column(low, high, at)


def of_longs(numbers: Ints, at: Bools) -> pa.Array:
    """Return the column with the given numbers at the true rows, null at the others."""
    return _column(numbers, numbers >> 63, at)


def doubles_of(wide: pa.Array) -> npt.NDArray[np.float64]:
    """Return the nearest doubles of a column's numbers, in order, without nulls."""
    words = offsets_of(wide)[1].view("<i8").reshape(-1, 2)
    return words[:, 1] * float(1 << 64) + np.ascontiguousarray(words[:, 0]).view(np.uint64)


def whole(number: bytes) -> int:
    """Return a number of the column."""
    return int.from_bytes(number, "little", signed=True)


def _column(low: Ints, high: Ints, at: Bools) -> pa.Array:
    """Return numbers, given by their low and high words, at some rows, null at the others."""
    words = np.stack([low[at], high[at]], axis=1).astype("<i8")
    offsets = bounds_of(np.where(at, BYTES_OF_ONE, 0))
    plain = binary_array(np.ascontiguousarray(words), offsets)
    return pa.compute.if_else(pa.array(at), plain, pa.scalar(None, pa.binary()))
