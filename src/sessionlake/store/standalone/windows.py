"""The window store that users open, over rows on disk or in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from sessionlake.store.standalone.base import K, StoreOfRows, V
from sessionlake.store.standalone.interface import Windowed, WindowStore
from sessionlake.store.standalone.iterators import OpenIterators, StoreIterator
from sessionlake.store.standalone.keys import LARGEST, LEAST, Time, TimedRows, Units
from sessionlake.store.standalone.serdes import Serde


@dataclass(frozen=True)
class WindowSettings:
    """A window store's settings besides its rows; `size` is in its unit."""

    units: Units
    size: int
    retain_duplicates: bool


class WindowStoreOfRows(StoreOfRows[K, V, TimedRows], WindowStore[K, V]):
    """A window store: a row's time is the window's start, its rank the number of a duplicate."""

    def __init__(
        self,
        name: str,
        rows: TimedRows,
        keys: Serde[K],
        values: Serde[V],
        settings: WindowSettings,
        iterators: OpenIterators | None = None,
    ) -> None:
        super().__init__(name, rows, keys, values, iterators)
        self.settings = settings
        self._time = settings.units.time

    @property
    def dropped_total(self) -> int:
        """Puts that were refused as expired."""
        return self.rows.dropped

    def put(self, key: K, value: V | None, start: Time) -> None:
        """Write the value of a key's window; None removes it, or does nothing in a store that keeps duplicates."""
        name, data, time = self._key(key), self._data(value), self._time(start)
        duplicates = self.settings.retain_duplicates
        if data is not None:
            self.rows.put(name, time, None if duplicates else 0, data)
        elif not duplicates:
            self.rows.delete(name, time, 0)

    def fetch_at(self, key: K, start: Time) -> V | None:
        """Return the value of a key's window; None if there is none. Of duplicates the first put counts."""
        name, time = self._key(key), self._time(start)
        data = self.rows.get(name, time, 0) if time >= self.rows.live_from else None
        return None if data is None else self._values.read(data)

    def fetch(self, key: K, time_from: Time, time_to: Time) -> StoreIterator[int, V]:
        """Iterate over a key's windows that start within a time, earliest first."""
        return self._of_key(key, time_from, time_to, backward=False)

    def backward_fetch(self, key: K, time_from: Time, time_to: Time) -> StoreIterator[int, V]:
        """Iterate over what `fetch` does, latest first."""
        return self._of_key(key, time_from, time_to, backward=True)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: Time, time_to: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over the windows of keys that start within a time."""
        return self._of_keys(self._bound(key_from), self._bound(key_to), time_from, time_to, backward=False)

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: Time, time_to: Time
    ) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch_range` does, backward."""
        return self._of_keys(self._bound(key_from), self._bound(key_to), time_from, time_to, backward=True)

    def fetch_all(self, time_from: Time, time_to: Time) -> StoreIterator[Windowed[K], V]:
        """Iterate over all windows that start within a time."""
        return self._of_keys(None, None, time_from, time_to, backward=False)

    def backward_fetch_all(self, time_from: Time, time_to: Time) -> StoreIterator[Windowed[K], V]:
        """Iterate over what `fetch_all` does, backward."""
        return self._of_keys(None, None, time_from, time_to, backward=True)

    def all(self) -> StoreIterator[Windowed[K], V]:
        """Iterate over all windows."""
        return self._of_keys(None, None, LEAST, LARGEST, backward=False)

    def backward_all(self) -> StoreIterator[Windowed[K], V]:
        """Iterate over all windows, backward."""
        return self._of_keys(None, None, LEAST, LARGEST, backward=True)

    def _of_key(self, key: K, time_from: Time, time_to: Time, *, backward: bool) -> StoreIterator[int, V]:
        name = self._key(key)
        first, last = max(self._time(time_from), self.rows.live_from), self._time(time_to)
        return self._iterators.over(self._values_of(self.rows.find(name, name, first, last, backward)), first)

    def _of_keys(
        self, low: bytes | None, high: bytes | None, time_from: Time, time_to: Time, *, backward: bool
    ) -> StoreIterator[Windowed[K], V]:
        first, last = max(self._time(time_from), self.rows.live_from), self._time(time_to)
        return self._iterators.over(self._windows_of(self.rows.find(low, high, first, last, backward)), first)

    def _values_of(self, rows: Iterator[tuple[bytes, int, int, bytes]]) -> Iterator[tuple[int, V]]:
        value_of = self._values.read
        for _, start, _, data in rows:
            yield start, value_of(data)

    def _windows_of(self, rows: Iterator[tuple[bytes, int, int, bytes]]) -> Iterator[tuple[Windowed[K], V]]:
        key_of, value_of, size = self._keys.deserialize, self._values.read, self.settings.size
        for key, start, _, data in rows:
            yield Windowed(key_of(key), start, min(start + size, LARGEST)), value_of(data)
