"""A shard's database read beside the process that has it open: one moment of it, which never moves.

Opening costs milliseconds, so that a later moment is another opening: new segments, or a directory that was removed and made
anew, need no care then. Nothing is written where the store lies. What is open stays readable, even where the store goes.
"""

import heapq
import os
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
from rocksdict import AccessType, Rdict

from sessionlake.columnar.arrays import combined, offsets_of
from sessionlake.errors import StoreError
from sessionlake.store.rocks import META, store_options

_SEGMENT = "s"
_NOT_DATA = ("LOG", "LOCK", "rocksdict-config.json")
_ATTEMPTS = 5

Items = Iterator[tuple[bytes, bytes]]


class ReadSegments(Protocol):
    """Segments of one moment, to be read by any number of threads."""

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment, None also where there is no such segment."""

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys, as they are asked for; low and high are inclusive."""


class NoSegments:
    """What a shard has that no batch has touched."""

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
    """A store as it is now. FileNotFoundError where there is none, StoreError where it can't be read."""

    def __init__(self, path: Path) -> None:
        error: Exception | None = None
        for _ in range(_ATTEMPTS):
            if not (path / "CURRENT").exists():
                raise FileNotFoundError(path)
            try:
                self._open(path)
            except Exception as found:  # noqa: BLE001 (RocksDB's own have no type; a file may have gone meanwhile)
                error = found
            else:
                return
        raise StoreError(f"store: {str(path)!r} can't be read ({error}); mend that, or remove it") from error

    def _open(self, path: Path) -> None:
        # RocksDB writes a log even where it only reads, and rocksdict its settings; both must not lie in the store, whose
        # removal they would disturb. Once it is open it has all files it needs open, and no need for their names.
        with tempfile.TemporaryDirectory(prefix="sessionlake-read-") as own:
            for file in path.iterdir():
                if not file.name.startswith(_NOT_DATA):
                    Path(own, file.name).symlink_to(file)
            names = Rdict.list_cf(own)
            options = store_options()
            options.create_if_missing(create_if_missing=False)
            options.create_missing_column_families(create_missing_cfs=False)
            self._db = Rdict(
                own,
                options=options,
                column_families=dict.fromkeys(names, options),
                access_type=AccessType.read_only(),
            )
            self._families = {
                int(name.removeprefix(_SEGMENT)): self._db.get_column_family(name) for name in names if name != META
            }
            self._segments = sorted(self._families)

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._segments

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return cast(bytes | None, self._db.get(name.encode()))

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        family = self._families.get(segment)
        if family is None:
            return [None] * len(keys)
        if len(keys) == 1:
            # A third less than of a list of one.
            return [cast(bytes | None, family.get(keys[0]))]
        return cast(list[bytes | None], family.get(cast(list[str | int | float | bytes | bool], keys)))

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Items:
        """Yield keys and values of a segment, in the order of keys."""
        if segment not in self._families:
            return
        entries = self._families[segment].iter()
        first, last = (high, low) if backward else (low, high)
        if first is None:
            (entries.seek_to_last if backward else entries.seek_to_first)()
        else:
            (entries.seek_for_prev if backward else entries.seek)(first)
        onward = entries.prev if backward else entries.next
        while entries.valid():
            key = cast(bytes, entries.key())
            if last is not None and (key < last if backward else key > last):
                return
            yield key, cast(bytes, entries.value())
            onward()
        entries.status()  # raises where reading ended before the last key


class OverlaidSegments:
    """Segments as they will be once writes of a batch are applied: `store.segmented.WRITE_SCHEMA`, by segment and key."""

    def __init__(self, base: ReadSegments, writes: pa.Table) -> None:
        self._base = base
        # A key is looked for by bisection: to make Python's objects of Arrow's values costs several times a slice of their bytes.
        offsets, names = offsets_of(combined(writes["key"]))
        self._ends, self._names = offsets.data, names.data
        self._values = combined(writes["value"])
        numbers, first = np.unique(writes["segment"].to_numpy(), return_index=True)
        ends = [*first.tolist(), writes.num_rows][1:]  # none where a batch writes nothing to the store
        self._rows = {n: range(a, b) for n, a, b in zip(numbers.tolist(), first.tolist(), ends, strict=True)}
        self._segments = sorted({*base.segments, *self._rows})

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._segments

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        found = self._base.get(segment, keys)
        rows = self._rows.get(segment, range(0))
        for place, key in enumerate(keys):
            at = bisect_left(rows, key, key=self._key)
            if at < len(rows) and self._key(rows[at]) == key:
                found[place] = self._values[rows[at]].as_py()
        return found

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
        # Of a key that is in both, what is written comes first: of equal ones `merge` takes the first argument's.
        for key, value in heapq.merge(written, stored, key=itemgetter(0), reverse=backward):
            if key != before and value is not None:
                yield key, value
            before = key

    def _key(self, row: int) -> bytes:
        return self._names[self._ends[row] : self._ends[row + 1]].tobytes()


def identity(path: Path | str) -> tuple[int, int] | None:
    """Return what tells a store from one that was made in its place; None where there is none.

    It is the file that RocksDB writes when a store is made, and never again: another one in its place has another number, or was made later.
    """
    with suppress(OSError):
        found = os.stat(f"{path}/IDENTITY")  # noqa: PTH116 (asked for each look-up)
        return found.st_ino, found.st_ctime_ns
    return None
