"""Key-value stores: rows on disk, and the store that users open, over rows on disk or in memory."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sessionlake.store.standalone.base import K, StoreOfRows, V
from sessionlake.store.standalone.families import Families, Layout
from sessionlake.store.standalone.interface import KeyValueStore
from sessionlake.store.standalone.iterators import StoreIterator
from sessionlake.store.standalone.keys import KeyValueRows, after_prefix
from sessionlake.store.standalone.serdes import Serde

_FAMILY = "rows"


class RocksRows(KeyValueRows):
    """Values by key on disk."""

    persistent = True

    def __init__(self, path: Path) -> None:
        self._families = Families(path, Layout("key-value"), _FAMILY)

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value."""
        return self._families.get(_FAMILY, key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes."""
        self._families.put(_FAMILY, key, value)

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values: all of them or none."""
        self._families.write([(_FAMILY, key, value) for key, value in entries], {})

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again, in a single write."""
        self.put_all(list(records))

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with low <= key < high."""
        return self._families.items(_FAMILY, low, high, backward)

    def count(self) -> int:
        """Return RocksDB's estimate of the number of rows."""
        return self._families.estimate(_FAMILY)

    def flush(self) -> None:
        """Write the rows in memory to files."""
        self._families.flush()

    def close(self) -> None:
        """Release the database."""
        self._families.close()


class KeyValueStoreOfRows(StoreOfRows[K, V, KeyValueRows], KeyValueStore[K, V]):
    """A key-value store, in the order of the keys' bytes."""

    def get(self, key: K) -> V | None:
        """Return a key's value; None if there is none."""
        data = self.rows.get(self._key(key))
        return None if data is None else self._values.read(data)

    def put(self, key: K, value: V | None) -> None:
        """Write a key's value; None removes the key."""
        self.rows.put(self._key(key), self._data(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Write a key's value if it has none, and return its value before."""
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Write many values; with a null key among them nothing is written."""
        self.rows.put_all([(self._key(key), self._data(value)) for key, value in entries])

    def delete(self, key: K) -> V | None:
        """Remove a key, and return the value that it has had."""
        old = self.get(key)
        self.rows.put(self._key(key), None)
        return old

    def range(self, key_from: K | None, key_to: K | None) -> StoreIterator[K, V]:
        """Iterate over the keys from one to the other, ascending."""
        return self._between(key_from, key_to, backward=False)

    def reverse_range(self, key_from: K | None, key_to: K | None) -> StoreIterator[K, V]:
        """Iterate over what `range` does, descending."""
        return self._between(key_from, key_to, backward=True)

    def all(self) -> StoreIterator[K, V]:
        """Iterate over all keys, ascending."""
        return self._between(None, None, backward=False)

    def reverse_all(self) -> StoreIterator[K, V]:
        """Iterate over all keys, descending."""
        return self._between(None, None, backward=True)

    def prefix_scan(self, prefix: object, serde: Serde[Any] | None = None) -> StoreIterator[K, V]:
        """Iterate over the keys whose bytes begin with the prefix's, ascending; `serde` if a prefix is no key."""
        low = self._prefix(prefix, serde)
        return self._over(low, after_prefix(low), backward=False)

    def approximate_num_entries(self) -> int:
        """Return about how many keys there are; exact in memory."""
        return self.rows.count()

    def _prefix(self, prefix: object, serde: Serde[Any] | None) -> bytes:
        key: K = prefix  # type: ignore[assignment]  # a key's type, unless a serde says otherwise
        if prefix is None or serde is None:
            return self._key(key)
        return serde.serialize(prefix) or b""

    def _between(self, key_from: K | None, key_to: K | None, *, backward: bool) -> StoreIterator[K, V]:
        high = self._bound(key_to)
        return self._over(self._bound(key_from), None if high is None else high + b"\0", backward=backward)

    def _over(self, low: bytes | None, high: bytes | None, *, backward: bool) -> StoreIterator[K, V]:
        return self._iterators.over(self._pairs(self.rows.find(low, high, backward)))

    def _pairs(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        key_of, value_of = self._keys.deserialize, self._values.read
        for key, data in rows:
            yield key_of(key), value_of(data)
