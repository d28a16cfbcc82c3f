"""Whole numbers of 128 bits, beside int64 columns of numbers that need no more; vectorised.

A number is in the int64 column if it fits, else in the binary column next to it: 16 bytes, two's complement, little endian.
A row of two nulls is no number.
"""

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Ints, binary_array, offsets_of

BYTES_OF_ONE = 16
_HALF = 32
_LOW = (1 << _HALF) - 1


def none_wide(rows: int) -> pa.Array:
    """Return the column beside numbers that all fit."""
    return pa.nulls(rows, pa.binary())


def added(values: Ints, wide: pa.Array, starts: Ints) -> tuple[Ints, Bools, pa.Array]:
    """Return the sums of groups modulo 2 ** 64, which of them fit int64, and the column of the others.

    `values` are 0 where there is no number, or a wide one.
    """
    # Three columns that can't overflow: 32 bits, the 32 bits above them, and the signed rest.
    low, middle, high = values & _LOW, (values >> _HALF) & _LOW, values >> 63
    if wide.null_count < len(wide):
        at = np.flatnonzero(wide.is_valid().to_numpy(zero_copy_only=False))
        words = offsets_of(wide)[1].view("<i8").reshape(-1, 2)
        low[at], middle[at], high[at] = words[:, 0] & _LOW, (words[:, 0] >> _HALF) & _LOW, words[:, 1]
    low, middle, high = (np.add.reduceat(part, starts) for part in (low, middle, high))
    middle += low >> _HALF
    high += middle >> _HALF
    total = ((middle & _LOW) << _HALF) | (low & _LOW)
    fits = high == total >> 63
    return total, fits, _column(total, high, ~fits)


def _column(low: Ints, high: Ints, at: Bools) -> pa.Array:
    """Return the numbers of these words at some rows, null at the others."""
    words = np.stack([low[at], high[at]], axis=1).astype("<i8")
    offsets = np.concatenate([[0], np.cumsum(np.where(at, BYTES_OF_ONE, 0))])
    plain = binary_array(np.ascontiguousarray(words), offsets)
    return pa.compute.if_else(pa.array(at), plain, pa.scalar(None, pa.binary()))
