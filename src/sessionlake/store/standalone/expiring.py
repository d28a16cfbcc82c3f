"""Values by key that expire a time to live after they were written: on disk, in segments by that time, and in memory.

A stored value begins with the time at which it was written, eight bytes that sort as the time does. The store's time never goes
back: it is the latest time of its clock or of a write.
"""

import heapq
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Lock

from sessionlake.store.standalone.families import Families, Layout, described
from sessionlake.store.standalone.keys import LEAST, KeyValueRows
from sessionlake.store.standalone.memory import MemoryRows

_FAMILY = "w"
_LATEST = "latest_time"
_SIGN = 1 << 63
_STAMP = 8

Entry = tuple[bytes, bytes | None]
Changed = Callable[[bytes, bytes | None], None]


class ExpiringRows(KeyValueRows):
    """The common base of both variants. `clock` returns whole numbers in any unit, and `ttl` is in the same unit."""

    def __init__(self, ttl: int, clock: Callable[[], int]) -> None:
        self._ttl, self._clock = ttl, clock
        self._latest = LEAST
        self._lock = Lock()
        self.changed: Changed | None = None
        """Called with each written row, its value behind its time, None for a removed row."""

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value, unless its time is over."""
        found = self._read(key)
        return None if found is None or self._is_over(found, self.now()) else found[_STAMP:]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes."""
        self.put_all([(key, value)])

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values, all of them now."""
        stamp = _stamp(self.now())
        self._keep([(key, None if value is None else stamp + value) for key, value in entries])

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again; values keep the time at which they were logged."""
        changed, self.changed = self.changed, None
        try:
            self._keep(list(records))
        finally:
            self.changed = changed

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with low <= key < high whose time is not over when their turn comes."""
        for key, data in self._scan(low, high, backward):
            if not self._is_over(data, self.now()):
                yield key, data[_STAMP:]

    def now(self) -> int:
        """Return the store's time."""
        seen = self._clock()
        with self._lock:
            self._latest = max(self._latest, seen)
            return self._latest

    def _keep(self, entries: list[Entry]) -> None:
        """Write values behind their times."""
        written = max((_time(data) for _, data in entries if data is not None), default=LEAST)
        with self._lock:
            self._latest = max(self._latest, written)
        self._write(entries)
        self._drop(self.now())
        if self.changed is not None:
            for key, data in entries:
                self.changed(key, data)

    def _is_over(self, data: bytes, now: int) -> bool:
        return _time(data) <= now - self._ttl

    @abstractmethod
    def _read(self, key: bytes) -> bytes | None:
        """Return a key's time and value, be it over or not."""

    @abstractmethod
    def _write(self, entries: list[Entry]) -> None:
        """Write rows, None removes."""

    @abstractmethod
    def _scan(self, low: bytes | None, high: bytes | None, backward: bool) -> Iterator[tuple[bytes, bytes]]:  # noqa: FBT001
        """Yield rows with low <= key < high, be they over or not."""

    @abstractmethod
    def _drop(self, now: int) -> None:
        """Remove expired rows."""


class RocksExpiringRows(ExpiringRows):
    """On disk: one column family for each segment of the time of writing, so expired rows are dropped as whole families.

    A key that is written again leaves its old row in the older segment; the newest segment has the valid row. The old row
    can't reappear, because it expires earlier.
    """

    persistent = True

    def __init__(
        self, path: Path, ttl: int, clock: Callable[[], int], minute: int, settings: Mapping[str, object]
    ) -> None:
        super().__init__(ttl, clock)
        made_with = described(path).get("segment_interval")
        self._interval = made_with if isinstance(made_with, int) else max(ttl // 2, minute)
        layout = Layout("key-value with ttl", {"segment_interval": self._interval, **settings})
        self._families = Families(path, layout)
        found = self._families.meta(_LATEST)
        self._latest = LEAST if found is None else int(found)

    def count(self) -> int:
        """Return about how many rows there are: keys that were written again may be counted more than once."""
        now = self.now()
        return sum(self._families.estimate(_name(n)) for n in self._numbers() if not self._is_past(n, now))

    def flush(self) -> None:
        """Write the rows in memory to files."""
        self._families.flush()

    def close(self) -> None:
        """Release the database."""
        self._families.close()

    def _read(self, key: bytes) -> bytes | None:
        found = (self._families.get(_name(number), key) for number in reversed(self._numbers()))
        return next((data for data in found if data is not None), None)

    def _write(self, entries: list[Entry]) -> None:
        rows: list[tuple[str, bytes, bytes | None]] = []
        numbers = set(self._numbers())
        for key, data in entries:
            place = None if data is None else _time(data) // self._interval
            rows += [(_name(n), key, None) for n in numbers if place is None or n > place]
            if place is not None:
                rows.append((_name(place), key, data))
                numbers.add(place)
        self._families.write(rows, {_LATEST: b"%d" % self._latest})

    def _scan(self, low: bytes | None, high: bytes | None, backward: bool) -> Iterator[tuple[bytes, bytes]]:  # noqa: FBT001
        newest_first = [self._families.items(_name(n), low, high, backward) for n in reversed(self._numbers())]
        merged = heapq.merge(*newest_first, key=itemgetter(0), reverse=backward)
        for _, same in groupby(merged, key=itemgetter(0)):
            yield next(same)

    def _drop(self, now: int) -> None:
        for number in self._numbers():
            if self._is_past(number, now):
                self._families.drop(_name(number))

    def _is_past(self, number: int, now: int) -> bool:
        """Say whether all that a segment can hold is over."""
        return (number + 1) * self._interval - 1 <= now - self._ttl

    def _numbers(self) -> list[int]:
        return sorted(int(name.removeprefix(_FAMILY)) for name in list(self._families.names))


class MemoryExpiringRows(ExpiringRows):
    """In memory: the next write removes expired rows."""

    persistent = False

    def __init__(self, ttl: int, clock: Callable[[], int]) -> None:
        super().__init__(ttl, clock)
        self._rows = MemoryRows()
        self._written: OrderedDict[bytes, int] = OrderedDict()
        """Keys by time of writing, the oldest first."""

    def count(self) -> int:
        """Return how many rows there are."""
        now = self.now()
        return sum(1 for _, data in self._rows.find(None, None, backward=False) if not self._is_over(data, now))

    def flush(self) -> None:
        """Do nothing: there are no files."""

    def close(self) -> None:
        """Let go of all rows."""
        self._rows.close()
        self._written.clear()

    def _read(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def _write(self, entries: list[Entry]) -> None:
        self._rows.put_all(entries)
        for key, data in entries:
            self._written.pop(key, None)
            if data is not None:
                self._written[key] = _time(data)

    def _scan(self, low: bytes | None, high: bytes | None, backward: bool) -> Iterator[tuple[bytes, bytes]]:  # noqa: FBT001
        return self._rows.find(low, high, backward)

    def _drop(self, now: int) -> None:
        while self._written and next(iter(self._written.values())) <= now - self._ttl:
            self._rows.put(self._written.popitem(last=False)[0], None)


def _stamp(time: int) -> bytes:
    return (time + _SIGN).to_bytes(_STAMP, "big")


def _time(data: bytes) -> int:
    return int.from_bytes(data[:_STAMP], "big") - _SIGN


def _name(number: int) -> str:
    return f"{_FAMILY}{number}"
