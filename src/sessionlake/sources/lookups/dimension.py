"""A version of a table that is looked up: its rows sorted by the hash of their keys, in memory or in a mapped file.

A version is made once, and read by many tasks: whatever costs time is done when it is made. Different keys never have one
hash in it, and the times of a key's rows never overlap, so that a search ends at one row.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.columnar.equality import INSTANT, key_of
from sessionlake.columnar.identity import record_ids
from sessionlake.columnar.keyed_hash import SECRET_BYTES, keyed_hashes
from sessionlake.columnar.keys import joint_key
from sessionlake.sources.lookups.overlaps import disjoint

KEY, FROM, UNTIL, HASH = "\0key", "\0from", "\0until", "\0hash"
"""Columns beside those that events get: the key as text, from when (inclusive) until when (exclusive) a row is valid, in
microseconds, and the hash of the key."""
EVER, FOREVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_SECRET = b"secret"
"""The metadata of a version with the secret of its hashes, in hexadecimal digits: drawn for each version, so that nobody can choose
keys of one hash."""
_SALT = b"salt"
"""The metadata of a version of a release whose hashes had no secret."""
_TYPES = b"types"
"""The metadata with the types of the key's columns; files from before rule 465 lack it."""
_TRIES = 4
_BATCH_ROWS = 1 << 20
_SAMPLE = 1 << 16


def with_key(rows: Mapping[str, pa.Array | pa.ChunkedArray], key: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Return columns as the rows of a version, with the KEY that columns make, whose types are kept.

    >>> with_key({"plan": pa.array(["pro"])}, [pa.array([7])])[KEY].to_pylist()
    ['7']
    """
    types = json.dumps([str(column.type) for column in key]).encode()
    return pa.table({**rows, KEY: key_of(key).cast(pa.string())}).replace_schema_metadata({_TYPES: types})


class BadVersionError(Exception):
    """A version must not be used; the text says why, and has no key."""


@dataclass(frozen=True)
class Dimension:
    """One version: rows sorted by HASH, then by FROM if they are valid for a time."""

    table: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, max_rows: int) -> "Dimension":
        """Sort the rows of a version; BadVersionError if two rows have one key, and the same FROM, or if there are too many.

        `rows` has KEY, the columns that events get, and, if rows are valid for a time, FROM, and UNTIL unless a row is valid
        until the key's next one begins; those two may be null. Rows without a key are left out.

        >>> users = Dimension.of(pa.table({KEY: ["ann", "bob"], "plan": ["pro", "free"]}), max_rows=10)
        >>> users.take(users.find(pa.array(["bob", "eve"])), {"users_plan": "plan"})["users_plan"].to_pylist()
        ['free', None]
        """
        rows = rows.filter(pc.is_valid(rows[KEY]))
        if rows.num_rows > max_rows:
            raise BadVersionError(f"has {rows.num_rows:,} rows, and max_rows is {max_rows:,}")
        timed, ends = (name in rows.column_names for name in (FROM, UNTIL))
        if timed:
            rows = _with_times(rows)
        for _ in range(_TRIES):
            ordered = _sorted(rows, secrets.token_bytes(SECRET_BYTES))
            new_key, new_hash = _begins(ordered[KEY]), _changes(ordered[HASH].to_numpy())
            if not (doubled := new_key & ~new_hash).any():
                break
        else:
            place = pc.index(rows[KEY], ordered[KEY][int(np.flatnonzero(doubled)[0])]).as_py() + 1
            raise BadVersionError(
                f"has keys whose hashes are equal under {_TRIES} secrets, one of them in row {place} of those with a key"
            )
        _refuse_twins(ordered, new_key)
        if not timed:
            return cls(ordered)
        return cls(_disjoint(ordered, new_key) if ends else _until_the_next(ordered, new_key))

    @property
    def is_timed(self) -> bool:
        """Whether rows are valid for a time."""
        return FROM in self.table.column_names

    @cached_property
    def _hashes(self) -> npt.NDArray[np.uint64]:
        return _numbers(self.table[HASH])

    @cached_property
    def _from(self) -> Ints:
        return _numbers(self.table[FROM])

    @cached_property
    def _until(self) -> Ints:
        return _numbers(self.table[UNTIL])

    @property
    def _metadata(self) -> Mapping[bytes, bytes]:
        return self.table.schema.metadata or {}

    def keys_of(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
        """Return the keys that rows with the values of these columns have, null of a null; a dictionary of texts stays one.

        A file of before rule 465 is asked by the texts of then: a batch that is run again finds what it has found.
        """
        flat = [combined(column) for column in columns]
        if _TYPES not in self._metadata:
            texts = [column if pa.types.is_dictionary(column.type) else column.cast(pa.string()) for column in flat]
            return joint_key([text.cast(pa.string()) for text in texts]) if len(texts) > 1 else texts[0]
        types = json.loads(self._metadata[_TYPES])
        return key_of([_as_compared(column, type_) for column, type_ in zip(flat, types, strict=True)])

    def _hashed(self, keys: pa.Array) -> npt.NDArray[np.uint64]:
        """Return the hashes of keys as the version has them."""
        about = self._metadata
        if _SECRET in about:
            return keyed_hashes(keys.cast(pa.binary()), bytes.fromhex(about[_SECRET].decode()))
        return record_ids(keys, np.full(len(keys), int(about[_SALT]))).view(np.uint64)

    def find(self, keys: pa.Array, time_us: Ints | None = None, no_time: Bools | None = None) -> Ints:
        """Return the row of each key, at each time if rows are valid for a time; -1 if there is none."""
        codes, distinct = _coded(keys)
        if not len(distinct) or not self.table.num_rows:
            return np.full(len(keys), -1)
        first, last = self._runs(distinct)
        if not self.is_timed:
            row = first
        else:
            assert time_us is not None  # noqa: S101 (a lookup of rows that are valid for a time names the event's)
            row = self._at(first[codes], last[codes], time_us)
            row[first[codes] < 0] = -1
            if no_time is not None:
                row[no_time] = -1
            return np.where(codes < 0, -1, row)
        return np.where(codes < 0, -1, row[codes])

    def take(self, rows: Ints, columns: Mapping[str, str]) -> dict[str, pa.Array]:
        """Return columns at rows, by their new names; null for a row of -1."""
        index = pa.array(rows, mask=rows < 0)
        return {name: combined(self.table[column].take(index)) for name, column in columns.items()}

    def write(self, sink: pa.NativeFile) -> None:
        """Write it as a file to be mapped."""
        with pa.ipc.new_file(sink, self.table.schema) as writer:
            for at in range(0, self.table.num_rows, _BATCH_ROWS):
                writer.write_table(self.table.slice(at, _BATCH_ROWS).combine_chunks(), max_chunksize=_BATCH_ROWS)

    def _runs(self, keys: pa.Array) -> tuple[Ints, Ints]:
        """Return each key's first row and the row after its last; -1 for keys without rows."""
        hashes = self._hashed(keys)
        # Sorted hashes are found four times faster: each search begins in memory that the last search has read.
        order = np.argsort(hashes)
        first, last = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        # A key's rows have an equal hash and lie together, from its first place to the place after its last.
        first[order] = np.searchsorted(self._hashes, hashes[order], "left")
        last[order] = np.searchsorted(self._hashes, hashes[order], "right") if self.is_timed else first[order] + 1
        at = np.minimum(first, self.table.num_rows - 1)
        same = self._hashes[at] == hashes
        some = np.flatnonzero(same)
        equal = pc.equal(combined(self.table[KEY].take(pa.array(at[some]))), keys.take(pa.array(some)))
        same[some] = equal.to_numpy(zero_copy_only=False)
        return np.where(same, first, -1), last

    def _at(self, first: Ints, last: Ints, time_us: Ints) -> Ints:
        """Return the row of each run [first, last) valid at a time; -1 if there is none."""
        low, high = (
            first.copy(),
            last.copy(),
        )  # the last row that begins at the time or before it lies in [low - 1, high - 1]
        while (open_ := np.flatnonzero(low < high)).size:
            middle = (low[open_] + high[open_]) // 2
            begun = self._from[np.maximum(middle, 0)] <= time_us[open_]
            low[open_[begun]] = middle[begun] + 1
            high[open_[~begun]] = middle[~begun]
        row = low - 1
        inside = (first >= 0) & (row >= first)
        inside[inside] = time_us[inside] < self._until[row[inside]]
        return np.where(inside, row, -1)


_mapped: dict[str, tuple[tuple[str, int], Dimension]] = {}
"""By folder the file that was mapped last, with its number on the disk, because it may be made again: a file that is mapped keeps its room on the disk after it was removed."""


def mapped(path: str) -> Dimension:
    """Return the version in a local file, mapped until another file of its folder is: a machine's processes share its memory."""
    folder = os.path.dirname(path)  # noqa: PTH120 (for each part of a task)
    known, file = _mapped.get(folder), (path, os.stat(path).st_ino)  # noqa: PTH116 (for each part of a task)
    if known is None or known[0] != file:
        with pa.memory_map(path) as source:
            known = _mapped[folder] = file, Dimension(pa.ipc.open_file(source).read_all())
    return known[1]


def _as_compared(values: pa.Array, with_type: str) -> pa.Array:
    """Return dates or times in the type of the column of the comparison: a date is its midnight, and no other time is a date."""
    if pa.types.is_date(values.type) and with_type.startswith("timestamp"):
        return values.cast(INSTANT)
    if pa.types.is_timestamp(values.type) and with_type.startswith("date"):
        dates = values.cast(pa.date32(), safe=False)
        return pc.if_else(pc.equal(dates.cast(INSTANT), values.cast(INSTANT)), dates, pa.scalar(None, pa.date32()))
    return values


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return combined(column).to_numpy()


def _coded(keys: pa.Array) -> tuple[Ints, pa.Array]:
    """Return a number for each key, -1 for null, and the key of each number; each key once if keys are repeated."""
    if not pa.types.is_dictionary(keys.type):
        some = keys.slice(0, _SAMPLE)
        if keys.null_count == 0 and len(some.unique()) > len(some) // 2:
            return np.arange(len(keys)), keys
        keys = keys.dictionary_encode()
    return pc.fill_null(keys.indices.cast(pa.int64()), -1).to_numpy(), keys.dictionary.cast(pa.string())


def _with_times(rows: pa.Table) -> pa.Table:
    """Return rows with FROM and UNTIL as numbers, without rows that are never valid."""
    valid_from = pc.fill_null(combined(rows[FROM]), EVER)
    until = combined(rows[UNTIL]) if UNTIL in rows.column_names else pa.nulls(rows.num_rows, pa.int64())
    until = pc.fill_null(until, FOREVER)
    others = rows.drop_columns([name for name in (FROM, UNTIL) if name in rows.column_names])
    rows = others.append_column(FROM, valid_from).append_column(UNTIL, until)
    return rows.filter(pc.less(rows[FROM], rows[UNTIL]))


def _sorted(rows: pa.Table, secret: bytes) -> pa.Table:
    hashes = keyed_hashes(combined(rows[KEY]).cast(pa.binary()), secret)
    # Look-ups search by hash, and within a key by time.
    order = np.lexsort((_numbers(rows[FROM]), hashes)) if FROM in rows.column_names else np.argsort(hashes)
    found = rows.append_column(HASH, pa.array(hashes)).take(pa.array(order)).combine_chunks()
    return found.replace_schema_metadata({**(rows.schema.metadata or {}), _SECRET: secret.hex().encode()})


def _begins(keys: pa.ChunkedArray) -> Bools:
    """Say for each row whether its key differs from the row before."""
    flat = combined(keys)
    new = np.ones(len(flat), bool)
    if len(flat) > 1:
        new[1:] = pc.not_equal(flat[1:], flat[:-1]).to_numpy(zero_copy_only=False)
    return new


def _changes(values: npt.NDArray[Any]) -> Bools:
    new = np.ones(len(values), bool)
    new[1:] = values[1:] != values[:-1]
    return new


def _refuse_twins(rows: pa.Table, new_key: Bools) -> None:
    new = new_key if FROM not in rows.column_names else new_key | _changes(_numbers(rows[FROM]))
    twins = int((~new).sum())
    if twins:
        told = "the key of another row" if FROM not in rows.column_names else "key and valid_from of another row"
        raise BadVersionError(f"has {twins:,} row{'' if twins == 1 else 's'} with {told}")


def _until_the_next(rows: pa.Table, new_key: Bools) -> pa.Table:
    """Return rows that each end when the key's next row begins."""
    until = np.full(rows.num_rows, FOREVER)
    until[:-1] = np.where(new_key[1:], FOREVER, _numbers(rows[FROM])[1:])
    return rows.set_column(rows.column_names.index(UNTIL), UNTIL, pa.array(until))


def _disjoint(rows: pa.Table, new_key: Bools) -> pa.Table:
    """Return rows with times such that at each time at most a single row of a key is valid."""
    row, begin, end = disjoint(_numbers(rows[FROM]), _numbers(rows[UNTIL]), new_key)
    disjoint_rows = rows.take(pa.array(row))
    for name, values in ((FROM, begin), (UNTIL, end)):
        disjoint_rows = disjoint_rows.set_column(disjoint_rows.column_names.index(name), name, pa.array(values))
    return disjoint_rows
