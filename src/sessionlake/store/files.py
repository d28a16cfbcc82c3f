"""One shard's database: segments of keys and values in files that never change, and one file that says which count.

A batch of writes to several segments, and the commit's id among the metadata, is applied whole or not at all: runs are written
first, and hold once the new `CURRENT` has the name of the old one. Files that it does not name are removed.
"""

import json
import os
import secrets
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import offsets_of
from sessionlake.errors import CorruptionError, DiskFullError, StoreError
from sessionlake.store.api import SegmentWrites, as_array
from sessionlake.store.directory import CURRENT, IDENTITY, RUN, empty, hold
from sessionlake.store.disk_space import free_bytes, is_no_space
from sessionlake.store.levels import Level, Levels, Part
from sessionlake.store.runs import DamagedError, Rows, Run, in_order, write_run

_RUN_BYTES = 256 << 20
"""A level is written in runs of about this size at most."""
_MOST_WARM = 16
_warm: dict[Path, dict[int, Run]] = {}
"""The runs of the stores that this process has closed last: whoever opens one again need not map and verify what it has read already."""


class Manifest(NamedTuple):
    """The content of `CURRENT`."""

    segments: dict[int, list[tuple[int, int, list[tuple[int, int]]]]]
    """Of each segment the levels: tier, levels that are merged into it, and of each part the file and the first row."""
    meta: dict[str, bytes]
    following: int
    """The number of the next file; greater than all that were used."""

    def to_bytes(self) -> bytes:
        """Return the file's content: a checksum, and JSON."""
        # Latin-1 has a letter for each byte.
        meta = {name: value.decode("latin-1") for name, value in self.meta.items()}
        body = json.dumps([list(self.segments.items()), meta, self.following]).encode()
        return b"%08x %s" % (zlib.crc32(body), body)

    @classmethod
    def of(cls, content: bytes) -> "Manifest":
        """Return what `to_bytes` was of; DamagedError if the content is another one."""
        told, _, body = content.partition(b" ")
        if told != b"%08x" % zlib.crc32(body):
            raise DamagedError(f"{CURRENT} is not as it was written")
        segments, meta, following = json.loads(body)
        return cls(
            {
                number: [(tier, merges, [tuple(part) for part in parts]) for tier, merges, parts in levels]
                for number, levels in segments
            },
            {name: value.encode("latin-1") for name, value in meta.items()},
            following,
        )


@dataclass
class State:
    """The segments of one moment, and their open runs."""

    segments: dict[int, Levels] = field(default_factory=dict)
    meta: dict[str, bytes] = field(default_factory=dict)
    following: int = 0

    @classmethod
    def read(cls, path: Path, opened: Mapping[int, Run] = MappingProxyType({})) -> "State":
        """Open what `CURRENT` names, but for runs that are open already; FileNotFoundError if there is no such file, or no longer."""
        told = Manifest.of((path / CURRENT).read_bytes())

        def part(file: int, start: int) -> Part:
            run, at = opened.get(file), path / run_name(file)
            if run is None or not run.is_file(at):
                run = Run(at)
            if start >= run.rows:
                raise DamagedError(f"{CURRENT} names a row that {run_name(file)!r} lacks")
            return Part(file, run, start)

        segments = {
            number: Levels(
                tuple(Level(tier, tuple(part(*one) for one in parts), merges) for tier, merges, parts in levels)
            )
            for number, levels in told.segments.items()
        }
        return cls(segments, told.meta, told.following)

    def manifest(self) -> Manifest:
        """Return what is to be written of this state."""
        segments = {
            number: [
                (level.tier, level.merges, [(part.file, part.start) for part in level.parts]) for level in of.levels
            ]
            for number, of in self.segments.items()
        }
        return Manifest(segments, self.meta, self.following)

    @property
    def files(self) -> set[int]:
        """The numbers of the files that count."""
        return {part.file for levels in self.segments.values() for part in levels.parts}


class FileSegments:
    """A database of segments, named by number, and a few metadata entries.

    Every call raises CorruptionError if bytes turn out to be damaged (LayoutError if they are of another format),
    and StoreError if another process holds the database, the directory holds something else or can't be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unlock: weakref.finalize[[int], FileSegments] | None = None
        self._state = State()
        with translated(self.path):
            self._unlock = weakref.finalize(self, os.close, hold(self.path))
            try:
                self._begin()
            except BaseException:
                self._release()
                raise

    def _begin(self) -> None:
        """Read the store, or make an empty one."""
        is_made = (self.path / IDENTITY).exists()
        if is_made or (self.path / CURRENT).exists():
            self._state = State.read(self.path, _warm.pop(self.path, {}))
        else:
            self._commit(State())
        if not is_made:
            # Last: with an identity and without `CURRENT` a store is damaged.
            (self.path / IDENTITY).write_text(secrets.token_hex(16))
        self._sweep()

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""
        return sorted(self._state.segments)

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._state.meta.get(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment."""
        found: list[bytes | None] = self.find(segment, as_array(keys)).to_pylist()
        return found

    def find(self, segment: int, keys: pa.Array) -> pa.Array:
        """Return the values of distinct keys in a live segment, both bytes, null if there is none."""
        with translated(self.path):
            return self._state.segments[segment].find(keys)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return what `page` does, as objects."""
        keys, values = self.page(segment, low, high, limit)
        return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))

    def page(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> tuple[pa.Array, pa.Array]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""
        with translated(self.path):
            found = list(self._state.segments[segment].items(low, high, limit))
            keys, values = (
                pa.chunked_array([getattr(rows, name) for rows in found], pa.binary()) for name in ("keys", "values")
            )
            return keys.combine_chunks(), values.combine_chunks()

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Write values (null deletes) and metadata atomically; a segment that is not there is made first."""
        with translated(self.path):
            state = State(dict(self._state.segments), {**self._state.meta, **meta}, self._state.following)
            try:
                self._add(state, writes)
            except Exception:
                # A full disk needs the room.
                self._remove(range(self._state.following, state.following))
                raise
            self._commit(state)

    def _add(self, state: State, writes: SegmentWrites) -> None:
        """Write the runs of a state that has some more writes."""

        def written(rows: Rows, seed: int) -> Part:
            file, state.following = state.following, state.following + 1
            write_run(self.path / run_name(file), rows, seed)
            return Part(file, Run(self.path / run_name(file)))

        for segment, (keys, values) in writes.items():
            levels = state.segments.get(segment, Levels())
            if len(keys):
                write = partial(written, seed=levels.seed)
                some = _of_bounded_size(in_order(as_array(keys), as_array(values)))
                levels = levels.added([write(rows) for rows in some]).merged(len(keys), write)
            state.segments[segment] = levels

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`, whatever they hold."""
        self.drop([number for number in self._state.segments if number < segment])

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments, whatever they hold."""
        gone = set(segments)
        if gone:
            with translated(self.path):
                kept = {number: levels for number, levels in self._state.segments.items() if number not in gone}
                self._commit(State(kept, self._state.meta, self._state.following))

    def _commit(self, state: State) -> None:
        old = self._state.files.union(range(self._state.following, state.following)) - state.files
        temporary = self.path / f"{CURRENT}.tmp"
        temporary.write_bytes(state.manifest().to_bytes())
        temporary.replace(self.path / CURRENT)
        self._state = state
        self._remove(old)

    def _sweep(self) -> None:
        """Remove what a process left that ended before its commit."""
        for name in (path.name for path in self.path.iterdir()):
            found = RUN.fullmatch(name)
            if found is not None and int(found[1]) not in self._state.files:
                (self.path / name).unlink()

    def _remove(self, files: Iterable[int]) -> None:
        for file in files:
            # One that can't be removed now is swept later.
            with suppress(OSError):
                (self.path / run_name(file)).unlink()

    def close(self) -> None:
        """Release the database."""
        runs = {part.file: part.run for levels in self._state.segments.values() for part in levels.parts}
        self._release()
        for oldest in [*_warm][: max(len(_warm) - _MOST_WARM + 1, 0)]:
            del _warm[oldest]
        _warm[self.path] = runs

    def _release(self) -> None:
        self._state = State()
        if self._unlock is not None:
            self._unlock()

    def clear(self) -> None:
        """Remove everything and start empty, under the lock that is held; StoreError if that fails."""
        with translated(self.path):
            self._state = State()
            empty(self.path)
            self._begin()


def run_name(file: int) -> str:
    """Return the name of a run's file.

    >>> run_name(7)
    '7.run'
    """
    return f"{file}.run"


def _of_bounded_size(rows: Rows) -> Iterator[Rows]:
    """Yield rows in pieces whose bytes are bounded, but for single ones that are larger."""
    ends = np.add(*(offsets_of(of)[0].astype(np.int64) for of in (rows.keys, rows.values)))
    start = 0
    while start < len(rows):
        stop = max(int(np.searchsorted(ends, ends[start] + _RUN_BYTES, "right")) - 1, start + 1)
        yield rows.slice(start, stop)
        start = stop


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert errors: CorruptionError if the store's bytes are damaged, DiskFullError if there is no room, else StoreError."""
    # A store is removed only for CorruptionError. Too many open files, a full disk or missing rights do not damage its bytes.
    try:
        yield
    except (DamagedError, FileNotFoundError) as error:
        raise CorruptionError(f"store: {str(path)!r} is damaged ({error}); it is removed and restored") from error
    except OSError as error:
        if is_no_space(error):
            raise DiskFullError(
                f"store: {str(path)!r} has {free_bytes(path) / 1e6:,.0f} MB free, and a batch needs more; make room and start again"
            ) from error
        raise StoreError(f"store: {str(path)!r} can't be used ({error}); mend that, and start again") from error
