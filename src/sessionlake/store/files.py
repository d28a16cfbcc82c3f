"""A shard's database: segments of keys and values in immutable files, and a file that says which count.

A batch of writes to several segments, and the commit's id among the metadata, is applied whole or not at all: runs are written
first, and hold once the new `CURRENT` has the name of the old one. Files that it does not name are removed.
"""

import json
import os
import secrets
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from sessionlake.columnar.arrays import offsets_of
from sessionlake.errors import CorruptionError, StoreError
from sessionlake.store.api import SegmentWrites, as_array
from sessionlake.store.directory import CURRENT, IDENTITY, RUN, empty, hold
from sessionlake.store.disk_space import is_no_space, no_room
from sessionlake.store.levels import Level, Levels, Part
from sessionlake.store.runs import DamagedError, Rows, Run, in_order, write_run

_RUN_BYTES = 64 << 20
"""A level is written in runs of about this size at most."""
_MOST_WARM = 16
_warm: dict[Path, dict[str, Run]] = {}
"""The runs of this process's last closed stores: the next opening need not map and verify them again."""


class Manifest(NamedTuple):
    """The content of `CURRENT`."""

    segments: dict[int, list[tuple[int, int, list[tuple[str, int, str | None]]]]]
    """Of each segment the levels: tier, levels that are merged into it, and of each part the file's name, the first row and the run's
    digest; None for files that a store of format 3 names."""
    meta: dict[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the file's content: a digest, and JSON."""
        # Latin-1 has a letter for each byte.
        meta = {name: value.decode("latin-1") for name, value in self.meta.items()}
        body = json.dumps([list(self.segments.items()), meta]).encode()
        # Releases that know format 3 alone take this for damage, and read the tables: they expect a CRC-32.
        return b"%s %s" % (xxh3_128_hexdigest(body).encode(), body)

    @classmethod
    def of(cls, content: bytes) -> "Manifest":
        """Invert `to_bytes`; DamagedError for other content."""
        told, _, body = content.partition(b" ")
        if told == b"%08x" % zlib.crc32(body):
            return cls._of_format_3(body)
        if told != xxh3_128_hexdigest(body).encode():
            raise DamagedError(f"{CURRENT} is not as it was written")
        segments, meta = json.loads(body)
        return cls(_levels(segments, lambda name, row, digest: (name, row, digest)), _bytes_of(meta))

    @classmethod
    def _of_format_3(cls, body: bytes) -> "Manifest":
        segments, meta, _ = json.loads(body)
        return cls(_levels(segments, lambda number, row: (f"{number}.run", row, None)), _bytes_of(meta))


def _levels(segments: Any, part: Callable[..., Any]) -> dict[int, Any]:
    return {
        number: [(tier, merges, [part(*run) for run in parts]) for tier, merges, parts in levels]
        for number, levels in segments
    }


def _bytes_of(meta: Mapping[str, str]) -> dict[str, bytes]:
    return {name: value.encode("latin-1") for name, value in meta.items()}


@dataclass
class State:
    """A moment's segments, and their open runs."""

    segments: dict[int, Levels] = field(default_factory=dict)
    meta: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, opened: Mapping[str, Run] = MappingProxyType({})) -> "State":
        """Open what `CURRENT` names, but for runs that are open already; FileNotFoundError if there is no such file, or no longer."""
        told = Manifest.of((path / CURRENT).read_bytes())

        def part(name: str, start: int, digest: str | None) -> Part:
            run, at = opened.get(name), path / name
            if run is None or not run.is_file(at):
                run = Run(at)
            if digest not in (None, run.digest):
                raise DamagedError(f"{name!r} is another file than the one that {CURRENT} names")
            if start >= run.rows:
                raise DamagedError(f"{CURRENT} names a row that {name!r} lacks")
            return Part(name, run, start)

        segments = {
            number: Levels(
                tuple(Level(tier, tuple(part(*one) for one in parts), merges) for tier, merges, parts in levels)
            )
            for number, levels in told.segments.items()
        }
        return cls(segments, told.meta)

    def manifest(self) -> Manifest:
        """Return what is to be written of this state."""
        segments: dict[int, Any] = {
            number: [
                (level.tier, level.merges, [(part.file, part.start, part.run.digest) for part in level.parts])
                for level in of.levels
            ]
            for number, of in self.segments.items()
        }
        return Manifest(segments, self.meta)

    @property
    def files(self) -> set[str]:
        """The names of the files that count."""
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
        self._writer, self._numbers = secrets.token_hex(8), count()
        """What the names of new files are made of: no name is used twice, whatever is removed, restored or done again."""
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

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""
        return not self._state.segments

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""
        return self._state.meta.get(name)

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment."""
        values: list[bytes | None] = self.find(segment, as_array(keys)).to_pylist()
        return values

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
            page_items = list(self._state.segments[segment].items(low, high, limit))
            keys, values = (
                pa.chunked_array([getattr(rows, name) for rows in page_items], pa.binary())
                for name in ("keys", "values")
            )
            return keys.combine_chunks(), values.combine_chunks()

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Write values (null deletes) and metadata atomically; a segment that is not there is made first."""
        with translated(self.path):
            state = State(dict(self._state.segments), {**self._state.meta, **meta})
            made: list[str] = []
            try:
                self._add(state, writes, made)
                self._tell(state)
            except Exception:
                # A full disk needs the room.
                self._remove([f"{CURRENT}.tmp", *made])
                raise
            # An error from here on leaves them: `CURRENT` may name them already. The next opening sweeps.
            self._turn_to(state, made)

    def _add(self, state: State, writes: SegmentWrites, made: list[str]) -> None:
        """Write the runs of a state with further writes; `made` gets their names."""

        def written(rows: Rows, seed: int) -> Part:
            name = f"{self._writer}-{next(self._numbers)}.run"
            made.append(name)
            write_run(self.path / name, rows, seed)
            return Part(name, Run(self.path / name))

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
                self._commit(State(kept, self._state.meta))

    def _commit(self, state: State) -> None:
        self._tell(state)
        self._turn_to(state, ())

    def _tell(self, state: State) -> None:
        """Write what `CURRENT` is to say."""
        (self.path / f"{CURRENT}.tmp").write_bytes(state.manifest().to_bytes())

    def _turn_to(self, state: State, made: Iterable[str]) -> None:
        """Commit a state whose `CURRENT` is written, and remove unnamed files: earlier ones, and the other files of `made`."""
        (self.path / f"{CURRENT}.tmp").replace(self.path / CURRENT)
        old, self._state = self._state.files.union(made) - state.files, state
        self._remove(old)

    def _sweep(self) -> None:
        """Remove the leftovers of a process that ended before its commit."""
        for name in (path.name for path in self.path.iterdir()):
            if name == f"{CURRENT}.tmp" or (RUN.fullmatch(name) and name not in self._state.files):
                (self.path / name).unlink()

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            # A file that can't be removed now is swept later.
            with suppress(OSError):
                (self.path / name).unlink()

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


def _of_bounded_size(rows: Rows) -> Iterator[Rows]:
    """Yield rows in pieces of bounded bytes, except for larger single rows."""
    ends = np.add(*(offsets_of(of)[0].astype(np.int64) for of in (rows.keys, rows.values)))
    start = 0
    while start < len(rows):
        # `ends` are the bytes of keys and values before each row, so the piece ends before it exceeds the bound.
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
            raise no_room(path) from error
        raise StoreError(f"store: {str(path)!r} can't be used ({error}); mend that, and start again") from error
