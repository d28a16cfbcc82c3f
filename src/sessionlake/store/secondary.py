"""A read-only view of a shard's database while another process has it open. The view never changes.

A newer view is another opening, which costs milliseconds. So new segments, or a directory that was removed and recreated, need
no special care. Nothing is written to the store's directory. An open view stays readable, even if the store is removed.
"""

import heapq
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import combined, offsets_of
from sessionlake.errors import StoreError
from sessionlake.store.api import IDS_FROM, as_array
from sessionlake.store.directory import CURRENT, IDENTITY
from sessionlake.store.files import State
from sessionlake.store.levels import Levels
from sessionlake.store.runs import DamagedError

_ATTEMPTS = 5

Items = Iterator[tuple[bytes, bytes]]


class ReadSegments(Protocol):
    """A moment's segments, readable by any number of threads."""

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment, None also if there is no such segment."""

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys, as they are asked for; low and high are inclusive."""


class StoreView(ReadSegments, Protocol):
    """A store at a moment."""

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""


class NoSegments:
    """The empty view of a shard that no batch has touched."""

    @property
    def segments(self) -> list[int]:
        """Return none."""
        return []

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return None for each key."""
        del segment
        return [None] * len(keys)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield nothing."""
        del segment, low, high, backward
        return iter(())


class SecondarySegments:
    """A store as it is now. FileNotFoundError if there is none, StoreError if it can't be read."""

    def __init__(self, path: Path) -> None:
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            if not (path / CURRENT).exists():
                raise FileNotFoundError(path)
            try:
                self._state = State.read(path)
            except (DamagedError, OSError) as found:  # a file may have gone meanwhile
                error = found
            else:
                self._segments = sorted(number for number in self._state.segments if number < IDS_FROM)
                return
        raise StoreError(f"store: {str(path)!r} can't be read ({error}); mend that, or remove it") from error

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._segments

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._state.meta.get(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        levels = self._state.segments.get(segment, Levels())
        if len(keys) == 1:  # an array would take longer than the look-up
            return [levels.get(keys[0])]
        values: list[bytes | None] = levels.find(as_array(keys)).to_pylist()
        return values

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys."""
        for rows in self._state.segments.get(segment, Levels()).items(low, high, None, backward=backward):
            found = zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True)
            yield from reversed([*found]) if backward else found


class OverlaidSegments:
    """Segments as they will be once writes of a batch are applied: `store.segmented.WRITE_SCHEMA`, by segment and key."""

    def __init__(self, base: ReadSegments, writes: pa.Table) -> None:
        self._base = base
        # A key is found by bisection: making Python objects of Arrow's values costs several times a slice of their bytes.
        writes = writes.slice(0, int(np.searchsorted(writes["segment"].to_numpy(), IDS_FROM)))
        offsets, names = offsets_of(combined(writes["key"]))
        self._ends, self._names = offsets.data, names.data
        self._values = combined(writes["value"])
        numbers, first = np.unique(writes["segment"].to_numpy(), return_index=True)
        ends = [*first.tolist(), writes.num_rows][1:]  # none if a batch writes nothing to the store
        self._rows = {n: range(a, b) for n, a, b in zip(numbers.tolist(), first.tolist(), ends, strict=True)}
        self._segments = sorted({*base.segments, *self._rows})

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._segments

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        values = self._base.get(segment, keys)
        rows = self._rows.get(segment, range(0))
        for place, key in enumerate(keys):
            at = bisect_left(rows, key, key=self._key)
            if at < len(rows) and self._key(rows[at]) == key:
                values[place] = self._values[rows[at]].as_py()
        return values

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys."""
        rows = self._rows.get(segment, range(0))
        first = 0 if low is None else bisect_left(rows, low, key=self._key)
        last = len(rows) if high is None else bisect_right(rows, high, key=self._key)
        found = rows[first : max(first, last)]
        written = ((self._key(row), self._values[row].as_py()) for row in (found[::-1] if backward else found))
        stored = self._base.items(segment, low, high, backward=backward)
        before = None
        # If a key is in both, the written value comes first: `merge` yields equal entries of the first argument first.
        for key, value in heapq.merge(written, stored, key=itemgetter(0), reverse=backward):
            if key != before and value is not None:
                yield key, value
            before = key

    def _key(self, row: int) -> bytes:
        return self._names[self._ends[row] : self._ends[row + 1]].tobytes()


def identity(path: Path | str) -> tuple[int, int] | None:
    """Return a value that changes if the store is recreated at the same path; None if there is no store.

    It identifies the file that is written only when a store is made. A recreated store's file has another inode number or
    a later time.
    """
    with suppress(OSError):
        status = os.stat(f"{path}/{IDENTITY}")  # noqa: PTH116 (asked for each look-up)
        return status.st_ino, status.st_ctime_ns
    return None
