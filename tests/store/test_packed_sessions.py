"""The engine's sessions pass the contract of session stores, where they have what it asks for."""

import struct
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from sessionlake.errors import UnsupportedOperationError
from sessionlake.store.interface import StoredSession
from sessionlake.store.interface import Windowed as PackedWindow
from sessionlake.store.packed_sessions import PackedRows, PackedSession, packed_sessions
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.store.standalone.sessions import SessionStoreOfRows
from sessionlake.store.standalone.times import units
from sessionlake.stores import Serdes, Windowed
from tests.store.contracts.session import SessionContract

directory = TemporaryDirectory()


class WritableRows(PackedRows):
    """For the contract, which fills its stores by `put`. Values are packed here from what `store/layout.py` says of them."""

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        assert rank is not None
        self.rewrite(key, time, rank, [(time, rank, value)])
        return rank

    def delete(self, key: bytes, time: int, rank: int) -> None:
        self.rewrite(key, time, rank, [])

    def rewrite(self, key: bytes, end: int, start: int, added: list[tuple[int, int, bytes]]) -> None:
        number = end // self._interval
        first, last = number * self._interval, (number + 1) * self._interval - 1
        kept = [
            (e, s, value[16:]) for _, e, s, value in self.find(key, key, first, last, False) if (e, s) != (end, start)
        ]
        rows = sorted([*kept, *added])
        heads = b"".join(struct.pack("<qqqqI", s, e, 1, 2, len(state)) for e, s, state in rows)
        packed = struct.pack("<I", len(rows)) + heads + b"".join(state for *_, state in rows)
        self._db.write({number: ([key], [packed if rows else None])}, {})

    def close(self) -> None:
        self._db.close()


class AfterTheNumbers:
    """Whole numbers as states, behind event count and revision."""

    def serialize(self, value: int) -> bytes:
        return value.to_bytes(8, "big", signed=True)

    def deserialize(self, data: bytes) -> int:
        assert data[:16] == b"\1" + bytes(7) + b"\2" + bytes(7)
        return int.from_bytes(data[16:], "big", signed=True)


class TestPacked(SessionContract):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        assert value_serde is None or value_serde.name == "int64"
        interval = 50 if settings.get("retention", 0) < 1 << 40 else 1 << 61
        rows = WritableRows(RocksSegments(Path(mkdtemp(dir=directory.name)) / "db"), interval)
        return SessionStoreOfRows("store", rows, key_serde or Serdes.string(), AfterTheNumbers(), units("us"))

    @staticmethod
    def order(key: bytes, start: int, end: int) -> tuple[Any, ...]:
        return end // 50, key, end, start

    # What the engine keeps it decides by the watermark, and whole segments go (tests/store/test_segmented.py).
    test_expired_sessions_are_not_found_and_the_youngest_live_one_is = None
    test_expired_puts_are_refused_and_counted = None
    test_times_at_both_ends_of_int64 = None
    # A segment's values are read at once.
    test_writes_during_iteration = None


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = SegmentedSessionStore(tmp_path / "db", 100)
    opened.put(StoredSession(PackedWindow("ann", 10, 50), 3, 7, b"state"))
    opened.put(StoredSession(PackedWindow("ann", 130, 150), 1, 8, b""))
    yield opened
    opened.close()


def test_aggregates_are_count_revision_and_state(store: Any) -> None:
    sessions = packed_sessions("clicks", store._db, store.interval_us)
    assert list(sessions.backward_fetch("ann")) == [
        (Windowed("ann", 130, 150), PackedSession(1, 8, b"")),
        (Windowed("ann", 10, 50), PackedSession(3, 7, b"state")),
    ]
    assert sessions.fetch_session("ann", 10, 50) == PackedSession(3, 7, b"state")
    assert sessions.fetch_session("ann", 11, 50) is None


def test_it_is_read_only_and_leaves_the_database_open(store: Any) -> None:
    sessions: Any = packed_sessions("clicks", store._db, store.interval_us)
    for call in (
        lambda: sessions.put(Windowed("ann", 1, 2), PackedSession(1, 1, b"")),
        lambda: sessions.remove(Windowed("ann", 10, 50)),
        lambda: sessions.restore([]),
    ):
        with pytest.raises(UnsupportedOperationError, match="is not for the engine's sessions; send a correction"):
            call()
    sessions.close()
    assert store.meta("other") is None


def test_segment_that_is_dropped_under_an_iterator_is_skipped(store: Any) -> None:
    rows = packed_sessions("clicks", store._db, store.interval_us).backward_fetch("ann")
    assert next(rows)[0].end == 150
    store._db.drop_before(1)
    assert list(rows) == []
