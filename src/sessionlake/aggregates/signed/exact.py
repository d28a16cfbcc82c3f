"""Exact sums of doubles and of products, as columns of byte strings; vectorised.

A number is a sign and limbs of 32 bits. It is stored as little-endian uint32: a head, which has the sign in its lowest bit and
above it the place of the lowest limb, then the limbs from the lowest to the highest one that is not 0. The limb at place p
counts 2 ** (32 * (p - ORIGIN)). 0 has no bytes. So equal numbers have equal bytes, and only the limbs that a number spans are
stored: of 0.1 two, of a sum of prices three.
"""

from dataclasses import dataclass
from math import isqrt, nan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.columnar.arrays import Bools, Groups, Ints, exploded, packed, starts_of, within_group

Doubles = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
ORIGIN = 128
"""The place of the limb for units. Squares of doubles have bits down to 2 ** -2148, which is place 60."""
_BITS = 32
_LIMB = (1 << _BITS) - 1
_MANTISSA = 53
_PRECISION = 130
"""Bits of a quotient before the root: more than twice a double's bits."""
_STORED = np.dtype("<u4")


@dataclass(frozen=True)
class Limbs:
    """Numbers before they are stored: each a row of limbs, from the lowest on, each limb in [0, 2 ** 32)."""

    negative: Bools
    place: Ints
    """The first limb's place."""
    limbs: Words

    def times(self, other: "Limbs") -> "Limbs":
        """Return the products with as many other numbers."""
        width = self.limbs.shape[1] + other.limbs.shape[1]
        sums = np.zeros((len(self.place), width), np.uint64)
        for i in range(self.limbs.shape[1]):
            for j in range(other.limbs.shape[1]):
                product = self.limbs[:, i] * other.limbs[:, j]
                sums[:, i + j] += product & np.uint64(_LIMB)
                sums[:, i + j + 1] += product >> np.uint64(_BITS)
        for i in range(width - 1):
            sums[:, i + 1] += sums[:, i] >> np.uint64(_BITS)
        place = self.place + other.place - ORIGIN
        return Limbs(self.negative ^ other.negative, place, sums & np.uint64(_LIMB))

    def stored(self) -> pa.Array:
        """Return the numbers as a column."""
        rows, width = self.limbs.shape
        return _stored(self.limbs.ravel(), np.full(rows, width), self.place, self.negative)


def of_doubles(values: Doubles) -> Limbs:
    """Return finite doubles as limbs, exactly."""
    fraction, exponent = np.frexp(values)
    mantissa = np.abs(fraction * float(1 << _MANTISSA)).astype(np.uint64)
    at = exponent.astype(np.int64) - _MANTISSA + ORIGIN * _BITS
    shift = (at % _BITS).astype(np.uint64)
    # A mantissa of 53 bits is shifted by up to 31: each half by itself, for both together are too long.
    low = (mantissa & np.uint64(_LIMB)) << shift
    high = (mantissa >> np.uint64(_BITS)) << shift
    middle = (low >> np.uint64(_BITS)) + (high & np.uint64(_LIMB))
    return Limbs(values < 0, at // _BITS, np.stack([low & np.uint64(_LIMB), middle, high >> np.uint64(_BITS)], axis=1))


def of_integers(values: Ints) -> Limbs:
    """Return int64 as limbs."""
    negative = values < 0
    unsigned = values.view(np.uint64)
    size = np.where(negative, ~unsigned + np.uint64(1), unsigned)
    limbs = np.stack([size & np.uint64(_LIMB), size >> np.uint64(_BITS)], axis=1)
    return Limbs(negative, np.full(len(values), ORIGIN), limbs)


def _stored(limbs: npt.NDArray[Any], widths: Ints, place: Ints, negative: Bools) -> pa.Array:
    """Return numbers as a column; row i has the next widths[i] limbs, the first of them at place[i]."""
    some = np.flatnonzero(limbs)
    counts = np.bincount(np.repeat(np.arange(len(widths)), widths)[some], minlength=len(widths))
    rows = np.flatnonzero(counts)
    # A row's nonzero limbs lie together in `some`: the last is before the row's end.
    ends = np.cumsum(counts)[rows]
    first, last = some[ends - counts[rows]], some[ends - 1]
    sizes = last - first + 1
    starts = starts_of(widths)
    heads = starts_of(sizes + 1)
    words = np.empty(int(sizes.sum()) + len(rows), _STORED)
    is_head = np.zeros(len(words), bool)
    is_head[heads] = True
    words[heads] = ((place[rows] + first - starts[rows]) << 1) | negative[rows]
    words[~is_head] = limbs[np.repeat(first, sizes) + within_group(sizes)]
    lengths = np.zeros(len(widths), np.int64)
    lengths[rows] = sizes + 1
    return packed(words, lengths)


def added(column: pa.Array, groups: Groups) -> pa.Array:
    """Return the exact sum of each group."""
    words, lengths = exploded(column, _STORED)
    rows = np.flatnonzero(lengths)
    if not len(rows):
        return column.take(pa.array(groups.starts))
    sizes = lengths[rows] - 1
    heads = starts_of(sizes + 1)
    head = words[heads].astype(np.int64)
    place = head >> 1
    is_limb = np.ones(len(words), bool)
    is_limb[heads] = False
    limbs = words[is_limb].astype(np.int64)
    # Groups of numbers other than 0. Each gets cells for the places that its numbers span, and a cell for the last carry.
    owners = groups.ids[rows]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    # A group's numbers are adjacent, and each group has one: the places that a group spans, and where its cells end.
    low = np.minimum.reduceat(place, starts)
    widths = np.maximum.reduceat(place + sizes, starts) - low + 1
    ends = np.cumsum(widths)
    offset = np.repeat(ends - widths - low, np.diff(starts, append=len(rows)))
    cells = np.zeros(ends[-1], np.int64)
    np.add.at(
        cells, np.repeat(offset + place, sizes) + within_group(sizes), limbs * np.repeat(1 - 2 * (head & 1), sizes)
    )
    cells = _carried(cells, ends - 1)
    negative = cells[ends - 1] < 0
    if negative.any():
        cells = _carried(cells * np.repeat(1 - 2 * negative, widths), ends - 1)
    every = np.zeros((3, len(groups.starts)), np.int64)
    every[:, owners[starts]] = widths, low, negative
    return _stored(cells, every[0], every[1], every[2].astype(bool))


def _carried(cells: Ints, tops: Ints) -> Ints:
    """Return the same numbers with all cells but the top ones in [0, 2 ** 32)."""
    cells = cells.copy()
    goes_on = np.ones(len(cells), bool)
    goes_on[tops] = False
    at = np.flatnonzero(goes_on)
    # A carry may run through all limbs of a number, so only cells just reached are examined again.
    while len(at):
        carry = cells[at] >> _BITS
        some = carry != 0
        at, carry = at[some], carry[some]
        cells[at] -= carry << _BITS
        cells[at + 1] += carry
        at = (at + 1)[goes_on[at + 1]]
    return cells


def negated(column: pa.Array) -> pa.Array:
    """Return the numbers with the other sign."""
    words, lengths = exploded(column, _STORED)
    words = words.copy()
    words[starts_of(lengths)[lengths > 0]] ^= 1
    return packed(words, lengths)


def rounded(column: pa.Array) -> Doubles:
    """Return the nearest doubles, the even one on ties; beyond all doubles infinity."""
    words, lengths = exploded(column, _STORED)
    result = np.zeros(len(column))
    rows = np.flatnonzero(lengths)
    # A number's last word is its highest limb.
    sizes, last = lengths[rows] - 1, np.cumsum(lengths)[rows] - 1
    head = words[last - sizes].astype(np.int64)
    top, second, third = (np.where(sizes > n, words[np.maximum(last - n, 0)], 0).astype(np.uint64) for n in range(3))
    # The 64 bits from the highest on. The last one is set, too, if a bit below is: so a number is not taken for a middle.
    shift = _BITS - np.frexp(top.astype(np.float64))[1].astype(np.int64)
    by = shift.astype(np.uint64)
    bits = (((top << np.uint64(_BITS)) | second) << by) | (third >> (np.uint64(_BITS) - by))
    below = ((third << by) & np.uint64(_LIMB)) > 0
    bits |= (below | (sizes > 3)).astype(np.uint64)
    exponent = ((head >> 1) + sizes - 2 - ORIGIN) * _BITS - shift
    with np.errstate(over="ignore"):
        result[rows] = np.ldexp(bits.astype(np.float64), exponent) * (1 - 2 * (head & 1))
    return result


def whole(number: bytes) -> tuple[int, int]:
    """Return (m, e) of a stored number m * 2 ** e.

    >>> whole(of_doubles(np.array([-0.75])).stored()[0].as_py())
    (-3221225472, -32)
    """
    if not number:
        return 0, 0
    head = int.from_bytes(number[:4], "little")
    size = int.from_bytes(number[4:], "little")
    return -size if head & 1 else size, ((head >> 1) - ORIGIN) * _BITS


def quotient(number: int, exponent: int, divisor: int) -> float:
    """Return number * 2 ** exponent / divisor, rounded once; infinite if it is beyond doubles. The divisor is positive.

    >>> quotient(3, -1, 1), quotient(-1, 1100, 1)
    (1.5, -inf)
    """
    try:
        return (number << max(exponent, 0)) / (divisor << max(-exponent, 0))
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def root(number: int, exponent: int, divisor: int) -> float:
    """Return the root of number * 2 ** exponent / divisor, rounded once; NaN of a negative number. The exponent is even.

    >>> root(9, -2, 4)
    0.75
    """
    if number < 0:
        return nan
    shift = max(0, _PRECISION + divisor.bit_length() - number.bit_length())
    shift += shift % 2
    square, rest = divmod(number << shift, divisor)
    floor = isqrt(square)
    # As in `rounded`, a last bit says that there is more.
    return quotient(floor << 1 | (rest > 0 or floor * floor < square), (exponent - shift) // 2 - 1, 1)
