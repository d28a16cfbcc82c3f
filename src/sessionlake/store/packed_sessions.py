"""The engine's sessions as a read-only session store: the calls of KIP-94 and KIP-617 over values that hold many sessions each."""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from sessionlake.errors import UnsupportedOperationError
from sessionlake.store.layout import each
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.standalone.interface import ReadOnlySessionStore
from sessionlake.store.standalone.keys import LEAST, SESSION_KEYS
from sessionlake.store.standalone.rows import TimedRows
from sessionlake.store.standalone.serdes import Coded, Serdes
from sessionlake.store.standalone.sessions import SessionStoreOfRows
from sessionlake.store.standalone.times import units

_NUMBERS = Struct("<qq")


class PackedSession(NamedTuple):
    """A session's number of events, its revision and its packed aggregate states."""

    event_count: int
    revision: int
    state: bytes


class PackedRows(TimedRows):
    """Rows of a database whose values are a key's sessions in a segment, in order of segment, key, end and start.

    Times are microseconds. What has expired the engine decides: all that is stored is live. A segment's values of a range of keys
    are read at once, when the iterator reaches it; sessions of a value are taken apart one by one.
    """

    persistent = True
    keys = SESSION_KEYS
    dropped = 0
    live_from = LEAST

    def __init__(self, db: RocksSegments, interval_us: int) -> None:
        self._db = db
        self._interval = interval_us

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        """Return a session's event count, revision and state."""
        found = self.find(key, key, time, time, backward=False)
        return next((value for _, _, start, value in found if start == rank), None)

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001 - as in the protocol
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield the sessions, segment by segment."""
        first, last = time_from // self._interval, time_to // self._interval
        numbers = [number for number in self._db.segments if first <= number <= last]
        for number in reversed(numbers) if backward else numbers:
            for key, value in self._values(number, key_from, key_to, backward=backward):
                for start, end, rest in each(value, backward=backward):
                    if time_from <= end <= time_to:
                        yield key, end, start, rest

    def is_empty(self) -> bool:
        """Say whether there is no session."""
        return not any(self._db.items(number) for number in self._db.segments)

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Refuse: a commit writes."""
        raise _read_only("put")

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Refuse: a commit removes."""
        raise _read_only("remove")

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Refuse: the engine restores from tables."""
        raise _read_only("restore")

    def flush(self) -> None:
        """Do nothing: nothing is written here."""

    def close(self) -> None:
        """Do nothing: the database is the engine's to close."""

    def _values(
        self, number: int, key_from: bytes | None, key_to: bytes | None, *, backward: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        if number not in self._db.segments:  # dropped since the iterator was made
            return
        if key_from is not None and key_from == key_to:
            (value,) = self._db.get(number, [key_from])
            if value is not None:
                yield key_from, value
            return
        items = self._db.items(number, key_from, key_to)
        yield from reversed(items) if backward else items


def packed_sessions(name: str, db: RocksSegments, interval_us: int) -> ReadOnlySessionStore[str, PackedSession]:
    """Return the sessions of an open database of the engine's, to be read as those of any session store."""
    values = Coded("packed session", _written, _read)
    return SessionStoreOfRows(name, PackedRows(db, interval_us), Serdes.string(), values, units("us"))


def _written(value: PackedSession) -> bytes:
    return _NUMBERS.pack(value.event_count, value.revision) + value.state


def _read(data: bytes) -> PackedSession:
    event_count, revision = _NUMBERS.unpack_from(data)
    return PackedSession(event_count, revision, data[_NUMBERS.size :])


def _read_only(call: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"store: {call}() is not for the engine's sessions; send a correction to the pipeline"
    )
