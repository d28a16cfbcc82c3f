"""The session store that users open, over rows on disk or in memory."""

from collections.abc import Iterator
from typing import cast

from sessionlake.errors import NullKeyError, UnsupportedOperationError
from sessionlake.store.standalone.base import K, StoreOfRows, V
from sessionlake.store.standalone.interface import SessionStore, Windowed
from sessionlake.store.standalone.iterators import OpenIterators, StoreIterator
from sessionlake.store.standalone.keys import LARGEST, LEAST, Time, TimedRows, Units
from sessionlake.store.standalone.serdes import Serde


class SessionStoreOfRows(StoreOfRows[K, V, TimedRows], SessionStore[K, V]):
    """A session store: a row's time is the session's end, its rank the session's start."""

    def __init__(
        self,
        name: str,
        rows: TimedRows,
        keys: Serde[K],
        values: Serde[V],
        settings: Units,
        iterators: OpenIterators | None = None,
    ) -> None:
        super().__init__(name, rows, keys, values, iterators)
        self.settings = settings
        self._time = settings.time

    @property
    def dropped_total(self) -> int:
        """Puts that were refused as expired."""
        return self.rows.dropped

    def put(self, session: Windowed[K], aggregate: V | None) -> None:
        """Write a session's aggregate; None removes it."""
        key, end, start = self._row(session)
        data = self._data(aggregate)
        if data is None:
            self.rows.delete(key, end, start)
        else:
            self.rows.put(key, end, start, data)

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session, if it is there."""
        self.rows.delete(*self._row(session))

    def fetch_session(self, key: K, start: Time, end: Time) -> V | None:
        """Return the aggregate of exactly this session; None if there is none."""
        name, first, last = self._key(key), self._time(start), self._time(end)
        data = self.rows.get(name, last, first) if last >= self.rows.live_from else None
        return None if data is None else self._values.read(data)

    def fetch(self, key: K) -> StoreIterator[Windowed[K], V]:
        """Iterate over a key's sessions, ascending by end."""
        return self._of_key(key, LEAST, LARGEST, backward=False)

    def backward_fetch(self, key: K) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch` does, backward."""
        return self._of_key(key, LEAST, LARGEST, backward=True)

    def fetch_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[Windowed[K], V]:
        """Iterate over the sessions of keys. In memory ValueError if the range ends before it begins and there are sessions."""
        return self._fetched(key_from, key_to, backward=False)

    def backward_fetch_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch_range` does, backward; ValueError as there."""
        return self._fetched(key_from, key_to, backward=True)

    def find_sessions(
        self, key: K, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over a key's sessions with end >= earliest_session_end and start <= latest_session_start."""
        return self._of_key(key, earliest_session_end, latest_session_start, backward=False)

    def backward_find_sessions(
        self, key: K, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `find_sessions` does, backward."""
        return self._of_key(key, earliest_session_end, latest_session_start, backward=True)

    def find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over the keys' sessions with end >= earliest_session_end and start <= latest_session_start."""
        low, high = self._bound(key_from), self._bound(key_to)
        return self._of_keys(low, high, earliest_session_end, latest_session_start, backward=False)

    def backward_find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `find_sessions_range` does, backward."""
        low, high = self._bound(key_from), self._bound(key_to)
        return self._of_keys(low, high, earliest_session_end, latest_session_start, backward=True)

    def find_sessions_by_end(
        self, earliest_session_end: Time, latest_session_end: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over all sessions that end within a time; UnsupportedOperationError in a persistent store."""
        if self.persistent:
            raise UnsupportedOperationError(
                f"store {self.name!r}: find_sessions_by_end() needs a store in memory; "
                "find_sessions_range(None, None, ...) finds by end and start"
            )
        first, last = max(self._time(earliest_session_end), self.rows.live_from), self._time(latest_session_end)
        return self._iterators.over(self._sessions(self.rows.find(None, None, first, last, False), LARGEST), first)

    def _row(self, session: Windowed[K] | None) -> tuple[bytes, int, int]:
        """Return a session's key, end and start."""
        if session is None:
            raise NullKeyError(f"store {self.name!r}: the session is None; give a Windowed")
        return self._key(session.key), self._time(session.end), self._time(session.start)

    def _fetched(self, key_from: K | None, key_to: K | None, *, backward: bool) -> StoreIterator[Windowed[K], V]:
        low, high = self._bound(key_from), self._bound(key_to)
        # Kafka's, whose sorted maps refuse such bounds in this one place.
        if not self.persistent and low is not None and high is not None and low > high and not self.rows.is_empty():
            raise ValueError(f"store {self.name!r}: key range from {key_from!r} to {key_to!r} ends before it begins")
        return self._of_keys(low, high, LEAST, LARGEST, backward=backward)

    def _of_key(
        self, key: K, earliest_end: Time, latest_start: Time, *, backward: bool
    ) -> StoreIterator[Windowed[K], V]:
        name = self._key(key)
        return self._of_keys(name, name, earliest_end, latest_start, backward=backward)

    def _of_keys(
        self, low: bytes | None, high: bytes | None, earliest_end: Time, latest_start: Time, *, backward: bool
    ) -> StoreIterator[Windowed[K], V]:
        first, latest = max(self._time(earliest_end), self.rows.live_from), self._time(latest_start)
        return self._iterators.over(self._sessions(self.rows.find(low, high, first, LARGEST, backward), latest), first)

    def _sessions(
        self, rows: Iterator[tuple[bytes, int, int, bytes]], latest_start: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        key_of, value_of = self._keys.deserialize, self._values.read
        name, last = cast("K", None), None
        for key, end, start, data in rows:
            if start <= latest_start:
                if key != last:
                    name, last = key_of(key), key
                yield Windowed(name, start, end), value_of(data)
