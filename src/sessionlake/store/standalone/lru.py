"""Rows of the keys that were used last, in memory, up to a number of them."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from sessionlake.store.standalone.memory import MemoryRows


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
        """Write one value, which uses its key; None removes the key. Above the bound the eldest row is evicted."""
        gone = self._put(key, value)
        if gone is not None and self.evicted is not None:
            self.evicted(*gone)

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values one by one."""
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
