"""Logs of changes: what is logged, and that a store restored from its log is the store."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.stores import Serdes, Stores, Windowed, change_logged

NUMBERS = (Serdes.string(), Serdes.int64())
Log = list[tuple[bytes, bytes | None]]
keys = st.sampled_from(["", "a", "a\0", "b"])
times = st.integers(0, 300)


def logged(store: Any) -> tuple[Any, Log]:
    log: Log = []
    return change_logged(store, lambda key, value: log.append((key, value))), log


def test_each_change_of_a_key_value_store_is_logged_in_its_order() -> None:
    store, log = logged(Stores.in_memory_key_value_store("store", Serdes.string(), Serdes.string()))
    store.put("a", "1")
    store.put_all([("b", "2"), ("a", None)])
    store.put_if_absent("b", "unused")
    store.put_if_absent("c", "3")
    store.delete("b")
    assert log == [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"3"), (b"b", None)]


def test_what_is_refused_as_expired_is_not_logged() -> None:
    store, log = logged(Stores.in_memory_window_store("store", *NUMBERS, retention=100, window_size=1))
    store.put("a", 1, 1000)
    store.put("a", 2, 5)
    assert store.dropped_total == 1
    assert len(log) == 1


def test_restoring_is_not_logged_nor_counted() -> None:
    store, log = logged(Stores.in_memory_session_store("store", *NUMBERS, retention=100))
    other, records = logged(Stores.in_memory_session_store("other", *NUMBERS, retention=5000))
    for end in (1000, 5):
        other.put(Windowed("a", 0, end), end)
    store.restore(records)
    assert log == []
    assert store.dropped_total == 0
    assert [v for _, v in store.fetch("a")] == [1000]


def test_evictions_of_an_lru_map_are_logged_and_called() -> None:
    gone: list[Any] = []
    made = Stores.lru_map("store", 2, *NUMBERS, on_evicted=lambda key, value: gone.append((key, value)))
    store, log = logged(made)
    for number, key in enumerate("abc"):
        store.put(key, number)
    assert gone == [("a", 0)]
    assert sorted(key for key, value in log if value is None) == [b"a"]
    again = Stores.lru_map("again", 2, *NUMBERS)
    again.restore(log)
    assert list(again.all()) == list(store.all()) == [("b", 1), ("c", 2)]


def test_two_logs_of_one_store_both_have_its_changes() -> None:
    store, first = logged(Stores.in_memory_key_value_store("store", *NUMBERS))
    store, second = logged(store)
    store.put("a", 1)
    assert first == second == [(b"a", (1).to_bytes(8, "big"))]


def test_only_our_stores_are_logged() -> None:
    with pytest.raises(ValueError, match="change_logged: object is none of `Stores`"):
        change_logged(object(), lambda _, __: None)  # type: ignore[type-var]


@given(st.lists(st.tuples(keys, times, st.none() | st.integers(0, 9)), max_size=20))
def test_restored_windows_are_the_same_on_disk_or_in_memory(changes: list[tuple[str, int, int | None]]) -> None:
    settings: Any = {"retention": 100, "window_size": 1}
    store, log = logged(Stores.in_memory_window_store("store", *NUMBERS, **settings))
    for key, start, value in changes:
        store.put(key, value, start)
    again = Stores.in_memory_window_store("again", *NUMBERS, **settings)
    again.restore(log)
    assert list(again.all()) == list(store.all())


@pytest.mark.parametrize("duplicates", [False, True])
def test_a_log_of_memory_restores_a_store_on_disk_and_back(tmp_path: Path, duplicates: bool) -> None:  # noqa: FBT001
    settings: Any = {"retention": 100, "window_size": 1, "retain_duplicates": duplicates}
    store, log = logged(Stores.in_memory_window_store("store", *NUMBERS, **settings))
    for value, start in enumerate([0, 20, 20, 110, 110, 60, 150, 20]):
        store.put("a", value, start)
    if not duplicates:
        store.put("a", None, 60)
    expected = list(store.fetch("a", 0, 999))
    with Stores.persistent_window_store("disk", tmp_path, *NUMBERS, segment_interval=50, **settings) as disk:
        disk.restore(log)
        assert list(disk.fetch("a", 0, 999)) == expected
        disk.put("a", 99, 1)
        assert disk.dropped_total == 1
    with Stores.persistent_window_store("disk", tmp_path, *NUMBERS, **settings) as disk:
        assert list(disk.fetch("a", 0, 999)) == expected


def test_key_value_restore_takes_deletions_and_keys_put_back(tmp_path: Path) -> None:
    records: Log = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", None), (b"b", None), (b"b", b"2"), (b"x", None)]
    for store in (
        Stores.in_memory_key_value_store("store", Serdes.bytes(), Serdes.bytes()),
        Stores.persistent_key_value_store("store", tmp_path, Serdes.bytes(), Serdes.bytes()),
    ):
        with store:
            store.put(b"old", b"0")
            store.restore(records)
            assert list(store.all()) == [(b"b", b"2"), (b"c", b"1"), (b"old", b"0")]


def test_session_restore_takes_removals(tmp_path: Path) -> None:
    store, log = logged(Stores.in_memory_session_store("store", *NUMBERS, retention=1000))
    for end in (10, 20, 30):
        store.put(Windowed("a", -5, end), end)
    store.remove(Windowed("a", -5, 20))
    with Stores.persistent_session_store("disk", tmp_path, *NUMBERS, retention=1000) as disk:
        disk.restore(log)
        assert list(disk.fetch("a")) == list(store.fetch("a"))
