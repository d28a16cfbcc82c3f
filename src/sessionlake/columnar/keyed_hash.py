"""A hash under a secret, for places where equal hashes decide what happens to a row, and others choose the texts.

XXH64 is no such hash, with no seed: two texts of 16 bytes can be made that have one hash under all seeds. This one is multilinear
(Lemire and Kaser, "Strongly universal string hashing is fast", 2012): a text's length and its words of 32 bits are each multiplied by a
random number of 64 bits, and the upper half of the sum is a hash of 32 bits. Two such are the 64 bits.
"""

import hashlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.columnar.arrays import Ints, distinct, offsets_of

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
SECRET_BYTES = 16
_FEW = 64
"""So few texts of equal size are hashed sooner together with other sizes."""
_WORDS = 1 << 20
"""Words that are multiplied at a time; bounds the memory."""
_LONG = 1 << 20
"""Bytes from which on a text is first hashed to 32 bytes, by itself."""
_UPPER = np.uint64(0xFFFFFFFF00000000)


def keyed_hashes(texts: pa.Array, secret: bytes) -> Hashes:
    """Return 64 bits for each byte string. Two strings that were chosen without the secret have one hash with a probability of 1 in 2^64.

    >>> found = keyed_hashes(pa.array([b"ann", b"bob", b"ann"]), b"secret")
    >>> bool(found[0] == found[2]), bool(found[0] == found[1])
    (True, False)
    """
    offsets, data = offsets_of(texts)
    lengths = np.diff(offsets)
    starts, sizes = offsets[:-1].copy(), lengths.copy()
    long = np.flatnonzero(lengths >= _LONG)
    digests = [hashlib.blake2b(data[starts[n] : starts[n] + sizes[n]].data, key=secret, digest_size=32) for n in long]
    starts[long], sizes[long] = len(data) + 32 * np.arange(len(long)), 32
    # A text's last word may be read beyond its end.
    data = np.concatenate([data, np.frombuffer(b"".join(d.digest() for d in digests) + bytes(8), np.uint8)])
    hashes = np.empty(len(lengths), np.uint64)
    few = np.ones(len(lengths), bool)
    for size in distinct(sizes).tolist():
        same = np.flatnonzero(sizes == size)
        if len(same) > _FEW:
            few[same] = False
            for first in range(0, len(same), _WORDS):
                rows = same[first : first + _WORDS]
                hashes[rows] = _of_one_size(data, starts[rows], size, lengths[rows], secret)
    rows = np.flatnonzero(few)
    # The words of the texts so far, to cut the rows into pieces of about _WORDS.
    ends = np.cumsum(sizes[rows] // 4 + 1)
    first = 0
    while first < len(rows):
        done = int(ends[first - 1]) if first else 0
        # At least one text, however long.
        last = max(first + 1, int(np.searchsorted(ends, done + _WORDS, "right")))
        some = rows[first:last]
        hashes[some] = _of_all_sizes(data, starts[some], sizes[some], lengths[some], secret)
        first = last
    return hashes


def _of_one_size(data: Bytes, starts: Ints, size: int, lengths: Ints, secret: bytes) -> Hashes:
    """Return the hashes of data[start : start + size], a word of each at a step."""
    rows = _numbers(secret, _count(size // 4 + 1))
    sums = [numbers[0] + lengths.astype(np.uint64) * numbers[1] for numbers in rows]
    for place in range(-(-size // 4)):
        values = _words(data)[starts + 4 * place].astype(np.uint64)
        if size < 4 * place + 4:
            values &= np.uint64((1 << 8 * (size % 4)) - 1)
        sums = [so_far + values * numbers[place + 2] for so_far, numbers in zip(sums, rows, strict=True)]
    return (sums[0] & _UPPER) | (sums[1] >> np.uint64(32))


def _of_all_sizes(data: Bytes, starts: Ints, sizes: Ints, lengths: Ints, secret: bytes) -> Hashes:
    """Return the hashes of data[start : start + size], all words at once."""
    words = sizes // 4 + 1
    # All texts' words in one array: a text's words lie from `firsts` to `ends`.
    ends = np.cumsum(words)
    firsts = ends - words
    place = np.arange(ends[-1]) - np.repeat(firsts, words)
    values = _words(data)[np.repeat(starts, words) + 4 * place].astype(np.uint64)
    # Mask the last word to the text's bytes, of which it may have none.
    values[ends - 1] &= (np.uint64(1) << (8 * (sizes % 4)).astype(np.uint64)) - np.uint64(1)
    upper, lower = (
        # The sum over a text's words; every text has one word at least.
        numbers[0] + lengths.astype(np.uint64) * numbers[1] + np.add.reduceat(values * numbers[place + 2], firsts)
        for numbers in _numbers(secret, _count(int(words.max())))
    )
    return (upper & _UPPER) | (lower >> np.uint64(32))


def _words(data: Bytes) -> npt.NDArray[np.uint32]:
    """Return the words, little endian, that begin at each byte."""
    return np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))


def _count(words: int) -> int:
    """Return how many random numbers are made for texts of so many words: few different counts."""
    return 1 << (words + 2).bit_length()


@lru_cache(maxsize=16)
def _numbers(secret: bytes, count: int) -> npt.NDArray[np.uint64]:
    """Return two rows of random numbers from a secret. A smaller count gives a prefix of a larger one."""
    stream = hashlib.shake_256(secret).digest(16 * count)
    return np.ascontiguousarray(np.frombuffer(stream, "<u8").reshape(count, 2).T)
