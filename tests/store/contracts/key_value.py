"""What every key-value store keeps. Subclass it and give `make`.

Which scenario of Kafka's own tests (their AbstractKeyValueStoreTest and its subclasses; in our words) is where:

| Kafka's scenario | test |
| --- | --- |
| put, get, range, all, deleted rows not among them; the same in reverse | put_get_and_delete, ranges_are_inclusive_and_open_at_none |
| a value that serialises to null deletes | value_that_serialises_to_none_deletes |
| put if absent; put all; size | put_if_absent_returns_what_was_there, put_all_takes_the_last_of_each_key, number_of_entries |
| null keys raise in each method, null values delete | null_keys_are_refused, value_of_none_deletes |
| range and get agree on one key | range_of_one_key_is_get |
| writes while iterating raise nothing | writes_and_deletes_during_iteration, deletes_during_a_prefix_scan |
| iterators in memory: peeking, the end, closing; rows deleted meanwhile are skipped | peek_and_has_next, iterator_closed_early, rows_deleted_under_an_iterator (test_key_value.py) |
| a serialiser of null for prefixes raises | not here: None is the keys' own serde |
| a range from a negative number, or inverted, is empty | negative_numbers_come_last, inverted_range_is_empty |
| prefixes: text, bytes FF, of another serde than the keys', none found | prefix_scan_* |
| restore, also of deletions and of keys put back | test_logged.py |
| evictions of the LRU map, also while restoring | test_lru.py |
| closing ends iterators | test_closing.py |
| queries by position, metrics, caching, RocksDB's own options and directories that vanish | not here: positions, caches and those hooks don't exist |
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import NoSuchElementError, NullKeyError
from sessionlake.stores import Serdes

KEYS = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"aa", b"ab", b"b", b"\xff", b"\xff\xff"]
bounds = st.none() | st.sampled_from(KEYS)


class KeyValueContract:
    exact_count = True

    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        """Return an empty store; of bytes and bytes where no serde is named."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls) -> Any:
        """One store for all that Hypothesis tries: opening a database takes much longer than a try."""
        with cls.make() as store:
            yield store

    def texts(self, *keys: str) -> Any:
        store = self.make(Serdes.string(), Serdes.string())
        for key in keys:
            store.put(key, key.upper())
        return store

    def test_put_get_and_delete(self) -> None:
        with self.texts("a", "b", "c") as store:
            assert [store.get(key) for key in "abcd"] == ["A", "B", "C", None]
            store.put("b", "new")
            assert store.delete("a") == "A"
            assert store.delete("a") is None
            assert list(store.all()) == [("b", "new"), ("c", "C")]
            assert list(store.reverse_all()) == [("c", "C"), ("b", "new")]

    def test_value_of_none_deletes(self) -> None:
        with self.texts("a", "b", "c") as store:
            store.put("a", None)
            store.put("missing", None)
            store.put_all([("b", None), ("other", None)])
            assert store.put_if_absent("new", None) is None
            assert list(store.all()) == [("c", "C")]

    def test_value_that_serialises_to_none_deletes(self) -> None:
        class Emptying:
            def serialize(self, value: str) -> bytes | None:
                return value.encode() or None

            def deserialize(self, data: bytes) -> str:
                return data.decode()

        with self.make(Serdes.string(), Emptying()) as store:
            store.put("a", "x")
            store.put("b", "x")
            store.put("a", "")
            assert list(store.all()) == [("b", "x")]

    def test_put_if_absent_returns_what_was_there(self) -> None:
        with self.texts("a") as store:
            assert store.put_if_absent("a", "other") == "A"
            assert store.put_if_absent("b", "B") is None
            assert list(store.all()) == [("a", "A"), ("b", "B")]

    def test_put_all_takes_the_last_of_each_key(self) -> None:
        with self.texts("a") as store:
            store.put_all([("b", "1"), ("a", "2"), ("b", "3")])
            assert list(store.all()) == [("a", "2"), ("b", "3")]

    def test_put_all_with_a_null_key_writes_nothing(self) -> None:
        with self.texts() as store:
            with pytest.raises(NullKeyError):
                store.put_all([("a", "1"), (None, "2")])
            assert list(store.all()) == []

    @pytest.mark.parametrize(
        ("method", "rest"),
        [("get", []), ("put", ["v"]), ("put_if_absent", ["v"]), ("delete", []), ("prefix_scan", [])],
    )
    def test_null_keys_are_refused(self, method: str, rest: list[str]) -> None:
        with self.texts("a") as store, pytest.raises(NullKeyError, match=r"^store '.*': the key is None; give one$"):
            getattr(store, method)(None, *rest)

    def test_number_of_entries(self) -> None:
        with self.texts("a", "b", "c") as store:
            assert store.approximate_num_entries() == 3
            store.delete("a")
            if self.exact_count:
                assert store.approximate_num_entries() == 2
            for key in "abcabc":
                store.delete(key)
            assert store.approximate_num_entries() >= 0

    def test_empty_store_finds_nothing(self) -> None:
        with self.texts() as store:
            found = [store.all(), store.reverse_all(), store.range("a", "b"), store.prefix_scan("a")]
            assert [list(rows) for rows in found] == [[]] * 4
            assert store.approximate_num_entries() == 0

    def test_ranges_are_inclusive_and_open_at_none(self) -> None:
        with self.texts("b", "d", "f") as store:
            keys = ["a", "b", "c", "d", "e", "f", "g", None]
            for low in keys:
                for high in keys:
                    inside = [k for k in "bdf" if (low is None or k >= low) and (high is None or k <= high)]
                    assert [key for key, _ in store.range(low, high)] == inside
                    assert [key for key, _ in store.reverse_range(low, high)] == inside[::-1]

    def test_range_of_one_key_is_get(self) -> None:
        with self.texts("a", "a\0", "aa", "b") as store:
            assert list(store.range("a", "a")) == list(store.reverse_range("a", "a")) == [("a", store.get("a"))]

    def test_inverted_range_is_empty(self) -> None:
        with self.texts("a", "b", "c") as store:
            assert list(store.range("c", "a")) == list(store.reverse_range("c", "a")) == []

    def test_negative_numbers_come_last(self) -> None:
        with self.make(Serdes.int64(), Serdes.string()) as store:
            for number in (1, -1, 0, -(1 << 63), (1 << 63) - 1):
                store.put(number, str(number))
            assert [key for key, _ in store.all()] == [0, 1, (1 << 63) - 1, -(1 << 63), -1]
            assert list(store.range(-1, 1)) == []

    def test_prefix_scan_of_text(self) -> None:
        with self.texts("", "a", "ab", "ab\0", "abc", "ac", "b") as store:
            assert [key for key, _ in store.prefix_scan("ab")] == ["ab", "ab\0", "abc"]
            assert [key for key, _ in store.prefix_scan("x")] == []
            assert [key for key, _ in store.prefix_scan("")] == ["", "a", "ab", "ab\0", "abc", "ac", "b"]

    def test_prefix_scan_of_the_largest_bytes(self) -> None:
        with self.make() as store:
            for key in KEYS:
                store.put(key, b"v")
            assert [key for key, _ in store.prefix_scan(b"\xff")] == [b"\xff", b"\xff\xff"]
            assert [key for key, _ in store.prefix_scan(b"\0")] == [b"\0", b"\0\0", b"\0\xff"]

    def test_prefix_scan_by_another_serde(self) -> None:
        with self.make(Serdes.int64(), Serdes.string()) as store:
            for number in (1, 2, 1 << 32, (1 << 32) + 5):
                store.put(number, "v")
            found = store.prefix_scan(b"\0\0\0\1", Serdes.bytes())
            assert [key for key, _ in found] == [1 << 32, (1 << 32) + 5]
            assert [key for key, _ in store.prefix_scan(1, Serdes.int32())] == [1 << 32, (1 << 32) + 5]

    @given(
        rows=st.dictionaries(st.sampled_from(KEYS) | st.binary(max_size=4), st.binary(max_size=3)),
        low=bounds,
        high=bounds,
    )
    def test_backward_is_forward_reversed_in_the_order_of_bytes(
        self, shared: Any, rows: dict[bytes, bytes], low: bytes | None, high: bytes | None
    ) -> None:
        shared.put_all([(key, None) for key, _ in shared.all()])
        shared.put_all(rows.items())
        inside = [
            (key, rows[key]) for key in sorted(rows) if (low is None or key >= low) and (high is None or key <= high)
        ]
        assert list(shared.all()) == sorted(rows.items())
        assert list(shared.reverse_all()) == sorted(rows.items())[::-1]
        assert list(shared.range(low, high)) == inside
        assert list(shared.reverse_range(low, high)) == inside[::-1]

    def test_many_rows_come_once_each_in_both_directions(self) -> None:
        keys = [f"{n:04}" for n in range(700)]
        with self.texts(*keys) as store:
            for low, high in ((None, None), (5, 20), (5, 21), (5, 22), (100, 164), (100, 600), (0, 699)):
                bounds = [None if n is None else keys[n] for n in (low, high)]
                inside = keys[low or 0 : 700 if high is None else high + 1]
                assert [key for key, _ in store.range(*bounds)] == inside
                assert [key for key, _ in store.reverse_range(*bounds)] == inside[::-1]

    @pytest.mark.parametrize("method", ["all", "reverse_all"])
    def test_peek_and_has_next(self, method: str) -> None:
        with self.texts("a", "b") as store, getattr(store, method)() as rows:
            order = ["a", "b"] if method == "all" else ["b", "a"]
            for key in order:
                assert rows.has_next()
                assert rows.has_next()
                assert rows.peek_next_key() == rows.peek_next_key() == key
                assert next(rows) == (key, key.upper())
            assert not rows.has_next()
            with pytest.raises(NoSuchElementError, match=r"^iterator: there is no next key"):
                rows.peek_next_key()
            with pytest.raises(StopIteration):
                next(rows)

    def test_iterator_closed_early_has_no_more_rows(self) -> None:
        with self.texts("a", "b", "c") as store:
            rows = store.all()
            assert store.open_iterators == 1
            assert next(rows) == ("a", "A")
            assert rows.has_next()
            rows.close()
            rows.close()
            assert not rows.has_next()
            assert list(rows) == []
            assert store.open_iterators == 0
            assert len(list(store.all())) == 3
            assert store.open_iterators == 0

    def test_nothing_is_read_before_the_first_row_and_one_value_for_it(self) -> None:
        with self.texts(*(f"{n:04}" for n in range(1000))) as store:
            for method, first in (("all", "0000"), ("reverse_all", "0999")):
                before = store.deserialised
                with getattr(store, method)() as rows:
                    assert store.deserialised == before
                    assert rows.peek_next_key() == first
                    assert next(rows)[0] == first
                    assert store.deserialised == before + 1

    def test_deletes_during_a_prefix_scan(self) -> None:
        with self.texts("a", "ba", "bb", "bc", "c") as store:
            for key, _ in store.prefix_scan("b"):
                store.delete(key)
            assert [key for key, _ in store.all()] == ["a", "c"]

    @pytest.mark.parametrize("count", [3, 1000])
    def test_writes_and_deletes_during_iteration(self, count: int) -> None:
        keys = [f"{n:04}" for n in range(count)]
        for method in ("all", "reverse_all"):
            with self.texts(*keys) as store:
                seen = []
                for key, _ in getattr(store, method)():
                    seen.append(key)
                    if not key.startswith("/"):
                        store.delete(key)
                        store.put("/" + key, "later")  # before all that were there
                assert [key for key in seen if not key.startswith("/")] == (keys if method == "all" else keys[::-1])
                assert [key for key, _ in store.all()] == ["/" + key for key in keys]
