"""The contract of key-value stores, in memory and on disk."""

from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from sessionlake.errors import NoSuchElementError
from sessionlake.stores import Serdes, Stores
from tests.store.contracts.key_value import KeyValueContract

directory = TemporaryDirectory()


class OnDisk(KeyValueContract):
    exact_count = False

    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return Stores.persistent_key_value_store(
            "store", mkdtemp(dir=directory.name), key_serde or Serdes.bytes(), value_serde or Serdes.bytes()
        )


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
