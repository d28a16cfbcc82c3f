"""The common base of all kinds of stores: name, serdes, iterators, opening and closing."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, cast

from sessionlake.errors import NullKeyError, StoreClosedError, StoreError
from sessionlake.store.standalone.iterators import OpenIterators
from sessionlake.store.standalone.keys import Rows
from sessionlake.store.standalone.serdes import Serde, Values

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Rows)


class _Closed:
    """Stands in for the rows of a closed store, so that no call has to ask whether the store is open."""

    def __init__(self, name: str, *, persistent: bool) -> None:
        self._name = name
        self.persistent = persistent

    def __getattr__(self, attribute: str) -> NoReturn:
        raise StoreClosedError(f"store {self._name!r} is closed; open it again")


class StoreOfRows(Generic[K, V, R]):
    """A store over rows of bytes. Any thread may read, one at a time may write."""

    def __init__(
        self, name: str, rows: R, keys: Serde[K], values: Serde[V], iterators: OpenIterators | None = None
    ) -> None:
        self.name = name
        self.rows = rows
        self._keys = keys
        self._values = Values(values)
        self._iterators = OpenIterators() if iterators is None else iterators
        self._serialize_key = keys.serialize

    @property
    def persistent(self) -> bool:
        """Whether rows outlive the process."""
        return self.rows.persistent

    @property
    def is_open(self) -> bool:
        """Whether the store has not been closed."""
        return not isinstance(self.rows, _Closed)

    @property
    def open_iterators(self) -> int:
        """Iterators that are neither exhausted nor closed."""
        return len(self._iterators)

    @property
    def dropped_total(self) -> int:
        """Puts that were refused as expired."""
        return 0

    @property
    def deserialised(self) -> int:
        """Values that were deserialised."""
        return self._values.deserialised

    def flush(self) -> None:
        """Write the rows in memory to files."""
        self.rows.flush()

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Do again the changes of a log, in their order."""
        self.rows.restore(records)

    def close(self) -> None:
        """End all iterators and release the store."""
        if self.is_open:
            rows, self.rows = self.rows, cast("R", cast("Any", _Closed(self.name, persistent=self.rows.persistent)))
            self._iterators.close()
            rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _key(self, key: K | None) -> bytes:
        """Return a key's bytes; NullKeyError for None."""
        if key is None:
            raise NullKeyError(f"store {self.name!r}: the key is None; give one")
        data = self._serialize_key(key)
        if data is None:
            raise StoreError(f"store {self.name!r}: the serde makes nothing of key {key!r}; keys need bytes")
        return data

    def _bound(self, key: K | None) -> bytes | None:
        """Return a bound's bytes; None is open."""
        return None if key is None else self._key(key)

    def _data(self, value: V | None) -> bytes | None:
        """Return a value's bytes; None of None."""
        return None if value is None else self._values.serialize(value)
