"""Runs: files of keys and values, sorted by key, that are written once, mapped to be read, and never changed.

A run has each key once. A null value says that the key is deleted, whatever older runs have. Beside the rows, which lie by key, a
run has a hash table: of all hashes with the same first bits where they begin and which next bits they have, and in the order of the
hashes 32 bits of each and the row. So keys are looked up by their hashes, most of those that the run lacks at one place, and a range of
keys by a search of the keys themselves. Every page of a file has a checksum, which is compared before the page's bytes are used.

All numbers are little endian: a head (HEAD), then parts that begin at multiples of 8 bytes, in the order of `_Parts`, then the
checksum of each page of all that.
"""

import os
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest, xxh64_intdigest

from sessionlake.columnar.arrays import Ints, offsets_of, within_group
from sessionlake.columnar.identity import Hashes, hash_bytes
from sessionlake.columnar.texts import text_order
from sessionlake.store.disk_space import require_readable

_MAGIC = int.from_bytes(b"slake-r2", "little")
HEAD = np.dtype([(name, "<u8") for name in ("magic", "seed", "rows", "key_bytes", "value_bytes")])
_PAGE = 1 << 15
"""Bytes of a page; each has a checksum."""
_ALIGN = 8
_KEYS_A_PAGE = 2
"""If so many keys are looked up for each page, all pages are verified at once: they are needed soon."""


class DamagedError(Exception):
    """A file is not as it was written."""


@dataclass(frozen=True)
class Rows:
    """Keys, distinct and ascending, and their values; null for a deleted key. Both are bytes."""

    keys: pa.Array
    values: pa.Array

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> "Rows":
        """Return the rows [start, stop), without a copy."""
        return Rows(self.keys.slice(start, stop - start), self.values.slice(start, stop - start))


class _Parts(NamedTuple):
    """The parts of a file, as slices of its bytes."""

    table: slice
    """Of all hashes with the same first bits (`_bits`) the place of the first, and a flag for the next bits of each (`_flags`); at the end
    the number of all hashes."""
    hashes: slice
    """Of each the 32 bits after the first ones (`_rest`), in the order of the hashes."""
    places: slice
    """The row of each hash."""
    key_ends: slice
    """The end of each key in `keys`, after a 0."""
    value_ends: slice
    bits: slice
    """Of each row a bit, the lowest first: 0 if the key is deleted."""
    keys: slice
    values: slice


_CROWD = 16
"""If more hashes have the same first bits, a key is not looked for by its hash. Whoever sends events can make such keys without the seed.

XXH64 adds and turns words: a change of a word's first bit is undone by a change of the next stripe's word, by one of two for each
seed. So of 3^k keys of 64 k bytes 2^k have one hash, whatever the seed is: 59,049 keys of 640 bytes were compared 10 million times.
"""
_PLACE = (1 << 32) - 1
"""The bits of a place in an entry of the table; the others are flags."""


def _parts(rows: int, key_bytes: int, value_bytes: int) -> _Parts:
    found, at = list[slice](), HEAD.itemsize
    ends = 4 * (rows + 1)
    table = 8 * ((1 << _bits(rows)) + 1)
    for size in (table, 4 * rows, 4 * rows, ends, ends, -(-rows // 8), key_bytes, value_bytes):
        at = -(-at // _ALIGN) * _ALIGN
        found.append(slice(at, at + size))
        at += size
    return _Parts(*found)


def _bits(rows: int) -> int:
    """Return the number of first hash bits by which rows are found: on average, one or two rows share them."""
    return max(rows.bit_length() - 1, 1)


def _first_bits(hashes: Hashes, rows: int) -> Ints:
    return (hashes >> np.uint64(64 - _bits(rows))).astype(np.int64)


def _rest(hashes: Hashes, rows: int) -> npt.NDArray[np.uint32]:
    return (hashes >> np.uint64(32 - _bits(rows))).astype("<u4")


def _flags(hashes: Hashes, rows: int) -> Hashes:
    """Return a flag of 32 for the five bits of each hash after the first bits."""
    return np.uint64(1 << 32) << ((hashes >> np.uint64(59 - _bits(rows))) & np.uint64(31))


def _table(hashes: Hashes) -> Hashes:
    """Return the table of ascending hashes."""
    rows = len(hashes)
    first = _first_bits(hashes, rows)
    # For each value of the first bits the first row that has it or more.
    table = np.searchsorted(first, np.arange((1 << _bits(rows)) + 1)).astype("<u8")
    begins = np.flatnonzero(np.diff(first, prepend=-1))
    # A value's rows are adjacent: their flags go to the entry of their first bits.
    table[first[begins]] |= np.bitwise_or.reduceat(_flags(hashes, rows), begins)
    return table


def write_run(path: Path, rows: Rows, seed: int) -> None:
    """Write a run of at least one row; keys are hashed with a seed that nobody can guess. FileExistsError if the file exists.

    With a known seed many more keys could be made that have equal hashes (_CROWD), and such keys take longer to find.
    """
    hashes = hash_bytes(rows.keys, seed)
    # Rows are found by hash; equal hashes are searched through, in any order.
    place = np.argsort(hashes)
    hashes = hashes[place]
    key_ends, keys = _compact(rows.keys)
    value_ends, values = _compact(rows.values)
    live = rows.values.is_valid().to_numpy(zero_copy_only=False)
    content = (
        _table(hashes),
        _rest(hashes, len(rows)),
        place.astype("<u4"),
        key_ends.astype("<i4"),
        value_ends.astype("<i4"),
        np.packbits(live, bitorder="little"),
        keys,
        values,
    )
    parts = _parts(len(rows), len(keys), len(values))
    data = np.zeros(parts.values.stop, np.uint8)
    data[: HEAD.itemsize] = np.array([(_MAGIC, seed, len(rows), len(keys), len(values))], HEAD).view(np.uint8)
    for part, array in zip(parts, content, strict=True):
        data[part] = np.ascontiguousarray(array).view(np.uint8)
    sums = np.array([_checksum(data[at : at + _PAGE]) for at in range(0, len(data), _PAGE)], "<u8")
    with path.open("xb", buffering=0) as file:
        for some in (data, sums.view(np.uint8)):
            left = some.data
            while left:
                left = left[file.write(left) :]


def _compact(texts: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the ends of byte strings, after a 0, and their bytes alone."""
    offsets, data = offsets_of(texts)
    return offsets - offsets[0], np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


class Run:
    """An open run, readable by any number of threads. It stays readable if its file is removed.

    Every call raises DamagedError if bytes that it needs are not as they were written, and OSError if the disk can't give them.
    """

    def __init__(self, path: Path) -> None:
        """FileNotFoundError if there is no file."""
        self._path = path
        status = path.stat()
        size = status.st_size
        self.mark = _mark_of(status)
        if size < HEAD.itemsize:
            raise self._damaged("it is too short")
        # Arrow's mapping lasts as long as the buffer, without a file that stays open, of which a process may have few.
        with pa.memory_map(str(path)) as file:
            self._bytes = np.frombuffer(file.read_buffer(size), np.uint8)
        if len(self._bytes) != size:
            raise self._damaged("it got shorter")
        self._require_readable(0, HEAD.itemsize)
        head = self._bytes[: HEAD.itemsize].view(HEAD)[0]
        magic, self.seed, self.rows, key_bytes, value_bytes = (int(number) for number in head)
        if magic != _MAGIC or not self.rows or max(self.rows, key_bytes, value_bytes) > size:
            raise self._damaged("its head is another one")
        parts = _parts(self.rows, key_bytes, value_bytes)
        pages = -(-parts.values.stop // _PAGE)
        if size != parts.values.stop + 8 * pages:
            raise self._damaged(f"it has {size} bytes")
        self._parts = parts
        self._require_readable(parts.values.stop, size)
        self._sums = np.frombuffer(self._bytes[parts.values.stop :].tobytes(), "<u8")
        self._unchecked = np.ones(pages, bool)
        self._left = pages
        """How many pages are unchecked, at least."""
        self._verify_all(slice(0, HEAD.itemsize))
        self._table, self._places = self._view(parts.table, "<u8"), self._view(parts.places, "<u4")
        self._hashes = self._view(parts.hashes, "<u4")
        self._key_ends, self._value_ends = self._view(parts.key_ends, "<i4"), self._view(parts.value_ends, "<i4")

    @cached_property
    def digest(self) -> str:
        """The digest of the pages' checksums, and so of all that the file has."""
        return xxh3_128_hexdigest(self._sums.data)

    def is_file(self, path: Path) -> bool:
        """Say whether a file is the opened file, unchanged."""
        return _mark_of(path.stat()) == self.mark

    @cached_property
    def _keys(self) -> pa.Array:
        return self._array(self._parts.keys, self._parts.key_ends, None)

    @cached_property
    def _values(self) -> pa.Array:
        return self._array(self._parts.values, self._parts.value_ends, self._parts.bits)

    def _view(self, part: slice, type_: str) -> npt.NDArray[Any]:
        return self._bytes[part].view(type_)

    def _array(self, content: slice, ends: slice, bits: slice | None) -> pa.Array:
        buffers = [None if part is None else pa.py_buffer(self._bytes[part]) for part in (bits, ends, content)]
        return pa.Array.from_buffers(pa.binary(), self.rows, buffers, 0 if bits is None else -1)

    def row_of(self, key: bytes) -> int:
        """Return a key's row; -1 if there is none. A tenth of the time of `find`."""
        hashed, parts, shift = xxh64_intdigest(key, self.seed), self._parts, 64 - _bits(self.rows)
        bits = hashed >> shift
        at = parts.table.start + 8 * bits
        self._verify_all(slice(at, at + 16))
        entry = int(self._table[bits])
        if not entry >> 32 >> (hashed >> shift - 5 & 31) & 1:
            return -1
        first, stop = entry & _PLACE, int(self._table[bits + 1]) & _PLACE
        self._verify_all(slice(parts.hashes.start + 4 * first, parts.hashes.start + 4 * stop))
        if stop - first > _CROWD:
            return self._row_in_order(key)
        rest = hashed >> (32 - _bits(self.rows)) & _PLACE
        for place in range(bisect_left(self._hashes, rest, first, stop), stop):
            if self._hashes[place] != rest:
                break
            at = parts.places.start + 4 * place
            self._verify_all(slice(at, at + 4))
            row = int(self._places[place])
            if self.key(row) == key:
                return row
        return -1

    def value(self, row: int) -> bytes | None:
        """Return the value of a row."""
        found: bytes | None = self.between(row, row + 1).values[0].as_py()
        return found

    def find(self, keys: pa.Array, hashes: Hashes, asked: Ints) -> tuple[Ints, Ints]:
        """Return the indices, among some, of distinct keys that the run has, ascending as given, and each key's row.

        `hashes` are all keys' hashes.
        """
        if self._left and len(asked) >= _KEYS_A_PAGE * len(self._unchecked):
            self._verify_pages(np.flatnonzero(self._unchecked))
        parts, wanted = self._parts, hashes[asked]
        bits = _first_bits(wanted, self.rows)
        if self._left:
            self._verify(parts.table.start + 8 * bits)
            self._verify(parts.table.start + 8 * (bits + 1))
        # Most keys that the run lacks have no flag.
        entries = self._table[bits]
        flagged = np.flatnonzero(entries & _flags(wanted, self.rows))
        wanted, asked, entries, bits = wanted[flagged], asked[flagged], entries[flagged], bits[flagged]
        first = (entries & np.uint64(_PLACE)).astype(np.int64)
        # One or two hashes have the same first bits.
        many = (self._table[bits + 1] & np.uint64(_PLACE)).astype(np.int64) - first
        crowded = many > _CROWD
        many[crowded] = 0
        if self._left:
            self._verify_each(parts.hashes.start + 4 * first, parts.hashes.start + 4 * (first + many))
        of = np.repeat(np.arange(len(asked)), many)
        at = first[of] + within_group(many)
        same = np.flatnonzero(self._hashes[at] == _rest(wanted, self.rows)[of])
        of, at = of[same], at[same]
        if len(twice := of[1:][of[1:] == of[:-1]]):
            crowded[twice] = True
            alone = ~crowded[of]
            of, at = of[alone], at[alone]
        if self._left:
            self._verify(parts.places.start + 4 * at)
        rows, which = self._places[at].astype(np.int64), asked[of]
        # Another key may have these bits, too.
        equal = pc.equal(self._taken(self._keys, rows), keys.take(pa.array(which))).to_numpy(zero_copy_only=False)
        which, rows = which[equal], rows[equal]
        return (which, rows) if not crowded.any() else self._with_crowded(which, rows, keys, asked[crowded])

    def _with_crowded(self, which: Ints, rows: Ints, keys: pa.Array, crowded: Ints) -> tuple[Ints, Ints]:
        """Return found keys and their rows, as `find` does, together with `crowded` keys, which are searched in key order."""
        found = self._rows_in_order(keys.take(pa.array(crowded)))
        which, rows = np.concatenate([which, crowded[found >= 0]]), np.concatenate([rows, found[found >= 0]])
        # Each key is found once, so no two are equal.
        order = np.argsort(which)
        return which[order], rows[order]

    def _rows_in_order(self, keys: pa.Array) -> Ints:
        """Return the row of each key by its place among the others; -1 if there is none."""
        low, high = np.zeros(len(keys), np.int64), np.full(len(keys), self.rows)
        while len(left := np.flatnonzero(low < high)):
            middle = (low[left] + high[left]) // 2
            less = pc.less(self._taken(self._keys, middle), keys.take(pa.array(left))).to_numpy(zero_copy_only=False)
            low[left[less]], high[left[~less]] = middle[less] + 1, middle[~less]
        there = np.flatnonzero(low < self.rows)
        found = pc.equal(self._taken(self._keys, low[there]), keys.take(pa.array(there)))
        there = there[found.to_numpy(zero_copy_only=False)]
        rows = np.full(len(keys), -1)
        rows[there] = low[there]
        return rows

    def _row_in_order(self, key: bytes) -> int:
        """Return the row of a key by its place among the others; -1 if there is none."""
        row = self.place(key)
        return row if row < self.rows and self.key(row) == key else -1

    def values(self, rows: Ints) -> pa.Array:
        """Return the values of rows, in any order."""
        if self._left:
            self._verify(self._parts.bits.start + rows // 8)
        return self._taken(self._values, rows)

    def _taken(self, array: pa.Array, rows: Ints) -> pa.Array:
        is_key = array is self._keys
        part, ends, at = (
            (self._parts.keys, self._key_ends, self._parts.key_ends)
            if is_key
            else (self._parts.values, self._value_ends, self._parts.value_ends)
        )
        if self._left:
            self._verify(np.concatenate([at.start + 4 * rows, at.start + 4 * (rows + 1)]))
            low, high = part.start + ends[rows].astype(np.int64), part.start + ends[rows + 1].astype(np.int64)
            self._verify_each(low, high)
        return array.take(pa.array(rows))

    def key(self, row: int) -> bytes:
        """Return the key of a row."""
        at = self._parts.key_ends.start + 4 * row
        self._verify_all(slice(at, at + 8))
        low, high = (self._parts.keys.start + int(end) for end in self._key_ends[row : row + 2])
        self._verify_all(slice(low, high))
        return self._bytes[low:high].tobytes()

    def place(self, key: bytes, start: int = 0) -> int:
        """Return the first row from `start` on whose key is not less than a key; the number of rows if there is none."""
        low, high = start, self.rows
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def reach(self, start: int, stop: int, bytes_: int) -> tuple[int, bool]:
        """Return the end of the first rows with at most `bytes_` of keys and values together, but at least one row.

        Also say whether this row has more.
        """
        ends = self._ends(start, stop)
        # `ends` are running bytes: the last row that ends within the bound.
        within = int(np.searchsorted(ends, ends[0] + bytes_, "right")) - 1
        return start + max(within, 1), within == 0

    def reach_back(self, start: int, stop: int, bytes_: int) -> tuple[int, bool]:
        """Return the first of the last rows, as `reach` returns the end of the first rows."""
        ends = self._ends(start, stop)
        # The first row from which to the end the bytes are within the bound.
        first = start + int(np.searchsorted(ends, ends[-1] - bytes_))
        return min(first, stop - 1), first == stop

    def _ends(self, start: int, stop: int) -> Ints:
        """Return where rows end, in bytes of keys and values together, after the end of the row before them."""
        for at in (self._parts.key_ends.start, self._parts.value_ends.start):
            self._verify_all(slice(at + 4 * start, at + 4 * (stop + 1)))
        return np.add(self._key_ends[start : stop + 1], self._value_ends[start : stop + 1], dtype=np.int64)

    def between(self, start: int, stop: int) -> Rows:
        """Return the rows [start, stop), without a copy."""
        if start < stop:
            parts = self._parts
            for at in (parts.key_ends.start, parts.value_ends.start):
                self._verify_all(slice(at + 4 * start, at + 4 * (stop + 1)))
            self._verify_all(slice(parts.bits.start + start // 8, parts.bits.start + -(-stop // 8)))
            for part, ends in ((parts.keys, self._key_ends), (parts.values, self._value_ends)):
                self._verify_all(slice(part.start + int(ends[start]), part.start + int(ends[stop])))
        return Rows(self._keys, self._values).slice(start, stop)

    def _verify(self, at: Ints) -> None:
        """Compare the checksums of the pages that some bytes are in."""
        touched = np.zeros(len(self._unchecked), bool)
        touched[at // _PAGE] = True
        self._verify_pages(np.flatnonzero(touched & self._unchecked))

    def _verify_each(self, low: Ints, high: Ints) -> None:
        """Compare the checksums of the pages that some stretches [low, high) lie in."""
        some = low < high
        self._verify(low[some])
        self._verify(high[some] - 1)
        for long in np.flatnonzero(high - low > _PAGE).tolist():
            self._verify_all(slice(int(low[long]), int(high[long])))

    def _verify_all(self, part: slice) -> None:
        """Compare the checksums of the pages that a part lies in."""
        if not self._left:
            return
        first, last = part.start // _PAGE, -(-part.stop // _PAGE)
        if last - first == 1 and not self._unchecked[first]:
            return
        self._verify_pages(np.flatnonzero(self._unchecked[first:last]) + first)

    def _verify_pages(self, pages: Ints) -> None:
        if not len(pages):
            return
        for some in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if len(pages) > 1 else (pages,):
            self._require_readable(int(some[0]) * _PAGE, min((int(some[-1]) + 1) * _PAGE, self._parts.values.stop))
        for page in pages.tolist():
            end = min((page + 1) * _PAGE, self._parts.values.stop)
            if _checksum(self._bytes[page * _PAGE : end]) != self._sums[page]:
                raise self._damaged(f"page {page} is not as it was written")
            self._unchecked[page] = False
        # Never too few, whatever other threads do meanwhile.
        self._left = int(np.count_nonzero(self._unchecked))

    def _require_readable(self, low: int, high: int) -> None:
        try:
            require_readable(self._bytes[low:high], self._path)
        except OSError:
            if self._path.exists() and self._path.stat().st_size < len(self._bytes):
                raise self._damaged("it got shorter") from None
            raise

    def _damaged(self, what: str) -> DamagedError:
        return DamagedError(f"{self._path}: {what}")


def _checksum(page: npt.NDArray[np.uint8]) -> int:
    return xxh3_64_intdigest(page.data)


def _mark_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def in_order(keys: pa.Array, values: pa.Array) -> Rows:
    """Return rows in the order of their keys; the last row of equal keys."""
    if len(keys) < 2 or pc.all(pc.less(keys[:-1], keys[1:])).as_py():
        return Rows(keys, values)
    order = text_order(keys)
    ordered = keys.take(pa.array(order))
    begins = np.ones(len(order), bool)
    begins[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    if not begins.all():
        # Of rows with equal keys, which are adjacent, keep the last given.
        order = np.maximum.reduceat(order, np.flatnonzero(begins))
        ordered = keys.take(pa.array(order))
    return Rows(ordered, values.take(pa.array(order)))
