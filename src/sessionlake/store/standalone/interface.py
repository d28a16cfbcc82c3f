"""The interfaces of stores: Kafka Streams' stores, with the backward reads of KIP-617 and the session reads of KIP-94.

Methods have Kafka's names in snake case; methods that Java overloads by their arguments have a suffix. A user can subclass the
protocols for another store. Its backward reads raise UnsupportedOperationError until it implements them.

Bounds of keys and times are inclusive, a key bound of None is open, and a range that ends before it begins finds nothing. Swapping
bounds never turns an order around: the backward methods do. Which order forward is, each store says (docs/stores.md).
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from sessionlake.errors import UnsupportedOperationError
from sessionlake.store.standalone.iterators import StoreIterator
from sessionlake.store.standalone.keys import Time
from sessionlake.store.standalone.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")


class Windowed(NamedTuple, Generic[K]):
    """A key in a window: of a session store from the first to the last event, end included; of a window store end is the first time after."""

    key: K
    start: int
    end: int


class StateStore(Protocol):
    """The methods of all stores.

    On a closed store every call raises StoreClosedError, except `name`, `is_open`, `close` and the counts.
    """

    name: str
    """The store's name."""

    @property
    def persistent(self) -> bool:
        """Whether rows outlive the process."""

    @property
    def is_open(self) -> bool:
        """Whether the store has not been closed."""

    @property
    def open_iterators(self) -> int:
        """Iterators that are neither exhausted nor closed."""

    @property
    def dropped_total(self) -> int:
        """Puts that were refused as expired, since the store was opened."""

    @property
    def deserialised(self) -> int:
        """Values that were deserialised, since the store was opened."""

    def flush(self) -> None:
        """Write the rows in memory to files. Rows survive a killed process even without it."""

    def close(self) -> None:
        """End all iterators and release the store; in-memory rows are gone then. Again and again if need be."""

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Repeat a log's changes (`change_logged`), in their order; nothing is logged again, nor counted as dropped."""

    def __enter__(self) -> Self:
        """Return the store."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the store."""


class ReadOnlyKeyValueStore(StateStore, Protocol[K, V]):
    """Values by key. Ranges yield (key, value), forward in the order of the keys' bytes."""

    def get(self, key: K) -> V | None:
        """Return a key's value; None if there is none. NullKeyError for None."""

    def range(self, key_from: K | None, key_to: K | None) -> StoreIterator[K, V]:
        """Iterate over the keys from one to the other."""

    def all(self) -> StoreIterator[K, V]:
        """Iterate over all keys."""

    def prefix_scan(self, prefix: object, serde: Serde[Any] | None = None) -> StoreIterator[K, V]:
        """Iterate over the keys whose bytes begin with the prefix's, by the keys' serde or the one given."""

    def approximate_num_entries(self) -> int:
        """Return about how many keys there are; exact in memory."""

    def reverse_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[K, V]:
        """Iterate over what `range` does, backward."""
        raise _unsupported("reverse_range")

    def reverse_all(self) -> StoreIterator[K, V]:
        """Iterate over what `all` does, backward."""
        raise _unsupported("reverse_all")


class KeyValueStore(ReadOnlyKeyValueStore[K, V], Protocol[K, V]):
    """Values by key that can be changed."""

    def put(self, key: K, value: V | None) -> None:
        """Write a key's value; None removes the key."""

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Write a key's value if it has none, and return its value before."""

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Write many values, as `put` each; with a null key among them nothing is written. On disk all are written or none."""

    def delete(self, key: K) -> V | None:
        """Remove a key, and return the value that it has had."""


class ReadOnlyWindowStore(StateStore, Protocol[K, V]):
    """Values by key and start of a window. Reads of a key yield (start, value), others (Windowed, value).

    Retention: let S be the largest start that was ever put. A row is live while start > S - retention. Only live rows are returned.
    For example, with a retention of 10 and S = 25, the row of the window that starts at 15 is gone, and that of 16 is live.
    """

    def fetch_at(self, key: K, start: Time) -> V | None:
        """Return the value of a key's window; None if there is none. Of duplicates the first put counts."""

    def fetch(self, key: K, time_from: Time, time_to: Time) -> StoreIterator[int, V]:
        """Iterate over a key's windows that start within a time, earliest first."""

    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: Time, time_to: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over the windows of keys that start within a time."""

    def fetch_all(self, time_from: Time, time_to: Time) -> StoreIterator[Windowed[K], V]:
        """Iterate over all windows that start within a time."""

    def all(self) -> StoreIterator[Windowed[K], V]:
        """Iterate over all windows."""

    def backward_fetch(self, key: K, time_from: Time, time_to: Time) -> StoreIterator[int, V]:
        """Iterate over what `fetch` does, backward: latest first."""
        raise _unsupported("backward_fetch")

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: Time, time_to: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch_range` does, backward."""
        raise _unsupported("backward_fetch_range")

    def backward_fetch_all(self, time_from: Time, time_to: Time) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch_all` does, backward."""
        raise _unsupported("backward_fetch_all")

    def backward_all(self) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `all` does, backward."""
        raise _unsupported("backward_all")


class WindowStore(ReadOnlyWindowStore[K, V], Protocol[K, V]):
    """Values by key and start of a window that can be changed."""

    def put(self, key: K, value: V | None, start: Time) -> None:
        """Write the value of a key's window; None removes it, or does nothing in a store that keeps duplicates."""


class ReadOnlySessionStore(StateStore, Protocol[K, V]):
    """Aggregates by key and session. Iterators yield (Windowed, aggregate).

    Retention: let S be the largest end that was ever put. A session is live while end > S - retention. Only live sessions are
    returned.
    """

    def fetch(self, key: K) -> StoreIterator[Windowed[K], V]:
        """Iterate over a key's sessions, ascending by end."""

    def fetch_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[Windowed[K], V]:
        """Iterate over the sessions of keys."""

    def find_sessions(
        self, key: K, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over a key's sessions with end >= earliest_session_end and start <= latest_session_start."""
        raise _unsupported("find_sessions")

    def find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over the keys' sessions with end >= earliest_session_end and start <= latest_session_start."""
        raise _unsupported("find_sessions_range")

    def find_sessions_by_end(
        self, earliest_session_end: Time, latest_session_end: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over all sessions that end within a time; UnsupportedOperationError in a persistent store."""
        raise _unsupported("find_sessions_by_end")

    def fetch_session(self, key: K, start: Time, end: Time) -> V | None:
        """Return the aggregate of exactly this session; None if there is none."""
        raise _unsupported("fetch_session")

    def backward_fetch(self, key: K) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch` does, backward."""
        raise _unsupported("backward_fetch")

    def backward_fetch_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch_range` does, backward."""
        raise _unsupported("backward_fetch_range")

    def backward_find_sessions(
        self, key: K, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `find_sessions` does, backward."""
        raise _unsupported("backward_find_sessions")

    def backward_find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_session_end: Time, latest_session_start: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `find_sessions_range` does, backward."""
        raise _unsupported("backward_find_sessions_range")


class SessionStore(ReadOnlySessionStore[K, V], Protocol[K, V]):
    """Aggregates by key and session that can be changed."""

    def put(self, session: Windowed[K], aggregate: V | None) -> None:
        """Write a session's aggregate; None removes it."""

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session, if it is there."""


def _unsupported(method: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(f"store: this one has no {method}(); choose a store of `Stores` that has it")
