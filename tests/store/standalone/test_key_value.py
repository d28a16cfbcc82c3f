from pathlib import Path
from typing import Any

import pytest

from sessionlake.stores import Serdes, Stores, change_logged
from tests.store.standalone.key_value_contract import InMemory, OnDisk


class TestOnDisk(OnDisk):
    pass


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
