"""Iterators over a store: lazy, closeable, and ended when the store is closed."""

from collections.abc import Callable, Iterator
from threading import Lock
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import WeakSet

from sessionlake.errors import NoSuchElementError

K = TypeVar("K")
V = TypeVar("V")


class StoreIterator(Iterator[tuple[K, V]], Generic[K, V]):
    """Pairs of a key and a value. Nothing is read before the first call of `next`, `has_next` or `peek_next_key`.

    It is weakly consistent: writes never make it fail; it shows all that was there when it reached the row's segment and was not
    removed since; later writes it may show or not. Exhausted or closed it has no more rows, and holds nothing of the store. One that is
    not used up should be closed, best by `with`; one that is let go of is closed by that. For one thread at a time.
    """

    __slots__ = ("__weakref__", "_ended", "_next", "_rows", "pinned")

    def __init__(
        self, rows: Iterator[tuple[K, V]], ended: Callable[["StoreIterator[Any, Any]"], None], pinned: int | None = None
    ) -> None:
        self._rows = rows
        self._ended = ended
        self._next: tuple[K, V] | None = None
        self.pinned = pinned
        """The earliest time that it may still show, if the store must keep rows for it."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[K, V]:
        row = self._next
        if row is None:
            row = next(self._rows, None)
            if row is None:
                self.close()
                raise StopIteration
            return row
        self._next = None
        return row

    def has_next(self) -> bool:
        """Say whether there is another row, which is read but stays the next one."""
        if self._next is None:
            self._next = next(self._rows, None)
            if self._next is None:
                self.close()
        return self._next is not None

    def peek_next_key(self) -> K:
        """Return the next row's key without going on; NoSuchElementError if there is none."""
        if self._next is None and not self.has_next():
            raise NoSuchElementError("iterator: there is no next key; ask has_next() first")
        assert self._next is not None  # noqa: S101 - has_next() has read it
        return self._next[0]

    def close(self) -> None:
        """End the iterator, and let go of all that it holds; again and again if need be."""
        self._rows = iter(())
        self._next = None
        self._ended(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class OpenIterators:
    """A store's iterators that are neither exhausted nor closed."""

    def __init__(self) -> None:
        # Weakly held: a forgotten iterator must not keep a database's lock, nor rows in memory.
        self._open: WeakSet[StoreIterator[Any, Any]] = WeakSet()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._all())

    def over(self, rows: Iterator[tuple[K, V]], pinned: int | None = None) -> StoreIterator[K, V]:
        """Return an iterator over rows, and know of it until it ends."""
        made = StoreIterator(rows, self._ended, pinned)
        with self._lock:
            self._open.add(made)
        return made

    def pinned(self) -> int | None:
        """Return the earliest time that an open iterator may still show; None if none keeps rows."""
        return min((found.pinned for found in self._all() if found.pinned is not None), default=None)

    def close(self) -> None:
        """End all of them."""
        for iterator in self._all():
            iterator.close()

    def _ended(self, iterator: StoreIterator[Any, Any]) -> None:
        with self._lock:
            self._open.discard(iterator)

    def _all(self) -> list[StoreIterator[Any, Any]]:
        with self._lock:
            return list(self._open)
