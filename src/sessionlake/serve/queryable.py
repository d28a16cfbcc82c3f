"""A view as the read-only stores that users know: what `QueryableStoreTypes.sessionStore()` and `keyValueStore()` are in Kafka Streams."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any

from sessionlake.errors import ConfigError, UnsupportedOperationError
from sessionlake.serve.found import Found, Packed
from sessionlake.store.standalone.interface import ReadOnlyKeyValueStore, ReadOnlySessionStore
from sessionlake.store.standalone.key_value import KeyValueStoreOfRows
from sessionlake.store.standalone.keys import LARGEST, LEAST, SESSION_KEYS
from sessionlake.store.standalone.rows import KeyValueRows, Rows, TimedRows
from sessionlake.store.standalone.serdes import Serde, Serdes
from sessionlake.store.standalone.sessions import SessionStoreOfRows
from sessionlake.store.standalone.times import units
from sessionlake.warehouse.changelog import LIVE_ROWS, SESSIONS, TABLE

if TYPE_CHECKING:
    from sessionlake.serve.replica import View

Row = dict[str, Any]
_OF_KEYS = (SESSIONS.key, SESSIONS.start, SESSIONS.end, SESSIONS.id, TABLE.key)


def session_store(view: "View") -> ReadOnlySessionStore[str, Row]:
    """Return a view of sessions as a session store."""
    return SessionStoreOfRows("sessions", _Sessions(view), Serdes.string(), RowSerde(view, unpack_found), units("us"))


def key_value_store(view: "View") -> ReadOnlyKeyValueStore[str, Row]:
    """Return a view of a keyed table as a key-value store."""
    return KeyValueStoreOfRows("table", _Table(view), Serdes.string(), RowSerde(view, _whole))


def require(view: "View", operator: str, computed: str) -> None:
    """Raise ConfigError where a view is of another operator's rows."""
    if computed != operator:
        raise ConfigError(f"{operator}: batch {view.batch_id} is of a pipeline with [{computed}]; ask for its store")


class ReadOnlyRows(Rows):
    """Rows of a view, of the shards that are here: NotLocalError for others. A commit writes them, and nobody else."""

    persistent = True

    def __init__(self, view: "View") -> None:
        self._view = view

    def _items(
        self,
        numbers: Iterable[int],
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - as in the protocols
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from low to high, both inclusive, with their values in some segments of all shards."""
        shards = self._view.segments()
        each = [shard.items(number, low, high, backward=backward) for number in numbers for shard in shards]
        return heapq.merge(*each, key=itemgetter(0), reverse=backward)

    def _numbers(self) -> list[int]:
        """Return the segments that any of the shards has rows in, ascending."""
        found = set(chain.from_iterable(shard.segments for shard in self._view.segments()))
        return sorted(filter(self._view.decoder.has, found))

    def _found(self, key: bytes, value: bytes) -> list[Found]:
        return self._view.decoder.found(Packed([key], [0], [value]))

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Refuse: a commit does that."""
        raise _refused("restore")

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ReadOnlyTimedRows(ReadOnlyRows, TimedRows):
    """The same of rows that have times."""

    dropped = 0

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Refuse: a commit does that."""
        raise _refused("put")

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Refuse: a commit does that."""
        raise _refused("remove")

    def is_empty(self) -> bool:
        """Say whether nothing is stored."""
        return next(self.find(None, None, LEAST, LARGEST, backward=False), None) is None


class _Sessions(ReadOnlyTimedRows):
    """Sessions by segment of the end, key and end; of one key by end."""

    keys = SESSION_KEYS
    live_from = LEAST

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        found = self.find(key, key, time, time, backward=False)
        return next((data for _, _, start, data in found if start == rank), None)

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        for key, found in self._of_keys(key_from, key_to, backward):
            for one in reversed(found) if backward else found:
                if time_from <= one.end_us <= time_to:
                    yield key, one.end_us, one.start_us, pack_found(one)

    def _of_keys(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, list[Found]]]:
        if key_from is not None and key_from == key_to:
            yield key_from, self._view.decoder.found(self._view.packed([key_from.decode()]))
            return
        numbers = self._numbers()
        for number in reversed(numbers) if backward else numbers:
            for key, value in self._items([number], key_from, key_to, backward):
                yield key, self._found(key, value)


class _Table(ReadOnlyRows, KeyValueRows):
    """Rows of a keyed table by key, in whatever segments they lie."""

    def get(self, key: bytes) -> bytes | None:
        found = self._view.decoder.found(self._view.packed([key.decode()]))
        return found[0].packed if found else None

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._items(self._numbers(), low, high, backward):
            if key != high and self._found(key, value):
                yield key, value

    def count(self) -> int:
        live = self._view.commit.state.get(LIVE_ROWS)
        return sum(1 for _ in self.find(None, None, backward=False)) if live is None else int(live)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Refuse: a commit does that."""
        raise _refused("put")

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Refuse: a commit does that."""
        raise _refused("put_all")


class RowSerde(Serde[Row]):
    """Rows by the names of the columns, less those that the key says; times in microseconds."""

    def __init__(self, view: "View", found: Callable[[bytes], Found], hidden: Collection[str] = _OF_KEYS) -> None:
        self._told, self._found, self._hidden = view.decoder.told, found, hidden

    def serialize(self, value: Row) -> bytes:
        """Refuse: a commit does that."""
        raise _refused("put")

    def deserialize(self, data: bytes) -> Row:
        """Return the row that `found` makes of bytes."""
        [row] = self._told([self._found(data)], "us")
        return {name: value for name, value in row.items() if name not in self._hidden}


def pack_found(found: Found) -> bytes:
    """Return a row's head and state as one value, which `unpack_found` reads."""
    return bytes([len(found.head)]) + Struct(f"<{len(found.head)}q").pack(*found.head) + found.packed


def unpack_found(data: bytes) -> Found:
    """Return the row of `pack_found`, less its key."""
    head = Struct(f"<{data[0]}q")
    fields = head.unpack_from(data, 1)
    return Found("", fields[0], fields[1], fields, data[1 + head.size :])


def _whole(data: bytes) -> Found:
    return Found("", 0, 0, (), data)


def _refused(call: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(f"store: {call}() is not for a pipeline's own; send it events or a correction")
