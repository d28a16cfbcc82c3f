"""What every session store keeps: KIP-94's calls and KIP-617's directions. Subclass it and give `store`."""

from typing import Any

import pytest

from sessionlake.store.interface import StoredSession, Windowed

TABLE = ((0, 99), (101, 200), (201, 300), (301, 400))
"""The example of KIP-94."""


def session(key: str, start: int, end: int, *, count: int = 1, revision: int = 0, state: bytes = b"s") -> StoredSession:
    return StoredSession(Windowed(key, start, end), count, revision, state)


class SessionStoreContract:
    unit = 1
    """How many microseconds one step of the examples is; the subclass sets it to spread them over segments."""

    @pytest.fixture
    def store(self) -> Any:
        raise NotImplementedError

    def table(self, key: str = "k") -> list[StoredSession]:
        return [session(key, a * self.unit, b * self.unit, state=bytes([i])) for i, (a, b) in enumerate(TABLE)]

    def filled(self, store: Any, *keys: str) -> list[StoredSession]:
        rows = [row for key in keys or ("k",) for row in self.table(key)]
        for row in reversed(rows):
            store.put(row)
        return rows

    def test_empty_store_finds_nothing(self, store: Any) -> None:
        assert list(store.fetch("k")) == list(store.backward_fetch("k")) == []
        assert list(store.fetch_range(None, None)) == []
        assert store.fetch_session("k", 0, 0) is None
        store.remove(Windowed("k", 0, 0))

    def test_fetch_is_by_end_and_backward_the_reverse(self, store: Any) -> None:
        rows = self.filled(store)
        assert list(store.fetch("k")) == rows
        assert list(store.backward_fetch("k")) == rows[::-1]
        assert list(store.fetch("other")) == []

    def test_find_sessions_example_of_kip_94(self, store: Any) -> None:
        rows = self.filled(store)
        bounds = (150 * self.unit, 300 * self.unit)
        assert list(store.find_sessions("k", *bounds)) == rows[1:3]
        assert list(store.backward_find_sessions("k", *bounds)) == rows[2:0:-1]

    def test_find_sessions_earliest_end_is_inclusive(self, store: Any) -> None:
        rows = self.filled(store)
        assert list(store.find_sessions("k", 99 * self.unit, 0)) == rows[:1]
        assert list(store.find_sessions("k", 99 * self.unit + 1, 0)) == []

    def test_find_sessions_latest_start_is_inclusive(self, store: Any) -> None:
        rows = self.filled(store)
        assert list(store.find_sessions("k", 301 * self.unit, 301 * self.unit)) == rows[3:]
        assert list(store.find_sessions("k", 301 * self.unit, 301 * self.unit - 1)) == []

    def test_fetch_session_wants_the_exact_window(self, store: Any) -> None:
        rows = self.filled(store)
        assert store.fetch_session("k", 101 * self.unit, 200 * self.unit) == rows[1]
        assert store.fetch_session("k", 101 * self.unit, 200 * self.unit + 1) is None
        assert store.fetch_session("k", 101 * self.unit + 1, 200 * self.unit) is None

    def test_put_replaces_the_same_window(self, store: Any) -> None:
        rows = self.filled(store)
        new = session("k", 101 * self.unit, 200 * self.unit, count=9, revision=7, state=b"")
        store.put(new)
        assert list(store.fetch("k")) == [rows[0], new, *rows[2:]]

    def test_same_end_orders_by_start_and_same_start_by_end(self, store: Any) -> None:
        nested = [session("k", a * self.unit, b * self.unit) for a, b in ((3, 5), (0, 7), (2, 7), (2, 9))]
        for row in nested:
            store.put(row)
        assert list(store.fetch("k")) == nested

    def test_remove_takes_one_window_only(self, store: Any) -> None:
        rows = self.filled(store, "k", "l")
        store.remove(rows[1].window)
        store.remove(Windowed("k", 101 * self.unit, 199 * self.unit))
        assert list(store.fetch("k")) == [rows[0], *rows[2:4]]
        assert list(store.fetch("l")) == rows[4:]

    def test_removing_all_leaves_nothing(self, store: Any) -> None:
        for row in self.filled(store):
            store.remove(row.window)
        assert list(store.fetch("k")) == list(store.fetch_range(None, None)) == []

    def test_key_ranges_are_inclusive_and_open_at_none(self, store: Any) -> None:
        a, b, c = (self.filled(store, key) for key in ("a", "b", "ü"))
        assert list(store.fetch_range("a", "b")) == a + b
        assert list(store.fetch_range("aa", "ü")) == b + c
        assert list(store.fetch_range(None, "b")) == a + b
        assert list(store.fetch_range("b", None)) == b + c
        assert list(store.backward_fetch_range(None, None)) == (a + b + c)[::-1]
        assert list(store.fetch_range("b", "a")) == []

    def test_key_ranges_with_time_bounds(self, store: Any) -> None:
        a, b = (self.filled(store, key) for key in ("a", "b"))
        found = a[1:3] + b[1:3]
        bounds = (150 * self.unit, 300 * self.unit)
        assert list(store.find_sessions_range("a", "b", *bounds)) == found
        assert list(store.backward_find_sessions_range("a", "b", *bounds)) == found[::-1]

    def test_keys_of_any_text(self, store: Any) -> None:
        keys = ["", "a\0b", "a", "\U0001f600", "\uffff", "x" * 3000]
        for key in keys:
            store.put(session(key, 1, 2))
        assert [s.window.key for s in store.fetch_range(None, None)] == sorted(keys)
        assert all(list(store.fetch(key)) == [session(key, 1, 2)] for key in keys)

    def test_times_before_1970_and_at_the_ends_of_the_calendar(self, store: Any) -> None:
        low, high = -62_135_596_800_000_000, 253_402_300_799_999_999
        rows = [session("k", low, low), session("k", -1, -1), session("k", low, 0), session("k", high, high)]
        for row in rows:
            store.put(row)
        assert list(store.fetch("k")) == rows
