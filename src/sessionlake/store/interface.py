"""The session store's interface, as in KIP-94 (SessionStore, ReadOnlySessionStore) and KIP-617 (backward iteration).

One session a call: for queries and tests. The stream works on many keys at once (`SegmentedSessionStore.find_many`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, order=True)
class Windowed:
    """A session's identity in the store: its key and the closed interval of its event times, microseconds."""

    key: str
    start_us: int
    end_us: int


@dataclass(frozen=True)
class StoredSession:
    """A stored session: its window, its number of events, its revision and its packed aggregate states."""

    window: Windowed
    event_count: int
    revision: int
    state: bytes


class ReadOnlySessionStore(Protocol):
    """Queries of the sessions of one key or of a range of keys.

    Forward is ascending by key, then end, then start; backward is the exact reverse. Ranges of keys and of times are
    inclusive; a key bound of None is open.
    """

    def fetch(self, key: str) -> Iterator[StoredSession]:
        """Yield all sessions of the key."""

    def backward_fetch(self, key: str) -> Iterator[StoredSession]:
        """Yield all sessions of the key, latest first."""

    def find_sessions(
        self, key: str, earliest_session_end_us: int, latest_session_start_us: int
    ) -> Iterator[StoredSession]:
        """Yield the sessions with end >= earliest_session_end_us and start <= latest_session_start_us."""

    def backward_find_sessions(
        self, key: str, earliest_session_end_us: int, latest_session_start_us: int
    ) -> Iterator[StoredSession]:
        """Yield what `find_sessions` does, latest first."""

    def fetch_range(self, key_from: str | None, key_to: str | None) -> Iterator[StoredSession]:
        """Yield all sessions of the keys."""

    def backward_fetch_range(self, key_from: str | None, key_to: str | None) -> Iterator[StoredSession]:
        """Yield what `fetch_range` does, backward."""

    def find_sessions_range(
        self, key_from: str | None, key_to: str | None, earliest_session_end_us: int, latest_session_start_us: int
    ) -> Iterator[StoredSession]:
        """Yield the keys' sessions with end >= earliest_session_end_us and start <= latest_session_start_us."""

    def backward_find_sessions_range(
        self, key_from: str | None, key_to: str | None, earliest_session_end_us: int, latest_session_start_us: int
    ) -> Iterator[StoredSession]:
        """Yield what `find_sessions_range` does, backward."""

    def fetch_session(self, key: str, start_us: int, end_us: int) -> StoredSession | None:
        """Return the session with exactly this window, or None."""


class SessionStore(ReadOnlySessionStore, Protocol):
    """A store of sessions that can be changed, one session at a time."""

    def put(self, session: StoredSession) -> None:
        """Write a session; one with the same window is replaced."""

    def remove(self, window: Windowed) -> None:
        """Remove the session with this window, if there is one."""
