"""A pipeline's local shard stores, read next to the stream as of one committed batch.

Stores lag one commit: the writes of batch n lie in a file next to the store until batch n + 1 applies them. So a shard
as of batch n is either a store at n's commit, or a store at the commit before with n's file laid over it.
"""

import heapq
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.columnar.keys import shard_of_key
from sessionlake.config.load import Config
from sessionlake.engine.pending import CORRUPT, FORGET, FORGOTTEN, PENDING, Pending, cause_of, mark
from sessionlake.errors import ConfigError, NoBatchesError, StoreError
from sessionlake.serve.decoder import Decoder, OpenRowDecoder, RowDecoder, StoreType, decoder_of
from sessionlake.serve.result_rows import ALL, Packed, ResultRow
from sessionlake.store.engines import view_of
from sessionlake.store.runs import DamagedError
from sessionlake.store.secondary import (
    NoSegments,
    OverlaidSegments,
    ReadSegments,
    identity,
)
from sessionlake.store.standalone.interface import ReadOnlyKeyValueStore, ReadOnlySessionStore, ReadOnlyWindowStore
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake

COMMIT, SHARD = "commit_id", "shard"
"""A store's metadata: its commit, and the number of its shard (`engine/shard.py`)."""
_ATTEMPTS = 20
_PAUSE_S = 0.02


class NotLocalError(StoreError):
    """A shard that is asked for can't be read here: the tables have its rows."""


class WatchedSegments:
    """The segments of a shard's store. Damage makes the shard missing here: reads raise NotLocalError from then on.

    A page is verified when it is read first, so damage can be met at any read. It is marked for the next batch, which restores the store.
    """

    def __init__(self, base: ReadSegments, path: Path, opened: tuple[int, int] | None) -> None:
        """`opened` is the store's identity as it was opened."""
        self._base, self._path, self._opened = base, path, opened
        self.failure: str | None = None
        """Why it can't be read any more."""

    @property
    def segments(self) -> list[int]:
        """Numbers of the segments, ascending."""
        return self._base.segments

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a segment."""
        with self._watched():
            return self._base.get(segment, keys)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, *, backward: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a segment, in the order of keys."""
        with self._watched():
            yield from self._base.items(segment, low, high, backward=backward)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except (DamagedError, OSError) as error:
            self.failure = f"its store can't be read: {error}"
            # A failing read alone damages nothing. And another store may have come in this one's place.
            if isinstance(error, DamagedError) and identity(self._path) == self._opened:
                with suppress(OSError):
                    mark(self._path.parent, int(self._path.name), CORRUPT)
            raise NotLocalError(
                f"store: shard {self._path.name} is not here ({self.failure}); read the tables"
            ) from error


@dataclass(frozen=True)
class LocalShard:
    """A shard as of a batch."""

    path: Path
    identity: tuple[int, int] | None
    """None if no batch has touched the shard."""
    segments: ReadSegments

    @property
    def is_there(self) -> bool:
        """Whether its directory is still the one that was opened, and is not marked for removal."""
        if self.failure is not None:
            return False
        # Every look-up uses these paths, so they are built once.
        if os.path.exists(self._forget):  # noqa: PTH110
            return False
        return self.identity is None or identity(self._store) == self.identity

    @property
    def failure(self) -> str | None:
        """Why its store can't be read any more; None if that is not known."""
        return self.segments.failure if isinstance(self.segments, WatchedSegments) else None

    @cached_property
    def _store(self) -> str:
        return str(self.path)

    @cached_property
    def _forget(self) -> str:
        return str(self.path.with_suffix(FORGET))


@dataclass(frozen=True)
class KeyRange:
    """Keys from low to high, both inclusive and None if open, in the order of their UTF-8 bytes."""

    low: str | None
    high: str | None
    after: str | None = None
    """Only keys that come after it."""
    prefix: str = ""
    """Only keys that begin with it."""


@dataclass(frozen=True)
class Page:
    """Rows of a range of keys: all rows of the first keys."""

    rows: pa.Table
    last_key: str | None
    """The last key that was looked at; None if none is left."""
    looked: int
    """How many stored values were looked at."""


@dataclass(frozen=True)
class View:
    """The local shards as of one batch. It never moves; any number of threads may read it."""

    commit: BatchCommit
    shards: Mapping[int, LocalShard]
    missing: Mapping[int, str]
    """The reason for which a shard is missing: there is no store here, or it is at another commit."""
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
        """Rows that ended before it may lie in the tables only; None if all are here."""
        return self.decoder.complete_from_us

    def session_store(self) -> ReadOnlySessionStore[str, dict[str, Any]]:
        """Return the sessions as a store with the reads of KIP-94 and KIP-617, whose order is that of a session store on disk.

        Values are the columns by name, times in microseconds. Those that live views leave out are there, too. ConfigError if the
        pipeline computes something else; reads raise NotLocalError if a shard is not here.
        """
        return self._store("session_store")

    def key_value_store(self) -> ReadOnlyKeyValueStore[str, dict[str, Any]]:
        """Return a keyed table's rows as a store, by key; values and errors as in `session_store`."""
        return self._store("key_value_store")

    def window_store(self) -> ReadOnlyWindowStore[str, dict[str, Any]]:
        """Return the windows by time as a store, by key and start, whether they were sent or not; merged as they are read.

        Values and errors as in `session_store`. Those that begin before `complete_from_us` are in the tables only. Keys come in
        no order that is promised; windows of a key come by their start.
        """
        return self._store("window_store")

    def _store(self, asked: StoreType) -> Any:
        if self.decoder.store_type != asked:
            raise ConfigError(f"{asked}: this pipeline's rows are in no such store; use: {self.decoder.store_type}()")
        return self.decoder.open_store(self)

    @cached_property
    def row_decoder(self) -> RowDecoder:
        """The decoder; ConfigError if stored values are no whole rows."""
        if not isinstance(self.decoder, RowDecoder):
            raise ConfigError(
                f"find: the stores hold parts of rows; ask for `{self.decoder.store_type}()`, or the tables"
            )
        return self.decoder

    def segments_of(self, key: str) -> ReadSegments | None:
        """Return the segments of a key's shard; None if others read it, NotLocalError if it is not here."""
        shard = self.shard_of(key)
        return self._local(shard) if self.covered is None or shard in self.covered else None

    def segments(self) -> list[ReadSegments]:
        """Return the segments of each shard that is read; NotLocalError if one is not here."""
        return [self._local(shard) for shard in self.numbers]

    def shard_of(self, key: str) -> int:
        """Return the shard of a key."""
        return shard_of_key(key.encode(), len(self.commit.shards))

    def why_missing(self, shard: int) -> str | None:
        """Return why a shard can't be read here; None if it can."""
        local = self.shards.get(shard)
        if local is not None and local.is_there:
            return None
        return self.missing.get(shard) or (local and local.failure) or "its store was removed"

    @property
    def lacking(self) -> dict[int, str]:
        """The shards that can't be read here as of now, each with the reason."""
        reasons = {shard: self.why_missing(shard) for shard in range(len(self.commit.shards))}
        return {shard: reason for shard, reason in reasons.items() if reason is not None}

    @property
    def follows(self) -> bool:
        """Whether shards can't be read here, and all of them can after the next batch."""
        return bool(self.lacking) and all(_FOLLOWS in reason for reason in self.lacking.values())

    def require_local(self, keys: Iterable[str]) -> None:
        """Raise NotLocalError if a shard of these keys is missing here."""
        for shard in {self.shard_of(key) for key in keys}:
            if self.covered is None or shard in self.covered:
                self._local(shard)

    def find(self, keys: Sequence[str], include: Collection[str] = ALL) -> pa.Table:
        """Return the rows of keys, by key and time; NotLocalError if a shard of theirs is missing here.

        `include` names the rows to show that the live view leaves out, by default all.
        """
        return self.row_decoder.rows(self.packed(keys), include)

    def packed(self, keys: Iterable[str]) -> Packed:
        """Return the stored values of keys, which are ascending and unique; NotLocalError if a shard of theirs is missing here."""
        names = sorted({key.encode() for key in keys})
        if self.covered is not None:
            names = [name for name in names if shard_of_key(name, len(self.commit.shards)) in self.covered]
        by_shard: dict[int, list[int]] = {}
        for at, name in enumerate(names):
            by_shard.setdefault(shard_of_key(name, len(self.commit.shards)), []).append(at)
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
        unless it is the first. `include` as in `find`. NotLocalError if any shard is not here.
        """
        packed, last_key = self.packed_range(KeyRange(low, high, after, prefix), limit, most=most)
        return Page(self.row_decoder.rows(packed, include), last_key, len(packed.values))

    def packed_range(
        self, asked: KeyRange, limit: int, *, most: int | None = None, rows: int | None = None
    ) -> tuple[Packed, str | None]:
        """Return the stored values of a page's keys, as `scan` does, and the last key if there are more.

        The last key is the one with which the page reaches `rows` rows, whether these are shown or not.
        """
        names: list[bytes] = []
        owner: list[int] = []
        values: list[bytes] = []
        left, rows_left, decoder = False, rows, self.row_decoder
        for name, found in self._keys(asked):
            enough = len(names) == limit or (rows_left is not None and rows_left <= 0)
            if enough or (most is not None and names and len(values) + len(found) > most):
                left = True
                break
            for value in found:
                owner.append(len(names))
                values.append(value)
                rows_left = None if rows_left is None else rows_left - decoder.size(value)
            names.append(name)
        return Packed(names, owner, values), names[-1].decode() if left else None

    def longest_open(self, limit: int, most: int) -> tuple[list[ResultRow], bool]:
        """Return the longest rows that events can still lengthen, and whether all were looked at; it looks at `most` stored values.

        NotLocalError if any shard is not here, ConfigError if rows don't stay open.
        """
        decoder = self.decoder
        if not isinstance(decoder, OpenRowDecoder):
            raise ConfigError("open: this pipeline computes no rows that stay open; ask for all of them")
        found: list[ResultRow] = []
        left = most
        for shard in self.numbers:
            segments = self._local(shard)
            # Segments are ordered by the end of their rows: if no row is open in one, none is open in those before
            # it.
            for number in reversed(segments.segments):
                items = list(islice(segments.items(number), left))
                left -= len(items)
                names, values = [name for name, _ in items], [value for _, value in items]
                rows, any_open = decoder.longest_open(Packed(names, range(len(names)), values), limit)
                found += rows
                if left == 0 or (items and not any_open):
                    break
        found.sort(key=lambda row: (row.start_us - row.end_us, row.start_us, row.key))
        return found[:limit], left > 0

    def _keys(self, asked: KeyRange) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield keys of all shards and their values, ascending, as they are asked for."""
        prefix = asked.prefix.encode()
        after = b"" if asked.after is None else asked.after.encode() + b"\0"
        first = max((asked.low or "").encode(), prefix, after) or None
        # 0xff occurs in no UTF-8, so all texts with the prefix come before it.
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
        """Follow the last committed batch, and return the view of it; NoBatchesError if there is none.

        A shard whose store or file changes meanwhile is looked at again, for less than a second; then it is missing in the view.
        """
        commit = last_batch(self._lake)
        known = self._view
        if known is None or known.commit.commit_id != commit.commit_id or not self._is_whole(known):
            self._view = self._open(commit)
        return self.view

    def close(self) -> None:
        """Close the stores; views that are still in use stay readable."""
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
_FOLLOWS = ", and the next batch"
"""A part of the reasons that go by themselves."""


def _local_shard(path: Path, expected: str | None) -> LocalShard | str:
    """Return a shard at a commit, or the reason for which there is none."""
    if expected is None:
        return LocalShard(path, None, NoSegments())
    if (cause := cause_of(path)) is not None:
        return "it is to be erased" if cause == FORGOTTEN else f"it is damaged{_FOLLOWS} restores it"
    before = identity(path)
    try:
        store = view_of(path)
        commit = (store.meta(COMMIT) or b"").decode() or None
        if store.meta(SHARD) not in (None, path.name.encode()):
            commit = f"{commit} of another shard"
        found: ReadSegments = store
        if commit != expected:
            writes = Pending(path.with_suffix(PENDING)).read(expected, commit)
            if writes is None:
                return f"it is at commit {commit}{_FOLLOWS} brings it up to date"
            found = OverlaidSegments(store, writes)
    except FileNotFoundError:
        return _NONE
    except StoreError as error:
        return str(error)
    local = LocalShard(path, before, WatchedSegments(found, path, before))
    return local if before is not None and local.is_there else "its store was removed"
