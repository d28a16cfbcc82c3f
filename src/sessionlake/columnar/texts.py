"""The order of texts, by words of bytes: Arrow sorts texts by comparing two at a time."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, offsets_of

Words = npt.NDArray[np.uint64]

_ROUNDS = 4
"""Sorts by a word before texts that are still equal are left to Arrow."""
_FEW = 64
"""So few equal texts are left to Arrow at once."""
_BITS = 40
"""Bits of a later round's word; the bits above have the group's number, which is below 2^24."""
_MOST = 1 << (64 - _BITS)
_FIRST_BYTES = np.array([(1 << 64) - (1 << (64 - 8 * n)) for n in range(9)], np.uint64)
"""Masks for the first n bytes of a word."""


def sorted_codes(keys: pa.ChunkedArray | pa.Array) -> tuple[Ints, pa.Array]:
    """Return each key's rank among the distinct keys, and the distinct keys, ascending. No key may be null.

    >>> codes, keys = sorted_codes(pa.array(["b", "a", "b"]))
    >>> codes.tolist(), keys.to_pylist()
    ([1, 0, 1], ['a', 'b'])
    """
    encoded = combined(keys).dictionary_encode()
    order = text_order(encoded.dictionary)
    # `order` lists the dictionary's entries by rank; the inverse permutation gives each entry's rank.
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], encoded.dictionary.take(pa.array(order))


def text_order(texts: pa.Array) -> Ints:
    """Return the order of texts by their UTF-8 bytes, or of byte strings. None may be null; the order of equal texts is undefined.

    95,000 keys take 3 to 10 ms of CPU, and 14 to 16 by `pc.sort_indices` (docs/decisions/0006-where-a-batch-spends-its-time.md).

    >>> text_order(pa.array(["user-2", "user-10", "user-1"])).tolist()
    [2, 1, 0]
    """
    if len(texts) <= _FEW or len(texts) >= _MOST:
        return _by_arrow(texts)
    bounds, data = offsets_of(texts)
    bytes_ = _Bytes(np.concatenate([data, np.zeros(8, np.uint8)]), bounds[:-1], np.diff(bounds))
    at, word = bytes_.first_difference()
    # Not stable: equal words are settled by later bytes, and equal texts have no certain order.
    order = np.argsort(word)
    slots, group = _ties(word[order])
    at += 8
    for _ in range(_ROUNDS - 1):
        if len(slots) <= _FEW:
            break
        # Texts of a group are equal so far, and adjacent. Sorting the group's texts permutes only the group's places.
        rows = order[slots]
        word = (group.astype(np.uint64) << np.uint64(_BITS)) | (bytes_.words(rows, at) >> np.uint64(64 - _BITS))
        # The group is in the high bits, so texts change places within their group only.
        within = np.argsort(word)
        order[slots] = rows[within]
        tied, group = _ties(word[within])
        slots = slots[tied]
        at += _BITS // 8
    if len(slots):
        # Sorted as a whole, the texts of all groups are in the order of the groups.
        rows = order[slots]
        order[slots] = rows[_by_arrow(texts.take(pa.array(rows)))]
    return order


class _Bytes:
    """Texts as slices of a buffer, which goes on for a word after the last text."""

    def __init__(self, data: npt.NDArray[np.uint8], begin: Ints, length: Ints) -> None:
        self._windows = np.lib.stride_tricks.sliding_window_view(data, 8)
        self._begin, self._length = begin, length

    def words(self, rows: Ints | slice, at: int) -> Words:
        """Return eight bytes of each text from a place on, as numbers of the same order; zeros follow a text's end."""
        left = np.clip(self._length[rows] - at, 0, 8)
        # A text that has ended before the place would be read beyond the buffer: it is read anywhere, and all bytes are cut off.
        found = self._windows[np.where(left > 0, self._begin[rows] + at, 0)]
        return np.ascontiguousarray(found).view(">u8").ravel().astype(np.uint64) & _FIRST_BYTES[left]

    def first_difference(self) -> tuple[int, Words]:
        """Return a place up to which all texts are equal, and the words that begin there."""
        at, every = 0, slice(None)
        for _ in range(_ROUNDS):
            word = self.words(every, at)
            differs = int(np.bitwise_or.reduce(word ^ word[0]))
            if differs:
                equal = (64 - differs.bit_length()) // 8
                return (at + equal, self.words(every, at + equal)) if equal else (at, word)
            at += 8
        return at, self.words(every, at)


def _ties(ordered: Words) -> tuple[Ints, Ints]:
    """Return the ascending places of sorted words that have equal neighbours, and the number of each place's group."""
    same: Bools = ordered[1:] == ordered[:-1]
    tied = np.zeros(len(ordered), bool)
    tied[1:] = same
    tied[:-1] |= same
    places = np.flatnonzero(tied)
    begins = np.ones(len(places), bool)
    begins[1:] = ordered[places[1:]] != ordered[places[:-1]]
    # A group begins at each new word: the running count numbers the groups.
    return places, np.cumsum(begins) - 1


def _by_arrow(texts: pa.Array) -> Ints:
    order: Ints = pc.sort_indices(texts).to_numpy().astype(np.int64)
    return order
