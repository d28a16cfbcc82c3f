from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from sessionlake.errors import UnsupportedOperationError
from sessionlake.stores import Serdes, Stores, Windowed, change_logged
from tests.store.contracts.session import SessionContract

directory = TemporaryDirectory()


class OnDisk(SessionContract):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        keys, values = key_serde or Serdes.string(), value_serde or Serdes.int64()
        settings = {"retention": 100, "segment_interval": 50, **settings}
        if settings["retention"] > 1 << 40:
            del settings["segment_interval"]
        return Stores.persistent_session_store("store", mkdtemp(dir=directory.name), keys, values, **settings)

    @staticmethod
    def order(key: bytes, start: int, end: int) -> tuple[Any, ...]:
        return end // 50, key, end, start


class TestOnDisk(OnDisk):
    def test_find_sessions_by_end_names_what_to_call_instead(self) -> None:
        with self.kip_94() as store, pytest.raises(UnsupportedOperationError, match=r"find_sessions_range\(None, None"):
            store.find_sessions_by_end(0, 100)

    def test_inverted_key_range_is_empty(self) -> None:
        with self.kip_94("a", "b") as store:
            assert list(store.fetch_range("b", "a")) == list(store.backward_fetch_range("b", "a")) == []


class TestInMemory(SessionContract):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        keys, values = key_serde or Serdes.string(), value_serde or Serdes.int64()
        return Stores.in_memory_session_store("store", keys, values, **{"retention": 100, **settings})

    @staticmethod
    def order(key: bytes, start: int, end: int) -> tuple[Any, ...]:
        return end, key, -start

    def test_find_sessions_by_end_is_inclusive(self) -> None:
        with self.filled(("a", 0, 0), ("b", 10, 20), ("c", 30, 40)) as store:
            cases = {(0, 0): [0], (0, 20): [0, 1], (0, 19): [0], (1, 20): [1], (19, 41): [1, 2], (0, 40): [0, 1, 2]}
            for bounds, expected in cases.items():
                assert [v for _, v in store.find_sessions_by_end(*bounds)] == expected

    def test_inverted_key_range_is_refused_once_there_are_sessions(self) -> None:
        with self.make() as store:
            assert list(store.fetch_range("b", "a")) == []
            store.put(Windowed("c", 0, 1), 1)
            for method in (store.fetch_range, store.backward_fetch_range):
                with pytest.raises(ValueError, match="key range from 'b' to 'a' ends before it begins"):
                    method("b", "a")

    def test_sessions_that_expire_under_an_iterator_stay_readable_by_it(self) -> None:
        with self.filled(("a", 0, 0), ("aa", 0, 10), ("a", 10, 20)) as store:
            found, unwanted = store.find_sessions_range("a", "b", 0, 100), store.fetch("a")
            store.put(Windowed("aa", 100, 5000), 3)
            assert list(store.find_sessions_range("a", "b", 0, 20)) == []
            assert [v for _, v in found] == [0, 1, 2, 3]
            unwanted.close()
            store.put(Windowed("aa", 100, 5001), 4)
            assert [row[3] for row in store.rows.find(None, None, -1, 100, False)] == []


class TestLoggedInMemory(TestInMemory):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        return change_logged(super().make(key_serde, value_serde, **settings), lambda _, __: None)


def test_sessions_and_retention_outlive_the_store(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"retention": 100, "segment_interval": 50}
    with Stores.persistent_session_store("store", tmp_path, Serdes.string(), Serdes.int64(), **settings) as store:
        for end in (50, 149, 200):
            store.put(Windowed("a", 0, end), end)
    with Stores.persistent_session_store("store", tmp_path, Serdes.string(), Serdes.int64(), **settings) as store:
        assert [v for _, v in store.fetch("a")] == [149, 200]
        store.put(Windowed("a", 0, 99), 99)
        assert store.dropped_total == 1
