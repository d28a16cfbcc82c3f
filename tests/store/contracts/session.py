"""What every session store keeps. Subclass it and give `make` and `order`.

Retention is 100 and the segments of those on disk are 50, so that most cases lie in several.

Which scenario of Kafka's own tests (their AbstractSessionBytesStoreTest and InMemorySessionStoreTest; in our words) is where:

| Kafka's scenario | test |
| --- | --- |
| put and find in a range, find what to merge (KIP-94's example); backward | find_sessions_example_of_kip_94, *_is_inclusive |
| all sessions of a key, of key ranges, with open bounds; backward | fetch_is_by_end, every_read_finds_what_a_sorted_dict_does |
| find by end alone | find_sessions_by_end (memory), refused on disk (test_sessions.py) |
| the exact session, or null | fetch_session_wants_the_exact_session |
| remove; null aggregates remove; removing what is not there | remove_*, aggregate_of_none_removes |
| keys that begin others, binary keys of zeros | keys_that_begin_others |
| a range of one key is the find of one | range_of_one_key_is_its_find |
| null keys | null_keys_are_refused |
| negative keys, inverted ranges | inverted_ranges (and test_sessions.py for the one that raises) |
| expired sessions are counted, removed, not found | expired_sessions_* |
| an open iterator outlives expiry | test_sessions.py |
| peeking, closing | peek_and_has_next, test_closing.py |
| restore | test_logged.py |
| caching, metrics, positions | not here: they don't exist |
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import NoSuchElementError, NullKeyError
from sessionlake.stores import Serdes, Windowed

LEAST, LARGEST = -(1 << 63), (1 << 63) - 1
KEYS = [b"", b"\0", b"\0\0", b"a", b"a\0", b"aa", b"b", b"\xff"]
TABLE = ((0, 49), (51, 100), (101, 150), (151, 200))
"""As the example of KIP-94: four sessions of one key."""
keys = st.sampled_from(KEYS)
bounds = st.none() | keys
times = st.integers(0, 99)
any_times = times | st.sampled_from([LEAST, -1, 100, LARGEST])


class SessionContract:
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        """Return an empty store, of text and whole numbers and retention 100 where nothing else is named."""
        raise NotImplementedError

    @staticmethod
    def order(key: bytes, start: int, end: int) -> tuple[Any, ...]:
        """Return what the variant's sessions are sorted by."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls) -> Any:
        with cls.make(Serdes.bytes(), Serdes.int64(), retention=1000) as store:
            yield store

    def filled(self, *rows: tuple[str, int, int], **settings: Any) -> Any:
        """Return a store with a number as the aggregate of each session, from 0 on."""
        store = self.make(**settings)
        for value, row in enumerate(rows):
            store.put(Windowed(*row), value)
        return store

    def kip_94(self, *names: str) -> Any:
        return self.filled(*((name, start, end) for name in names or ("k",) for start, end in TABLE), retention=1000)

    def test_empty_store_finds_nothing(self) -> None:
        with self.make() as store:
            found = [store.fetch("k"), store.backward_fetch("k"), store.fetch_range(None, None)]
            assert [list(rows) for rows in found] == [[]] * 3
            assert store.fetch_session("k", 0, 0) is None
            store.remove(Windowed("k", 0, 0))
            store.put(Windowed("k", 0, 0), None)

    def test_fetch_is_by_end(self) -> None:
        with self.kip_94("k", "kk") as store:
            rows = [(Windowed("k", *row), value) for value, row in enumerate(TABLE)]
            assert list(store.fetch("k")) == rows
            assert list(store.backward_fetch("k")) == rows[::-1]
            assert list(store.fetch("other")) == []

    def test_find_sessions_example_of_kip_94(self) -> None:
        with self.kip_94() as store:
            assert [v for _, v in store.find_sessions("k", 75, 150)] == [1, 2]
            assert [v for _, v in store.backward_find_sessions("k", 75, 150)] == [2, 1]

    def test_earliest_end_is_inclusive(self) -> None:
        with self.kip_94() as store:
            assert [v for _, v in store.find_sessions("k", 49, 0)] == [0]
            assert [v for _, v in store.find_sessions("k", 50, 0)] == []

    def test_latest_start_is_inclusive(self) -> None:
        with self.kip_94() as store:
            assert [v for _, v in store.find_sessions("k", 151, 151)] == [3]
            assert [v for _, v in store.find_sessions("k", 151, 150)] == []

    def test_earliest_end_may_be_after_latest_start(self) -> None:
        with self.filled(("a", 0, 0), ("aa", 0, 10), ("a", 10, 20), ("aa", 10, 20)) as store:
            assert [v for _, v in store.find_sessions_range("a", "aa", 10, 0)] == [1]
            assert [v for _, v in store.backward_find_sessions_range("a", "aa", 10, 0)] == [1]

    def test_fetch_session_wants_the_exact_session(self) -> None:
        with self.kip_94() as store:
            assert store.fetch_session("k", 51, 100) == 1
            assert store.fetch_session("k", 51, 101) is None
            assert store.fetch_session("k", 52, 100) is None
            assert store.fetch_session("j", 51, 100) is None

    def test_put_replaces_the_same_session(self) -> None:
        with self.kip_94() as store:
            store.put(Windowed("k", 51, 100), 9)
            assert [v for _, v in store.fetch("k")] == [0, 9, 2, 3]

    def test_remove_takes_one_session_only(self) -> None:
        with self.kip_94("k", "l") as store:
            store.remove(Windowed("k", 51, 100))
            store.remove(Windowed("k", 101, 149))
            store.remove(Windowed("k", 100, 150))
            assert [v for _, v in store.fetch("k")] == [0, 2, 3]
            assert [v for _, v in store.fetch("l")] == [4, 5, 6, 7]

    def test_aggregate_of_none_removes(self) -> None:
        with self.kip_94() as store:
            store.put(Windowed("k", 51, 100), None)
            assert [v for _, v in store.fetch("k")] == [0, 2, 3]

    def test_removing_does_not_move_the_retention(self) -> None:
        with self.filled(("a", 0, 10)) as store:
            store.remove(Windowed("a", 0, 5000))
            store.put(Windowed("a", 0, 5000), None)
            assert store.fetch_session("a", 0, 10) == 0
            assert store.dropped_total == 0

    def test_keys_that_begin_others(self) -> None:
        with self.make(Serdes.bytes(), Serdes.int64()) as store:
            for value, key in enumerate(KEYS * 2):
                store.put(Windowed(key, value, 20 + value), value)
            for at, key in enumerate(KEYS):
                assert [v for _, v in store.fetch(key)] == [at, at + len(KEYS)]

    def test_range_of_one_key_is_its_find(self) -> None:
        with self.filled(("a", 0, 1), ("aa", 2, 3), ("aa", 4, 5), ("aaa", 6, 7)) as store:
            assert list(store.find_sessions("aa", 0, 10)) == list(store.find_sessions_range("aa", "aa", 0, 10))
            assert list(store.fetch("aa")) == list(store.fetch_range("aa", "aa"))

    @pytest.mark.parametrize(
        ("method", "rest"),
        [
            ("fetch", []),
            ("backward_fetch", []),
            ("find_sessions", [0, 1]),
            ("backward_find_sessions", [0, 1]),
            ("fetch_session", [0, 1]),
            ("put", [1]),
            ("remove", []),
        ],
    )
    def test_null_keys_are_refused(self, method: str, rest: list[int]) -> None:
        with self.kip_94() as store:
            with pytest.raises(NullKeyError):
                getattr(store, method)(None, *rest)
            if method in {"put", "remove"}:
                with pytest.raises(NullKeyError):
                    getattr(store, method)(Windowed(None, 0, 1), *rest)

    def test_inverted_ranges(self) -> None:
        with self.kip_94("a", "b") as store:
            assert list(store.find_sessions_range("b", "a", 0, 999)) == []
            assert list(store.backward_find_sessions_range("b", "a", 0, 999)) == []
            assert list(store.find_sessions("a", 999, 0)) == []

    def test_times_at_both_ends_of_int64(self) -> None:
        rows = [("k", LEAST, LEAST), ("k", -2, -2), ("k", LEAST, -2)]
        with self.filled(*rows, retention=LARGEST) as store:
            assert {(w.start, w.end) for w, _ in store.fetch("k")} == {row[1:] for row in rows}
            assert store.fetch_session("k", LEAST, LEAST) == 0
            store.put(Windowed("k", LEAST, LARGEST), 7)
            assert list(store.fetch("k")) == [(Windowed("k", LEAST, LARGEST), 7)]

    def test_expired_sessions_are_not_found_and_the_youngest_live_one_is(self) -> None:
        with self.filled(("a", 0, 100), ("a", 0, 101), ("b", 50, 200)) as store:
            assert store.fetch_session("a", 0, 100) is None
            assert store.fetch_session("a", 0, 101) == 1
            found = [store.fetch("a"), store.find_sessions("a", 0, 999), store.find_sessions_range("a", "a", 0, 999)]
            assert [[v for _, v in rows] for rows in found] == [[1]] * 3
            assert [v for _, v in store.backward_fetch_range(None, None)] == [2, 1]
            assert list(store.find_sessions_range("a", "b", LEAST, -1000)) == []

    def test_expired_puts_are_refused_and_counted(self) -> None:
        with self.filled(("a", 0, 1000)) as store:
            store.put(Windowed("a", 0, 0), 1)
            store.put(Windowed("a", 0, 990), 2)
            assert store.dropped_total == 1
            assert [v for _, v in store.fetch("a")] == [2, 0]

    @given(
        rows=st.lists(st.tuples(keys, times, st.integers(0, 60)), max_size=25),
        key=keys,
        low=bounds,
        high=bounds,
        earliest=any_times,
        latest=any_times,
    )
    def test_every_read_finds_what_a_sorted_dict_does(
        self,
        shared: Any,
        rows: list[tuple[bytes, int, int]],
        key: bytes,
        low: bytes | None,
        high: bytes | None,
        earliest: int,
        latest: int,
    ) -> None:
        for window, _ in list(shared.fetch_range(None, None)):
            shared.remove(window)
        model = {}
        for value, (name, end, length) in enumerate(rows):
            shared.put(Windowed(name, end - length, end), value)
            model[name, end - length, end] = value
        ordered = [(Windowed(*row), model[row]) for row in sorted(model, key=lambda row: self.order(*row))]
        timed = [(w, v) for w, v in ordered if w.end >= earliest and w.start <= latest]
        of_keys = [(w, v) for w, v in timed if (low is None or w.key >= low) and (high is None or w.key <= high)]
        all_of_keys = [(w, v) for w, v in ordered if (low is None or w.key >= low) and (high is None or w.key <= high)]
        of_key = [(w, v) for w, v in timed if w.key == key]
        all_of_key = [(w, v) for w, v in ordered if w.key == key]
        assert list(shared.fetch(key)) == all_of_key
        assert list(shared.backward_fetch(key)) == all_of_key[::-1]
        assert list(shared.find_sessions(key, earliest, latest)) == of_key
        assert list(shared.backward_find_sessions(key, earliest, latest)) == of_key[::-1]
        assert list(shared.find_sessions_range(low, high, earliest, latest)) == of_keys
        assert list(shared.backward_find_sessions_range(low, high, earliest, latest)) == of_keys[::-1]
        if low is None or high is None or low <= high:
            assert list(shared.fetch_range(low, high)) == all_of_keys
            assert list(shared.backward_fetch_range(low, high)) == all_of_keys[::-1]

    def test_peek_and_has_next(self) -> None:
        with self.filled(("a", 0, 0), ("aa", 0, 10), ("a", 10, 20), ("aa", 10, 20)) as store:
            for method, ends in (("find_sessions", [0, 20]), ("backward_find_sessions", [20, 0])):
                with getattr(store, method)("a", 0, 20) as rows:
                    for end in ends:
                        assert rows.peek_next_key() == rows.peek_next_key() == next(rows)[0]
                        assert end in (0, 20)
                    assert not rows.has_next()
                    with pytest.raises(NoSuchElementError):
                        rows.peek_next_key()
            assert store.open_iterators == 0

    def test_first_session_of_many_reads_one_value(self) -> None:
        with self.filled(*(("a", n, n) for n in range(600)), retention=10_000) as store:
            for method, first in (("fetch", 0), ("backward_fetch", 599)):
                before = store.deserialised
                with getattr(store, method)("a") as rows:
                    assert store.deserialised == before
                    assert next(rows) == (Windowed("a", first, first), first)
                    assert store.deserialised == before + 1

    def test_writes_during_iteration(self) -> None:
        ends = list(range(300))
        for method in ("fetch_range", "backward_fetch_range"):
            with self.filled(*(("a", 0, end) for end in ends), retention=100_000) as store:
                seen = []
                for window, _ in getattr(store, method)(None, None):
                    seen.append(window.end)
                    store.remove(window)
                    if window.key == "a":
                        store.put(Windowed("b", 0, window.end), 1)
                assert sorted(set(seen)) == ends
