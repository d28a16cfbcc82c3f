"""What every window store keeps. Subclass it and give `make` and `order`.

Retention is 100 and the segments of those on disk are 50, so that most cases lie in several.

Which scenario of Kafka's own tests (their AbstractWindowBytesStoreTest, InMemoryWindowStoreTest, AbstractRocksDBWindowStoreTest; in
our words) is where:

| Kafka's scenario | test |
| --- | --- |
| single points, ranges, windows before and after a time | fetch_of_one_key_is_by_start_and_inclusive, every_read_finds_what_a_sorted_dict_does |
| all, in the order of times, without deleted rows; the same backward | rows_come_in_the_variant's_order, value_of_none_deletes |
| all rows in a time range, key ranges, open bounds; the same backward | every_read_finds_what_a_sorted_dict_does |
| equal key and time: replaced, or kept with duplicates | put_replaces_the_same_window, duplicates_* |
| delete and update; not found | put_replaces_the_same_window, value_of_none_deletes, fetch_at_wants_the_exact_start |
| null keys | null_keys_are_refused |
| binary keys of zeros | keys_that_begin_others |
| a range of one key is the fetch of one | range_of_one_key_is_its_fetch |
| negative keys, inverted ranges | inverted_ranges_are_empty |
| expired rows are counted, not found, not told by an error | expired_rows_* |
| an open iterator outlives expiry (memory), skips segments that are gone (disk) | rows_that_expire_under_an_iterator (test_windows.py) |
| peeking; early close; closing the store; writes while iterating | peek_and_has_next, iterator_closed_early, test_closing.py, writes_during_iteration |
| segments roll, are found again when opened | test_windows.py |
| restore | test_logged.py |
| caching, metrics, positions, several record contexts | not here: they don't exist |
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import NoSuchElementError, NullKeyError
from sessionlake.stores import Serdes, Windowed

LEAST, LARGEST = -(1 << 63), (1 << 63) - 1
RETENTION = 100
KEYS = [b"", b"\0", b"\0\0", b"a", b"a\0", b"aa", b"b", b"\xff"]
keys = st.sampled_from(KEYS)
bounds = st.none() | keys
times = st.integers(0, 99)
any_times = times | st.sampled_from([LEAST, -1, 100, LARGEST])


class WindowContract:
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        """Return an empty store, of text and whole numbers, retention 100 and window size 10 where nothing else is named."""
        raise NotImplementedError

    @staticmethod
    def order(key: bytes, start: int) -> tuple[Any, ...]:
        """Return what the variant's rows are sorted by; duplicates stay in the order in which they were put."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls) -> Any:
        with cls.make(Serdes.bytes(), Serdes.int64(), retention=1000) as store:
            yield store

    def filled(self, *rows: tuple[str, int], **settings: Any) -> Any:
        """Return a store with a number as the value of each row, from 0 on."""
        store = self.make(**settings)
        for value, (key, start) in enumerate(rows):
            store.put(key, value, start)
        return store

    def test_empty_store_finds_nothing(self) -> None:
        with self.make() as store:
            found = [store.all(), store.backward_all(), store.fetch("a", LEAST, LARGEST), store.fetch_all(0, 9)]
            assert [list(rows) for rows in found] == [[]] * 4
            assert store.fetch_at("a", 0) is None
            store.put("a", None, 0)

    def test_fetch_of_one_key_is_by_start_and_inclusive(self) -> None:
        with self.filled(("a", 60), ("a", 20), ("b", 30), ("a", 40), ("aa", 40)) as store:
            assert list(store.fetch("a", 20, 60)) == [(20, 1), (40, 3), (60, 0)]
            assert list(store.backward_fetch("a", 20, 60)) == [(60, 0), (40, 3), (20, 1)]
            assert list(store.fetch("a", 21, 59)) == [(40, 3)]
            assert list(store.fetch("a", 40, 40)) == [(40, 3)]
            assert list(store.fetch("a", 41, 59)) == []

    def test_fetch_at_wants_the_exact_start(self) -> None:
        with self.filled(("a", 20)) as store:
            assert [store.fetch_at("a", start) for start in (19, 20, 21)] == [None, 0, None]
            assert store.fetch_at("b", 20) is None

    def test_windows_end_after_their_size(self) -> None:
        with self.filled(("a", 20), ("a", LARGEST - 3), retention=LARGEST) as store:
            assert [w for w, _ in store.all()] == [Windowed("a", 20, 30), Windowed("a", LARGEST - 3, LARGEST)]

    def test_put_replaces_the_same_window(self) -> None:
        with self.filled(("a", 20), ("b", 20), ("a", 20)) as store:
            assert list(store.all()) == [(Windowed("a", 20, 30), 2), (Windowed("b", 20, 30), 1)]

    def test_value_of_none_deletes(self) -> None:
        with self.filled(("a", 20), ("a", 60), ("b", 60)) as store:
            store.put("a", None, 60)
            store.put("a", None, 61)
            store.put("c", None, 20)
            assert list(store.all()) == [(Windowed("a", 20, 30), 0), (Windowed("b", 60, 70), 2)]

    def test_put_of_none_does_not_move_the_retention(self) -> None:
        with self.filled(("a", 20)) as store:
            store.put("a", None, 5000)
            assert store.fetch_at("a", 20) == 0
            assert store.dropped_total == 0

    def test_duplicates_are_kept_in_the_order_of_insertion(self) -> None:
        rows = [("a", 20), ("b", 20), ("a", 20), ("a", 60), ("a", 20), ("a", 60)]
        with self.filled(*rows, retain_duplicates=True) as store:
            assert list(store.fetch("a", 0, 99)) == [(20, 0), (20, 2), (20, 4), (60, 3), (60, 5)]
            assert list(store.backward_fetch("a", 0, 99)) == [(60, 5), (60, 3), (20, 4), (20, 2), (20, 0)]
            assert list(store.fetch("b", 0, 99)) == [(20, 1)]
            assert store.fetch_at("a", 20) == 0
            assert [v for _, v in store.all()] == [v for _, v in store.backward_all()][::-1]

    def test_duplicates_are_not_deleted(self) -> None:
        with self.filled(("a", 20), ("a", 20), retain_duplicates=True) as store:
            store.put("a", None, 20)
            assert list(store.fetch("a", 20, 20)) == [(20, 0), (20, 1)]

    @pytest.mark.parametrize("method", ["fetch", "backward_fetch"])
    def test_null_keys_are_refused(self, method: str) -> None:
        with self.filled(("a", 20)) as store:
            with pytest.raises(NullKeyError):
                getattr(store, method)(None, 0, 9)
            with pytest.raises(NullKeyError):
                store.fetch_at(None, 0)
            with pytest.raises(NullKeyError):
                store.put(None, 1, 0)

    def test_keys_that_begin_others(self) -> None:
        with self.make(Serdes.bytes(), Serdes.int64()) as store:
            for value, key in enumerate(KEYS * 2):
                store.put(key, value, 20 + value)
            for at, key in enumerate(KEYS):
                assert [v for _, v in store.fetch(key, LEAST, LARGEST)] == [at, at + len(KEYS)]

    def test_range_of_one_key_is_its_fetch(self) -> None:
        with self.filled(("a", 20), ("b", 30), ("b", 60), ("bb", 60), ("c", 70)) as store:
            one = [v for _, v in store.fetch("b", 0, 99)]
            assert one == [v for _, v in store.fetch_range("b", "b", 0, 99)] == [1, 2]

    def test_inverted_ranges_are_empty(self) -> None:
        with self.filled(("a", 20), ("b", 60)) as store:
            assert list(store.fetch("a", 30, 10)) == list(store.backward_fetch("a", 30, 10)) == []
            assert list(store.fetch_all(61, 19)) == list(store.backward_fetch_all(61, 19)) == []
            assert list(store.fetch_range("b", "a", 0, 99)) == list(store.backward_fetch_range("b", "a", 0, 99)) == []
        with self.make(Serdes.int32(), Serdes.int64()) as store:
            store.put(0, 1, 5)
            assert list(store.fetch_range(-1, 1, 0, 10)) == []

    def test_times_at_both_ends_of_int64(self) -> None:
        with self.filled(("a", LEAST), ("a", -2), ("b", LEAST + 1), retention=LARGEST) as store:
            assert [start for start, _ in store.fetch("a", LEAST, LARGEST)] == [LEAST, -2]
            assert [start for start, _ in store.backward_fetch("a", LEAST, -1)] == [-2, LEAST]
            assert store.fetch_at("a", LEAST) == 0
            store.put("a", 3, -1)
            assert [start for start, _ in store.fetch("a", LEAST, LARGEST)] == [-2, -1]
            store.put("a", 4, LARGEST)
            assert [start for start, _ in store.fetch("a", LEAST, LARGEST)] == [LARGEST]

    def test_expired_rows_are_not_found_and_the_youngest_live_one_is(self) -> None:
        with self.filled(("a", 100), ("a", 101), ("a", 200)) as store:
            assert [store.fetch_at("a", start) for start in (100, 101, 200)] == [None, 1, 2]
            found = [store.fetch("a", 0, 999), store.backward_fetch("a", 0, 999)]
            assert [[v for _, v in rows] for rows in found] == [[1, 2], [2, 1]]
            found = [store.all(), store.fetch_all(0, 999), store.fetch_range(None, "b", LEAST, LARGEST)]
            assert [[v for _, v in rows] for rows in found] == [[1, 2]] * 3
            assert list(store.fetch("a", 0, 100)) == []

    def test_expired_puts_are_refused_and_counted(self) -> None:
        with self.filled(("a", 1000)) as store:
            store.put("a", 1, 0)
            store.put("a", 2, 950)
            assert store.dropped_total == 1
            assert [v for _, v in store.all()] == [2, 0]

    def test_datetimes_and_units(self) -> None:
        at = datetime(2026, 1, 31, tzinfo=UTC)
        for unit, factor in (("us", 1_000_000), ("ms", 1000), ("s", 1)):
            with self.make(retention="7 days", window_size="1 minute", unit=unit) as store:
                store.put("a", 1, at)
                start = 1_769_817_600 * factor
                assert list(store.fetch("a", at, at)) == [(start, 1)]
                assert [w for w, _ in store.all()] == [Windowed("a", start, start + 60 * factor)]

    @pytest.mark.parametrize(
        "time",
        [datetime(2026, 1, 31), "2026-01-31", 1.5, True, None, 1 << 63, LEAST - 1],  # noqa: DTZ001 - what is refused
    )
    def test_illegal_times_are_refused(self, time: Any) -> None:
        with self.make() as store:
            for call in (
                lambda: store.put("a", 1, time),
                lambda: store.fetch_at("a", time),
                lambda: store.fetch("a", time, 5),
                lambda: store.backward_fetch_all(5, time),
            ):
                with pytest.raises(ValueError, match=r"^time "):
                    call()

    @given(
        rows=st.lists(st.tuples(keys, times), max_size=25),
        key=keys,
        low=bounds,
        high=bounds,
        first=any_times,
        last=any_times,
    )
    def test_every_read_finds_what_a_sorted_dict_does(
        self,
        shared: Any,
        rows: list[tuple[bytes, int]],
        key: bytes,
        low: bytes | None,
        high: bytes | None,
        first: int,
        last: int,
    ) -> None:
        for window, _ in list(shared.all()):
            shared.put(window.key, None, window.start)
        for value, (name, start) in enumerate(rows):
            shared.put(name, value, start)
        model = {row: value for value, row in enumerate(rows)}
        ordered = [(Windowed(k, t, t + 10), model[k, t]) for k, t in sorted(model, key=lambda row: self.order(*row))]
        timed = [(w, v) for w, v in ordered if first <= w.start <= last]
        of_keys = [(w, v) for w, v in timed if (low is None or w.key >= low) and (high is None or w.key <= high)]
        of_key = sorted((w.start, v) for w, v in timed if w.key == key)
        assert list(shared.all()) == ordered
        assert list(shared.backward_all()) == ordered[::-1]
        assert list(shared.fetch_all(first, last)) == timed
        assert list(shared.backward_fetch_all(first, last)) == timed[::-1]
        assert list(shared.fetch_range(low, high, first, last)) == of_keys
        assert list(shared.backward_fetch_range(low, high, first, last)) == of_keys[::-1]
        assert list(shared.fetch(key, first, last)) == of_key
        assert list(shared.backward_fetch(key, first, last)) == of_key[::-1]

    def test_peek_and_has_next(self) -> None:
        with self.filled(("a", 20), ("a", 60)) as store:
            with store.fetch("a", 0, 99) as one, store.backward_all() as many:
                assert one.peek_next_key() == one.peek_next_key() == 20
                assert many.peek_next_key() == Windowed("a", 60, 70)
                assert (next(one), next(many)) == ((20, 0), (Windowed("a", 60, 70), 1))
                assert one.has_next()
                assert list(one) == [(60, 1)]
                assert not one.has_next()
                with pytest.raises(NoSuchElementError):
                    one.peek_next_key()
                assert store.open_iterators == 1
            assert store.open_iterators == 0

    def test_iterator_closed_early(self) -> None:
        with self.filled(("a", 20), ("a", 60)) as store:
            rows = store.all()
            next(rows)
            rows.close()
            assert not rows.has_next()
            assert len(list(store.all())) == 2

    def test_first_row_of_many_reads_one_value(self) -> None:
        with self.filled(*(("a", n) for n in range(600)), retention=10_000) as store:
            for method, first in (("all", 0), ("backward_all", 599)):
                before = store.deserialised
                with getattr(store, method)() as rows:
                    assert store.deserialised == before
                    assert next(rows) == (Windowed("a", first, first + 10), first)
                    assert store.deserialised == before + 1

    def test_writes_during_iteration(self) -> None:
        starts = list(range(300))
        for method in ("all", "backward_all"):
            with self.filled(*(("a", start) for start in starts), retention=100_000) as store:
                seen = []
                for window, _ in getattr(store, method)():
                    seen.append(window.start)
                    store.put("a", None, window.start)
                    if window.key == "a":
                        store.put("b", 1, window.start)
                assert sorted(set(seen)) == starts
                assert [w.key for w, _ in store.all()] == ["b"] * len(starts)
