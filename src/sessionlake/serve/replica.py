"""A pipeline's local shard stores, read beside the stream as of one committed batch.

Stores lag one commit: what batch n writes lies in a file beside the store until batch n + 1 applies it. So a shard as of batch
n is a store that is at n's commit, or one at the commit that n's file builds on, with that file laid over it.
"""

import heapq
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.config.load import Config
from sessionlake.engine.erasure import FORGET
from sessionlake.engine.pending import PENDING, Pending
from sessionlake.errors import ConfigError, NoBatchesError, StoreError
from sessionlake.serve.decoded import SessionDecoder, decoder_of
from sessionlake.serve.found import ALL, Decoder, Packed
from sessionlake.serve.queryable import key_value_store, require, session_store
from sessionlake.serve.windowed import window_store
from sessionlake.store.secondary import (
    NoSegments,
    OverlaidSegments,
    ReadSegments,
    SecondarySegments,
    identity,
)
from sessionlake.store.standalone.interface import ReadOnlyKeyValueStore, ReadOnlySessionStore, ReadOnlyWindowStore
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import SESSIONS
from sessionlake.warehouse.lake import Lake

COMMIT = "commit_id"
"""A store's metadata: the commit that it is at (`engine/shard.py`)."""
_LENGTH = " length"
_ATTEMPTS = 20
_PAUSE_S = 0.02


class NotLocalError(StoreError):
    """A shard that is asked for can't be read here: the tables have its rows."""


@dataclass(frozen=True)
class LocalShard:
    """A shard as of a batch."""

    path: Path
    identity: tuple[int, int] | None
    """None where no batch has touched the shard."""
    segments: ReadSegments

    @property
    def is_there(self) -> bool:
        """Whether its directory is the one that was opened, and nobody has asked for its removal."""
        # Each look-up asks this, so that paths are made once.
        if os.path.exists(self._forget):  # noqa: PTH110
            return False
        return self.identity is None or identity(self._store) == self.identity

    @cached_property
    def _store(self) -> str:
        return str(self.path)

    @cached_property
    def _forget(self) -> str:
        return str(self.path.with_suffix(FORGET))


@dataclass(frozen=True)
class KeyRange:
    """Keys from low to high, both inclusive and None where open, in the order of their UTF-8 bytes."""

    low: str | None
    high: str | None
    after: str | None = None
    """Only keys that come after it."""
    prefix: str = ""
    """Only keys that begin with it."""


@dataclass(frozen=True)
class Page:
    """Rows of a range of keys: all that some keys have."""

    rows: pa.Table
    last_key: str | None
    """The last key that was looked at; None where none is left."""
    looked: int
    """How many stored values were looked at."""


@dataclass(frozen=True)
class View:
    """The local shards as of one batch. It never moves; any number of threads may read it."""

    commit: BatchCommit
    shards: Mapping[int, LocalShard]
    missing: Mapping[int, str]
    """Why a shard is not among them: here there is none, or it is at another commit."""
    decoder: Decoder
    covered: frozenset[int] | None = None
    """The shards that are read; None for all. Of others it knows no keys."""

    def of_shards(self, shards: frozenset[int]) -> "View":
        """Return the view of some shards alone."""
        return replace(self, covered=shards)

    @property
    def numbers(self) -> list[int]:
        """The shards that are read, ascending."""
        return [shard for shard in range(len(self.commit.shards)) if self.covered is None or shard in self.covered]

    @property
    def batch_id(self) -> int:
        """The batch."""
        return self.commit.batch_id

    @property
    def complete_from_us(self) -> int | None:
        """Rows that ended before it may lie in the tables only; None where all are here."""
        return self.decoder.complete_from_us

    def session_store(self) -> ReadOnlySessionStore[str, dict[str, Any]]:
        """Return the sessions as a store with the reads of KIP-94 and KIP-617, whose order is that of a session store on disk.

        Values are the columns by name, times in microseconds. Those that live views leave out are there, too. ConfigError where the
        pipeline computes something else; reads raise NotLocalError where a shard is not here.
        """
        require(self, "session", self.decoder.operator)
        return session_store(self)

    def key_value_store(self) -> ReadOnlyKeyValueStore[str, dict[str, Any]]:
        """Return a keyed table's rows as a store, by key; values and errors as in `session_store`."""
        require(self, "table", self.decoder.operator)
        return key_value_store(self)

    def window_store(self) -> ReadOnlyWindowStore[str, dict[str, Any]]:
        """Return the windows by time as a store, by key and start, whether they were sent or not; merged as they are read.

        Values and errors as in `session_store`. Those that begin before `complete_from_us` are in the tables only. Keys come in
        no order that is promised; windows of a key come by their start.
        """
        require(self, "window", self.decoder.operator)
        return window_store(self)

    def segments_of(self, key: str) -> ReadSegments | None:
        """Return the segments of a key's shard; None where others read it, NotLocalError where it is not here."""
        shard = self.shard_of(key)
        return self._local(shard) if self.covered is None or shard in self.covered else None

    def segments(self) -> list[ReadSegments]:
        """Return the segments of each shard that is read; NotLocalError where one is not here."""
        return [self._local(shard) for shard in self.numbers]

    def shard_of(self, key: str) -> int:
        """Return the shard of a key."""
        return crc32(key.encode()) % len(self.commit.shards)

    def why_missing(self, shard: int) -> str | None:
        """Return why a shard can't be read here; None where it can."""
        local = self.shards.get(shard)
        if local is not None and local.is_there:
            return None
        return self.missing.get(shard, "its store was removed")

    @property
    def lacking(self) -> dict[int, str]:
        """The shards that can't be read here as of now, each with the reason."""
        reasons = {shard: self.why_missing(shard) for shard in range(len(self.commit.shards))}
        return {shard: reason for shard, reason in reasons.items() if reason is not None}

    def require_local(self, keys: Iterable[str]) -> None:
        """Raise NotLocalError if a shard of these keys is not here."""
        for shard in {self.shard_of(key) for key in keys}:
            if self.covered is None or shard in self.covered:
                self._local(shard)

    def find(self, keys: Sequence[str], include: Collection[str] = ALL) -> pa.Table:
        """Return the rows of keys, by key and time; NotLocalError where a shard of theirs is not here.

        `include` names what is shown that the live view leaves out: all, where nothing is given.
        """
        return self.decoder.rows(self.packed(keys), include)

    def packed(self, keys: Iterable[str]) -> Packed:
        """Return what the shards have of keys, these ascending, each once; NotLocalError where a shard of theirs is not here."""
        names = sorted({key.encode() for key in keys})
        if self.covered is not None:
            names = [name for name in names if crc32(name) % len(self.commit.shards) in self.covered]
        by_shard: dict[int, list[int]] = {}
        for at, name in enumerate(names):
            by_shard.setdefault(crc32(name) % len(self.commit.shards), []).append(at)
        found: list[tuple[int, bytes]] = []
        for shard, places in by_shard.items():
            segments, asked = self._local(shard), [names[at] for at in places]
            for number in filter(self.decoder.has, segments.segments):
                values = segments.get(number, asked)
                found += [(at, value) for at, value in zip(places, values, strict=True) if value is not None]
        if len(by_shard) > 1:
            found.sort(key=itemgetter(0))
        return Packed(names, [at for at, _ in found], [value for _, value in found])

    def scan(
        self,
        low: str | None,
        high: str | None,
        limit: int,
        *,
        after: str | None = None,
        prefix: str = "",
        most: int | None = None,
        include: Collection[str] = ALL,
    ) -> Page:
        """Return the rows of the first `limit` keys from low to high, both inclusive, that begin with a prefix and come after a key.

        Keys are in the order of their UTF-8 bytes. The page ends before the key at which `most` stored values would be exceeded,
        unless it is the first. `include` as in `find`. NotLocalError where any shard is not here.
        """
        packed, last_key = self.packed_range(KeyRange(low, high, after, prefix), limit, most=most)
        return Page(self.decoder.rows(packed, include), last_key, len(packed.values))

    def packed_range(
        self, asked: KeyRange, limit: int, *, most: int | None = None, rows: int | None = None
    ) -> tuple[Packed, str | None]:
        """Return what the shards have of the keys of a page, as in `scan`, and the last of them where there are more.

        It ends with the key that makes it so many rows, too, be they shown or not.
        """
        names: list[bytes] = []
        owner: list[int] = []
        values: list[bytes] = []
        left, rows_left = False, rows
        for name, found in self._keys(asked):
            enough = len(names) == limit or (rows_left is not None and rows_left <= 0)
            if enough or (most is not None and names and len(values) + len(found) > most):
                left = True
                break
            for value in found:
                owner.append(len(names))
                values.append(value)
                rows_left = None if rows_left is None else rows_left - self.decoder.size(value)
            names.append(name)
        return Packed(names, owner, values), names[-1].decode() if left else None

    def longest_open(self, limit: int, most: int) -> tuple[pa.Table, bool]:
        """Return the longest sessions that events can still lengthen, and whether all were looked at; it looks at `most` stored values.

        NotLocalError where any shard is not here, ConfigError where the stores hold no sessions.
        """
        decoder = self.decoder
        if not isinstance(decoder, SessionDecoder):
            raise ConfigError("open: is of sessions, and this pipeline computes none; ask for its rows")
        found: list[pa.Table] = []
        left = most
        for shard in self.numbers:
            segments = self._local(shard)
            # Segments go by the end: where none is open in one, none is in those before it.
            for number in reversed(segments.segments):
                items = list(islice(segments.items(number), left))
                left -= len(items)
                names, values = [name for name, _ in items], [value for _, value in items]
                rows, any_open = decoder.longest_open(Packed(names, range(len(names)), values), limit)
                found.append(rows)
                if left == 0 or (items and not any_open):
                    break
        rows = pa.concat_tables(found) if found else decoder.rows(Packed([], [], []))
        length = pc.subtract(rows[SESSIONS.start].cast(pa.int64()), rows[SESSIONS.end].cast(pa.int64()))
        order = pc.sort_indices(
            rows.append_column(_LENGTH, length),
            [(_LENGTH, "ascending"), (SESSIONS.start, "ascending"), (SESSIONS.key, "ascending")],
        )
        return rows.take(order[:limit]), left > 0

    def _keys(self, asked: KeyRange) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield keys of all shards and their values, ascending, as they are asked for."""
        prefix = asked.prefix.encode()
        after = b"" if asked.after is None else asked.after.encode() + b"\0"
        first = max((asked.low or "").encode(), prefix, after) or None
        # No UTF-8 has this byte: what begins with the prefix comes before it.
        lasts = [*([] if asked.high is None else [asked.high.encode()]), *([prefix + b"\xff"] if prefix else [])]
        last = min(lasts, default=None)
        each = [
            segments.items(number, first, last)
            for segments in self.segments()
            for number in filter(self.decoder.has, segments.segments)
        ]
        merged = heapq.merge(*each, key=lambda item: item[0])
        for name, items in groupby(merged, key=lambda item: item[0]):
            yield name, [value for _, value in items]

    def _local(self, shard: int) -> ReadSegments:
        reason = self.why_missing(shard)
        if reason is not None:
            raise NotLocalError(
                f"store: shard {shard} is not here at batch {self.batch_id} ({reason}); read the tables"
            )
        return self.shards[shard].segments


class Replica:
    """A pipeline's local stores. `view` is as of the last refresh, which any one thread may call at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._folder = Path(config.driver_store_dir)
        self._view: View | None = None

    @cached_property
    def _lake(self) -> Lake:
        return Lake.of(self._config)

    @property
    def view(self) -> View:
        """The stores as of the last refresh; NoBatchesError before the first one that found a batch."""
        if self._view is None:
            raise NoBatchesError(
                f"pipeline.warehouse: {self._config.pipeline.warehouse!r} has no batches yet; run `sessionlake run` first"
            )
        return self._view

    def refresh(self) -> View:
        """Follow the last committed batch, and return the view of it; NoBatchesError where there is none.

        A shard whose store or file changes meanwhile is looked at again, for less than a second; then it is missing in the view.
        """
        commit = last_batch(self._lake)
        known = self._view
        if known is None or known.commit.commit_id != commit.commit_id or not self._is_whole(known):
            self._view = self._open(commit)
        return self.view

    def close(self) -> None:
        """Let go of the stores; views that are still held stay readable."""
        self._view = None

    def _is_whole(self, view: View) -> bool:
        return not view.missing and all(local.is_there for local in view.shards.values())

    def _open(self, commit: BatchCommit) -> View:
        until = time.monotonic() + _ATTEMPTS * _PAUSE_S
        shards: dict[int, LocalShard] = {}
        while True:
            missing: dict[int, str] = {}
            for shard in range(len(commit.shards)):
                if shard not in shards:
                    found = _local_shard(self._folder / str(shard), commit.shards[shard])
                    if isinstance(found, str):
                        missing[shard] = found
                    else:
                        shards[shard] = found
            # One that is not here at all won't be in a moment.
            if not any(reason != _NONE for reason in missing.values()) or time.monotonic() > until:
                return View(commit, shards, missing, decoder_of(self._config, commit))
            time.sleep(_PAUSE_S)


_NONE = "there is none"


def _local_shard(path: Path, expected: str | None) -> LocalShard | str:
    """Return a shard at a commit, or why that can't be."""
    if expected is None:
        return LocalShard(path, None, NoSegments())
    if path.with_suffix(FORGET).exists():
        return "it is to be erased"
    before = identity(path)
    try:
        store = SecondarySegments(path)
        commit = (store.meta(COMMIT) or b"").decode() or None
        found: ReadSegments = store
        if commit != expected:
            writes = Pending(path.with_suffix(PENDING)).read(expected, commit)
            if writes is None:
                return f"it is at commit {commit}"
            found = OverlaidSegments(store, writes)
    except FileNotFoundError:
        return _NONE
    except StoreError as error:
        return str(error)
    local = LocalShard(path, before, found)
    return local if before is not None and local.is_there else "its store was removed"
