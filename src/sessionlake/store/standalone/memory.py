"""Sorted rows in memory, all of them or the last used keys. They end with the process.

A lock is held for a call, and while an iterator reads its next rows ahead, which are then yielded without it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from threading import RLock
from typing import Any

from sortedcontainers import SortedDict

from sessionlake.store.standalone.keys import LEAST, KeyValueRows, RowKeys, TimedRows

_AHEAD = 256
"""Rows that an iterator reads at a time."""


class MemoryRows(KeyValueRows):
    """Values by key."""

    persistent = False

    def __init__(self) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict()
        self._lock = RLock()

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value."""
        with self._lock:
            found: bytes | None = self._rows.get(key)
            return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes."""
        with self._lock:
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values, under a single hold of the lock."""
        with self._lock:
            for key, value in entries:
                self.put(key, value)

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again."""
        self.put_all(list(records))

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with low <= key < high. Keys are read ahead; a row that is removed before its turn is left out."""
        rows = self._rows
        while True:
            with self._lock:
                keys = rows.irange(low, high, inclusive=(True, False), reverse=backward)
                ahead = list(islice(keys, _AHEAD))
            for key in ahead:
                value = rows.get(key)
                if value is not None:
                    yield key, value
            if len(ahead) < _AHEAD:
                return
            if backward:
                high = ahead[-1]
            else:
                low = ahead[-1] + b"\0"

    def count(self) -> int:
        """Return how many rows there are."""
        return len(self._rows)

    def flush(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Let go of all rows."""
        with self._lock:
            self._rows.clear()


class MemoryTimedRows(TimedRows):
    """Rows by time, then key, then rank, whose direction the store chooses.

    Expired rows are refused and removed at once, but for those that an open iterator may still show: `pinned` says from when on.
    """

    persistent = False

    def __init__(
        self, keys: RowKeys, retention: int, pinned: Callable[[], int | None], *, ranks_descend: bool = False
    ) -> None:
        self.keys = keys
        self.dropped = 0
        self._retention = retention
        self._pinned = pinned
        self._sign = -1 if ranks_descend else 1
        self._times: SortedDict[int, SortedDict[tuple[bytes, float], bytes]] = SortedDict()
        self._largest: int | None = None
        self._lock = RLock()

    @property
    def live_from(self) -> int:
        """The least time that is not expired."""
        return LEAST if self._largest is None else max(LEAST, self._largest - self._retention + 1)

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Write a row."""
        written = self._put(key, time, rank, value)
        if written is None:
            self.dropped += 1
        return written

    def _put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        with self._lock:
            if self._largest is None or time > self._largest:
                self._largest = time
            if time < self.live_from:
                return None
            self._remove_expired()
            rows = self._times.get(time)
            if rows is None:
                rows = self._times[time] = SortedDict()
            if rank is None:
                last = next(rows.irange((key, -inf), (key, inf), reverse=True), None)
                rank = self.keys.least_rank if last is None else int(last[1]) + 1
            rows[key, rank * self._sign] = value
            return rank

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Remove a row."""
        with self._lock:
            rows = self._times.get(time)
            if rows is not None and rows.pop((key, rank * self._sign), None) is not None and not rows:
                del self._times[time]

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        """Return a row's value."""
        with self._lock:
            rows = self._times.get(time)
            found: bytes | None = None if rows is None else rows.get((key, rank * self._sign))
            return found

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield the rows by time, key and rank."""
        low = None if key_from is None else (key_from, -inf)
        high = None if key_to is None else (key_to, inf)
        at: tuple[int, Any] | None = None
        while True:
            with self._lock:
                ahead = list(islice(self._scan(low, high, time_from, time_to, backward, at), _AHEAD))
            for time, inner, value in ahead:
                yield inner[0], time, int(inner[1]) * self._sign, value
            if len(ahead) < _AHEAD:
                return
            at = ahead[-1][:2]

    def is_empty(self) -> bool:
        """Say whether there is no row."""
        return not self._times

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again, except for rows expired by its end."""
        for row, value in records:
            key, time, rank = self.keys.parts(row)
            if value is None:
                self.delete(key, time, rank)
            else:
                self._put(key, time, rank, value)

    def flush(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Let go of all rows."""
        with self._lock:
            self._times.clear()

    def _scan(
        self,
        low: Any,
        high: Any,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
        at: tuple[int, Any] | None,
    ) -> Iterator[tuple[int, Any, bytes]]:
        """Yield rows from the one after `at` on; for as long as nothing is written."""
        if at is not None:
            time_from, time_to = (time_from, at[0]) if backward else (at[0], time_to)
        for time in self._times.irange(time_from, time_to, reverse=backward):
            first, last, inclusive = low, high, (True, True)
            if at is not None and time == at[0]:
                first, last, inclusive = (low, at[1], (True, False)) if backward else (at[1], high, (False, True))
            rows = self._times[time]
            for inner in rows.irange(first, last, inclusive=inclusive, reverse=backward):
                yield time, inner, rows[inner]

    def _remove_expired(self) -> None:
        pinned = self._pinned() if self._times and self._times.peekitem(0)[0] < self.live_from else None
        least = self.live_from if pinned is None else min(pinned, self.live_from)
        while self._times and self._times.peekitem(0)[0] < least:
            self._times.popitem(0)


class LruRows(MemoryRows):
    """Values of at most `bound` keys. The key whose last use is the oldest is evicted first.

    `get` and `put` use a key, iteration does not.
    """

    def __init__(self, bound: int, on_evicted: Callable[[bytes, bytes], None] | None = None) -> None:
        super().__init__()
        self._bound = bound
        self.evicted: Callable[[bytes, bytes], None] | None = on_evicted
        """Called with each evicted row after its removal."""
        self._used: OrderedDict[bytes, None] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value, and use it."""
        with self._lock:
            found = super().get(key)
            if found is not None:
                self._used.move_to_end(key)
            return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a value, which uses its key; None removes the key. Above the bound the eldest row is evicted."""
        gone = self._put(key, value)
        if gone is not None and self.evicted is not None:
            self.evicted(*gone)

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values singly."""
        for key, value in entries:
            self.put(key, value)

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again, within the bound, without a call of `evicted`."""
        for key, value in records:
            self._put(key, value)

    def close(self) -> None:
        """Let go of all rows."""
        with self._lock:
            super().close()
            self._used.clear()

    def _put(self, key: bytes, value: bytes | None) -> tuple[bytes, bytes] | None:
        with self._lock:
            super().put(key, value)
            if value is None:
                self._used.pop(key, None)
                return None
            self._used[key] = None
            self._used.move_to_end(key)
            if len(self._used) <= self._bound:
                return None
            eldest, _ = self._used.popitem(last=False)
            data = self._rows.pop(eldest)
            return eldest, data
