"""Rows whose changes are logged, each after it was made. KIP-94's stores are restored from such a log."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from sessionlake.store.standalone.expiring import ExpiringRows
from sessionlake.store.standalone.keys import KeyValueRows, Rows, TimedRows
from sessionlake.store.standalone.memory import LruRows

Sink = Callable[[bytes, bytes | None], None]
"""Takes a row's key and value, as bytes; None for a removed row."""


class _Logged(Rows):
    def __init__(self, rows: Rows, sink: Sink) -> None:
        self._logged = rows
        self._sink = sink
        self.persistent = rows.persistent

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again, without logging it again."""
        self._logged.restore(records)

    def flush(self) -> None:
        """Write the rows in memory to files."""
        self._logged.flush()

    def close(self) -> None:
        """Release the files and memory."""
        self._logged.close()


class LoggedRows(_Logged, KeyValueRows):
    """Values by key, with a log; rows that an LRU store evicts are logged as removed."""

    def __init__(self, rows: KeyValueRows, sink: Sink) -> None:
        super().__init__(rows, sink)
        self._rows = rows
        if isinstance(rows, LruRows):
            rows.evicted = _both(rows.evicted, sink)

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value."""
        return self._rows.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes."""
        self._rows.put(key, value)
        self._sink(key, value)

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values, then log them in their order."""
        self._rows.put_all(entries)
        for key, value in entries:
            self._sink(key, value)

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with low <= key < high."""
        return self._rows.find(low, high, backward)

    def count(self) -> int:
        """Return about how many rows there are."""
        return self._rows.count()


class LoggedTimedRows(_Logged, TimedRows):
    """Rows with times, with a log; rows refused as expired are not logged."""

    def __init__(self, rows: TimedRows, sink: Sink) -> None:
        super().__init__(rows, sink)
        self._rows = rows
        self.keys = rows.keys

    @property
    def dropped(self) -> int:  # type: ignore[override]  # read only here
        """Rows that were refused as expired."""
        return self._rows.dropped

    @property
    def live_from(self) -> int:
        """The least time that is not expired."""
        return self._rows.live_from

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Write a row."""
        written = self._rows.put(key, time, rank, value)
        if written is not None:
            self._sink(self.keys.row(key, time, written), value)
        return written

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Remove a row."""
        self._rows.delete(key, time, rank)
        self._sink(self.keys.row(key, time, rank), None)

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        """Return a row's value."""
        return self._rows.get(key, time, rank)

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield the rows within bounds."""
        return self._rows.find(key_from, key_to, time_from, time_to, backward)

    def is_empty(self) -> bool:
        """Say whether there is no row."""
        return self._rows.is_empty()


def _both(first: Callable[[bytes, bytes], None] | None, sink: Sink) -> Callable[[bytes, bytes], None]:
    def evicted(key: bytes, value: bytes) -> None:
        sink(key, None)
        if first is not None:
            first(key, value)

    return evicted


def logged(rows: Rows, sink: Sink) -> Rows:
    """Return rows of any kind with a log of their changes."""
    if isinstance(rows, ExpiringRows):
        rows.changed = sink  # of values behind their times, which restored rows keep
        return rows
    if hasattr(rows, "live_from"):
        return LoggedTimedRows(cast("TimedRows", rows), sink)
    return LoggedRows(cast("KeyValueRows", rows), sink)
