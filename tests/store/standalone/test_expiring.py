"""Key-value stores with a time to live: absent exactly ttl after the write, in every read, by the clock that they were given."""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import StoreError
from sessionlake.stores import Serdes, Stores, change_logged
from tests.store.standalone.key_value_contract import InMemory, OnDisk
from tests.support import examples

directory = TemporaryDirectory()
NUMBERS = (Serdes.string(), Serdes.int64())
TTL = 100
KINDS = ["memory", "disk"]


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def opened(kind: str, clock: Any, path: Path | None = None, ttl: Any = TTL, **options: Any) -> Any:
    if kind == "memory":
        return Stores.in_memory_key_value_store("store", *NUMBERS, ttl=ttl, clock=clock, **options)
    return Stores.persistent_key_value_store(
        "store", path or mkdtemp(dir=directory.name), *NUMBERS, ttl=ttl, clock=clock, **options
    )


class TestInMemoryWithTtl(InMemory):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return Stores.in_memory_key_value_store(
            "store", key_serde or Serdes.bytes(), value_serde or Serdes.bytes(), ttl="1 day"
        )


class TestOnDiskWithTtl(OnDisk):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None) -> Any:
        return Stores.persistent_key_value_store(
            "store", mkdtemp(dir=directory.name), key_serde or Serdes.bytes(), value_serde or Serdes.bytes(), ttl="1 day"
        )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_there_one_tick_before_its_ttl_is_over_and_absent_at_its_end(kind: str) -> None:
    clock = Clock()
    with opened(kind, clock) as store:
        store.put("a", 1)
        clock.now = 60
        store.put("b", 2)
        for now, rows in ((99, [("a", 1), ("b", 2)]), (100, [("b", 2)]), (159, [("b", 2)]), (160, [])):
            clock.now = now
            there = dict(rows)
            assert [store.get(key) for key in "ab"] == [there.get("a"), there.get("b")]
            assert list(store.all()) == list(store.range("a", "b")) == rows
            assert list(store.reverse_all()) == list(store.reverse_range("a", "b")) == rows[::-1]
            assert list(store.prefix_scan("a")) == [row for row in rows if row[0] == "a"]
        assert store.put_if_absent("a", 3) is None
        assert (store.get("a"), store.delete("a"), store.get("a")) == (3, 3, None)


@pytest.mark.parametrize(("method", "shown"), [("all", ["a", "c"]), ("reverse_all", ["c"])])
@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_leaves_out_what_is_over_when_its_turn_comes(kind: str, method: str, shown: list[str]) -> None:
    clock = Clock()
    with opened(kind, clock) as store:
        for now, key in ((0, "a"), (0, "b"), (50, "c")):
            clock.now = now
            store.put(key, now)
        clock.now = 99
        with getattr(store, method)() as rows:
            first = next(rows)[0]
            clock.now = 100
            assert [first, *(key for key, _ in rows)] == shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_begins_the_time_anew_and_what_was_never_comes_back(kind: str) -> None:
    clock = Clock()
    with opened(kind, clock) as store:
        store.put("a", 1)
        clock.now = 90
        store.put("a", 2)
        clock.now = 189
        assert (store.get("a"), list(store.all())) == (2, [("a", 2)])
        clock.now = 190
        assert (store.get("a"), list(store.all())) == (None, [])
        store.put("a", 3)
        store.delete("a")
        assert (store.get("a"), list(store.all())) == (None, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_set_back_brings_nothing_back(kind: str) -> None:
    clock = Clock()
    with opened(kind, clock) as store:
        store.put("a", 1)
        clock.now = 100
        assert store.get("a") is None
        clock.now = 50
        assert store.get("a") is None
        store.put("b", 2)  # as at 100
        clock.now = 199
        assert store.get("b") == 2
        clock.now = 200
        assert store.get("b") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.sampled_from([1, 30, 49, 50, 99, 100])),
        st.tuples(st.just("reopen"), st.just(""), st.just(0)),
    ),
    max_size=20,
)


@pytest.mark.parametrize("kind", KINDS)
@examples(15)
@given(STEPS)
def test_it_is_a_dict_that_forgets(kind: str, steps: list[tuple[str, str, int]]) -> None:
    clock, path = Clock(), Path(mkdtemp(dir=directory.name))
    model: dict[str, tuple[int, int]] = {}
    log: list[tuple[bytes, bytes | None]] = []

    def made() -> Any:
        # A minute is the shortest segment: of seconds, 100 are in two or three.
        store = opened(kind, clock, path, unit="s")
        return change_logged(store, lambda key, value: log.append((key, value)))

    store = made()
    for step, key, number in steps:
        if step == "put":
            store.put(key, number)
            model[key] = (number, clock.now)
        elif step == "delete":
            store.delete(key)
            model.pop(key, None)
        elif step == "pass":
            clock.now += number
        elif kind == "disk":
            store.close()
            store = made()
        live = sorted((of, value) for of, (value, written) in model.items() if clock.now < written + TTL)
        assert list(store.all()) == live
        assert list(store.reverse_all()) == live[::-1]
        assert [store.get(of) for of in "abcd"] == [dict(live).get(of) for of in "abcd"]
        if kind == "memory":
            assert store.approximate_num_entries() == len(live)
    store.close()
    # Restored from its log, into either kind, rows are as old as they were.
    records = list(log)
    for other in KINDS:
        with opened(other, clock, unit="s") as again:
            again.restore(records)
            live = sorted((of, value) for of, (value, written) in model.items() if clock.now < written + TTL)
            assert list(again.all()) == live


def test_what_is_over_goes_from_the_disk_by_whole_segments(tmp_path: Path) -> None:
    clock = Clock()
    with opened("disk", clock, tmp_path, ttl=200, unit="s") as store:
        for now in range(0, 1000, 50):
            clock.now = now
            store.put(f"key {now}", now)
        # Of segments of 100 seconds those that hold rows of the last 200.
        assert sorted(store.rows._families.names) == ["w7", "w8", "w9"]
        assert [value for _, value in store.all()] == [800, 850, 900, 950]


def test_what_is_over_goes_from_memory_with_the_next_write() -> None:
    clock = Clock()
    with opened("memory", clock) as store:
        for clock.now in range(500):
            store.put(str(clock.now), 1)
        assert (len(store.rows._written), store.rows._rows.count()) == (TTL, TTL)


def test_units_texts_and_datetimes() -> None:
    clock = Clock()
    with opened("memory", lambda: datetime.fromtimestamp(clock.now, UTC), ttl="1 minute", unit="s") as store:
        store.put("a", 1)
        clock.now = 59
        assert store.get("a") == 1
        clock.now = 60
        assert store.get("a") is None
    with Stores.in_memory_key_value_store("store", *NUMBERS, ttl="1 day") as store:
        store.put("a", 1)  # by the machine's clock
        assert store.get("a") == 1


def test_what_makes_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^ttl: 0 must be more than zero"):
        opened("memory", None, ttl=0)
    with pytest.raises(ValueError, match=r"^clock: is of stores with ttl; give ttl, or leave the clock out$"):
        Stores.in_memory_key_value_store("store", *NUMBERS, clock=Clock())
    opened("disk", Clock(), tmp_path).close()
    with pytest.raises(StoreError, match=r"was made with kind = 'key-value with ttl', not 'key-value'"):
        Stores.persistent_key_value_store("store", tmp_path, *NUMBERS)
    with pytest.raises(StoreError, match=r"was made with unit = 'us', not 'ms'"):
        opened("disk", Clock(), tmp_path, unit="ms")
    # Another ttl hides other rows; they stay in the segments that they are in.
    opened("disk", Clock(), tmp_path, ttl=5).close()
