"""Ids of rows: Spark's xxhash64(session_key, session_start) and the like, vectorised, so that SQL can compute them too.

Libraries of XXH64 hash one value a call. Here all values of equal length go through the algorithm side by side, a word of each at a
step. Its parts are named as in its specification: stripes of 32 bytes over four lanes, a tail, and the final mix (avalanche).
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from sessionlake.columnar.arrays import Ints, distinct, offsets_of

Hashes = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
SEED = 42
"""Spark's, of `xxhash64`."""
_FEW = 64
"""So few texts of equal length are hashed sooner singly."""
_ROWS = 1 << 20
"""Texts hashed at a time; bounds the steps' memory."""


def record_ids(keys: pa.Array, *numbers: Ints) -> Ints:
    """Return an id for each (key, number, ...), which is equal to Spark's xxhash64 of these columns.

    A time is a number of microseconds.

    >>> record_ids(pa.array(["a"]), np.array([0])).tolist()
    [-8005201377186738639]
    """
    # As in Spark, the hash of the columns so far is the next column's seed. The first seed is 42, and a number is a word of
    # 8 bytes.
    hashes = hash_bytes(keys.cast(pa.binary()))
    with np.errstate(over="ignore"):  # as there
        for column in numbers:
            words = column.astype(np.int64).view(np.uint64)
            hashes = _mix(_word(hashes + _P5 + np.uint64(8), words))
        return hashes.view(np.int64)


def record_id(key: bytes, *numbers: int) -> int:
    """Return the id of a UTF-8 key and its numbers. `record_ids` hashes many; for a few, numpy's overhead takes longer than the library."""
    hashed = xxh64_intdigest(key, SEED)
    for number in numbers:
        hashed = xxh64_intdigest(number.to_bytes(8, "little", signed=True), hashed)
    return hashed - (hashed >> 63 << 64)


def hash_bytes(texts: pa.Array, seed: int = SEED) -> Hashes:
    """Return XXH64 of each byte string, with a seed below 2^64."""
    offsets, data = offsets_of(texts)
    lengths = np.diff(offsets)
    hashes = np.empty(len(lengths), np.uint64)
    for length in distinct(lengths).tolist():
        same = np.flatnonzero(lengths == length)
        if len(same) <= _FEW:
            hashes[same] = [xxh64_intdigest(data[at : at + length].data, seed) for at in offsets[same].tolist()]
            continue
        for first in range(0, len(same), _ROWS):
            rows = same[first : first + _ROWS]
            with np.errstate(over="ignore"):  # arithmetic is modulo 2 ** 64, as the algorithm wants it
                hashes[rows] = _hashed(data, offsets[rows], length, np.uint64(seed))
    return hashes


def _hashed(data: Bytes, at: Ints, length: int, seed: np.uint64) -> Hashes:
    """Return the hash of data[at[i] : at[i] + length] for each i."""
    hashes = _stripes(data, at, length, seed)
    for place in range(length // 32 * 32, length - 7, 8):
        hashes = _word(hashes, _words(data, at + place, "<u8"))
    done = length // 8 * 8
    if length - done >= 4:
        word = _words(data, at + done, "<u4").astype(np.uint64)
        hashes = _rotl(hashes ^ (word * _P1), 23) * _P2 + _P3
        done += 4
    for place in range(done, length):
        hashes = _rotl(hashes ^ (data[at + place].astype(np.uint64) * _P5), 11) * _P1
    return _mix(hashes)


def _stripes(data: Bytes, at: Ints, length: int, seed: np.uint64) -> Hashes:
    """Return the hash of all whole 32-byte stripes, the length added."""
    if length < 32:
        return np.full(len(at), seed + _P5 + np.uint64(length))
    lanes = [np.full(len(at), v) for v in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)]
    for stripe in range(0, length // 32 * 32, 32):
        for i, lane in enumerate(lanes):
            lanes[i] = _rotl(lane + _words(data, at + (stripe + 8 * i), "<u8") * _P2, 31) * _P1
    hashes = sum(
        (_rotl(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros(len(at), np.uint64)
    )
    for lane in lanes:
        hashes = (hashes ^ (_rotl(lane * _P2, 31) * _P1)) * _P1 + _P4
    return hashes + np.uint64(length)


def _words(data: Bytes, at: Ints, type_: str) -> npt.NDArray[np.unsignedinteger]:
    """Return the words, little endian, that begin at some bytes, which need not be aligned."""
    dtype = np.dtype(type_)
    overlapping: npt.NDArray[np.unsignedinteger] = np.ndarray((len(data) - dtype.itemsize + 1,), dtype, data, 0, (1,))
    return overlapping[at]


def _word(hashes: Hashes, word: Hashes) -> Hashes:
    """Mix in a word of 8 bytes of the tail."""
    return _rotl(hashes ^ (_rotl(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _rotl(values: Hashes, by: int) -> Hashes:
    """Rotate left."""
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _mix(hashes: Hashes) -> Hashes:
    """Spread each bit over all others, the last step."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
