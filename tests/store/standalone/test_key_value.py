from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from sessionlake.errors import NoSuchElementError
from sessionlake.stores import Serdes, Stores, change_logged
from tests.store.contracts.key_value import KeyValueContract

directory = TemporaryDirectory()


class OnDisk(KeyValueContract):
    exact_count = False

    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return Stores.persistent_key_value_store(
            "store", mkdtemp(dir=directory.name), key_serde or Serdes.bytes(), value_serde or Serdes.bytes()
        )


class TestOnDisk(OnDisk):
    pass


class InMemory(KeyValueContract):
    @pytest.mark.parametrize("method", ["all", "reverse_all"])
    def test_rows_deleted_under_an_iterator_are_skipped(self, method: str) -> None:
        order = "abc" if method == "all" else "cba"
        with self.texts(*"abc") as store:
            rows = getattr(store, method)()
            store.delete(order[0])
            assert next(rows) == (order[1], order[1].upper())
            store.delete(order[2])
            assert not rows.has_next()
            with pytest.raises(NoSuchElementError):
                rows.peek_next_key()
            with pytest.raises(StopIteration):
                next(rows)

    def test_row_that_was_peeked_at_comes_though_it_is_deleted(self) -> None:
        with self.texts("a", "b") as store:
            rows = store.all()
            assert rows.peek_next_key() == "a"
            store.delete("a")
            assert rows.has_next()
            assert [key for key, _ in rows] == ["a", "b"]


class TestInMemory(InMemory):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return Stores.in_memory_key_value_store("store", key_serde or Serdes.bytes(), value_serde or Serdes.bytes())


class TestLruWithRoom(InMemory):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return Stores.lru_map("store", 5000, key_serde or Serdes.bytes(), value_serde or Serdes.bytes())


class TestLoggedInMemory(TestInMemory):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return change_logged(super().make(key_serde, value_serde), lambda _, __: None)


class TestLoggedOnDisk(OnDisk):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return change_logged(super().make(key_serde, value_serde), lambda _, __: None)


def test_rows_outlive_the_store(tmp_path: Path) -> None:
    for round_ in range(3):
        with Stores.persistent_key_value_store("store", tmp_path, Serdes.string(), Serdes.int64()) as store:
            assert list(store.all()) == [(str(n), n) for n in range(round_)]
            store.put(str(round_), round_)
            if round_ == 1:
                store.flush()


def test_failed_serde_tells_the_value() -> None:
    store = Stores.in_memory_key_value_store("store", Serdes.string(), Serdes.int64())
    with pytest.raises(Exception, match=r"^serde int64: 'x' can't be written \(.*\); use another serde$"):
        store.put("a", "x")  # type: ignore[arg-type]
    store.rows.put(b"a", b"short")  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"^serde int64: b'short' can't be read \(.*\); open the store with the serde"):
        store.get("a")
