"""Ids of rows: Spark's xxhash64(session_key, session_start) and the like, vectorised, so that SQL can compute them too.

Libraries of XXH64 hash one value a call. Here all values of one length go through the algorithm side by side, a column a
step. Its parts are named as in its specification: stripes of 32 bytes over four lanes, a tail, and the final mix (avalanche).
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from sessionlake.columnar.arrays import Ints, offsets_of

Hashes = npt.NDArray[np.uint64]
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
_BLOCK_BYTES = 1 << 25
"""Bytes that are hashed at a time; bounds the memory that all steps of one block take."""
_LONG_BYTES = 256
"""Strings from here on are copied into their block one by one."""


def record_ids(keys: pa.Array, *numbers: Ints) -> Ints:
    """Return an id for each (key, number, ...), which is equal to Spark's xxhash64 of these columns.

    A time is a number of microseconds.

    >>> record_ids(pa.array(["a"]), np.array([0])).tolist()
    [-8005201377186738639]
    """
    # As in Spark the hash of the columns so far is the next column's seed. The first seed is 42, and a number is one word of
    # 8 bytes.
    hashes = hash_bytes(keys.cast(pa.binary()))
    with np.errstate(over="ignore"):  # as there
        for column in numbers:
            words = column.astype(np.int64).view(np.uint64)
            hashes = _mix(_word(hashes + _P5 + np.uint64(8), words))
        return hashes.view(np.int64)


def record_id(key: bytes, *numbers: int) -> int:
    """Return the id of one key, UTF-8, and its numbers, as `record_ids` does of many: for a few, numpy takes longer to begin than the library to end."""
    hashed = xxh64_intdigest(key, SEED)
    for number in numbers:
        hashed = xxh64_intdigest(number.to_bytes(8, "little", signed=True), hashed)
    return hashed - (hashed >> 63 << 64)


def hash_bytes(texts: pa.Array, seed: int = SEED) -> Hashes:
    """Return XXH64 of each byte string, with a seed below 2^64."""
    # Those of one length at a time, as many as make a block of bounded size.
    offsets, data = offsets_of(texts)
    data = np.frombuffer(data, np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(lengths), np.uint64)
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        step = max(1, _BLOCK_BYTES // max(1, int(length)))
        for at in range(0, len(same), step):
            rows = same[at : at + step]
            block = _block(data, offsets[rows], int(length))
            with np.errstate(over="ignore"):  # arithmetic is modulo 2 ** 64, as the algorithm wants it
                hashes[rows] = _mix(_tail(_stripes(block, seed), block))
    return hashes


def _block(data: npt.NDArray[np.uint8], at: Ints, length: int) -> npt.NDArray[np.uint8]:
    """Return data[at[i] : at[i] + length] as row i; of long strings without an index, which takes eight bytes a byte."""
    if length > _LONG_BYTES:
        return np.stack([data[start : start + length] for start in at.tolist()])
    return data[at[:, None] + np.arange(length)]


def _stripes(block: npt.NDArray[np.uint8], seeded: int) -> Hashes:
    """Return the hash of all whole 32-byte stripes, the length added."""
    rows, length = block.shape
    seed = np.uint64(seeded)
    if length < 32:
        return np.full(rows, seed + _P5 + np.uint64(length))
    words = _words(block[:, : length // 32 * 32], "<u8")
    lanes = [np.full(rows, v) for v in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)]
    for at in range(0, words.shape[1], 4):
        lanes = [_rotl(lane + words[:, at + i] * _P2, 31) * _P1 for i, lane in enumerate(lanes)]
    hashes = sum((_rotl(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros(rows, np.uint64))
    for lane in lanes:
        hashes = (hashes ^ (_rotl(lane * _P2, 31) * _P1)) * _P1 + _P4
    return hashes + np.uint64(length)


def _tail(hashes: Hashes, block: npt.NDArray[np.uint8]) -> Hashes:
    """Mix in the bytes after the last whole stripe: words of 8 bytes, one of 4, single bytes."""
    length = block.shape[1]
    at = length // 32 * 32
    for word in _words(block[:, at : length // 8 * 8], "<u8").T:
        hashes = _word(hashes, word)
    at = length // 8 * 8
    if length - at >= 4:
        word = _words(block[:, at : at + 4], "<u4")[:, 0].astype(np.uint64)
        hashes = _rotl(hashes ^ (word * _P1), 23) * _P2 + _P3
        at += 4
    for i in range(at, length):
        hashes = _rotl(hashes ^ (block[:, i].astype(np.uint64) * _P5), 11) * _P1
    return hashes


def _words(block: npt.NDArray[np.uint8], type_: str) -> npt.NDArray[np.unsignedinteger]:
    """Return each row's bytes as words, little endian."""
    return np.ascontiguousarray(block).view(type_)


def _word(hashes: Hashes, word: Hashes) -> Hashes:
    """Mix in one word of 8 bytes of the tail."""
    return _rotl(hashes ^ (_rotl(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _rotl(values: Hashes, by: int) -> Hashes:
    """Rotate left."""
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _mix(hashes: Hashes) -> Hashes:
    """Spread each bit over all others, the last step."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
