from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from sessionlake.errors import StoreError
from sessionlake.stores import Serdes, Stores, Windowed, change_logged
from tests.store.contracts.window import WindowContract

directory = TemporaryDirectory()


class OnDisk(WindowContract):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        keys, values = key_serde or Serdes.string(), value_serde or Serdes.int64()
        settings = {"retention": 100, "window_size": 10, "segment_interval": 50, **settings}
        if isinstance(settings["retention"], str) or settings["retention"] > 1 << 40:
            del settings["segment_interval"]
        return Stores.persistent_window_store("store", mkdtemp(dir=directory.name), keys, values, **settings)

    @staticmethod
    def order(key: bytes, start: int) -> tuple[Any, ...]:
        return start // 50, key, start


class TestOnDisk(OnDisk):
    pass


class TestInMemory(WindowContract):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        keys, values = key_serde or Serdes.string(), value_serde or Serdes.int64()
        return Stores.in_memory_window_store("store", keys, values, **{"retention": 100, "window_size": 10, **settings})

    @staticmethod
    def order(key: bytes, start: int) -> tuple[Any, ...]:
        return start, key

    def test_rows_that_expire_under_an_iterator_stay_readable_by_it(self) -> None:
        with self.filled(("a", 0), ("a", 10), ("b", 5), ("b", 15)) as store:
            first, second = store.fetch("a", 0, 50), store.backward_fetch("b", 0, 50)
            store.put("a", 9, 5000)
            assert list(store.fetch("a", 0, 50)) == []
            store.put("a", 9, 5001)
            assert (next(first), next(second)) == ((0, 0), (15, 3))
            assert list(first) == [(10, 1)]
            assert list(second) == [(5, 2)]
            store.put("a", 9, 5002)
            assert list(store.rows.find(None, None, 0, 100, False)) == []

    def test_expiry_is_decided_when_the_iterator_is_made(self) -> None:
        with self.filled(*(("a", start) for start in range(0, 125, 25))) as store:
            before = store.fetch_all(0, 100)
            store.put("a", 9, 125)
            assert [w.start for w, _ in before] == [25, 50, 75, 100]
            assert [w.start for w, _ in store.fetch_all(0, 125)] == [50, 75, 100, 125]


class TestLoggedInMemory(TestInMemory):
    @classmethod
    def make(cls, key_serde: Any = None, value_serde: Any = None, **settings: Any) -> Any:
        return change_logged(super().make(key_serde, value_serde, **settings), lambda _, __: None)

    def test_rows_that_expire_under_an_iterator_stay_readable_by_it(self) -> None:
        pass


def opened(path: Path, **settings: Any) -> Any:
    return Stores.persistent_window_store(
        "store",
        path,
        Serdes.string(),
        Serdes.int64(),
        **{"retention": 100, "window_size": 10, "segment_interval": 50, **settings},
    )


def families(store: Any) -> list[int]:
    return sorted(int(name[1:]) for name in store.rows._families.names)


def test_segments_roll_and_are_found_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for start, live in (
            (100, [2]),
            (149, [2]),
            (150, [2, 3]),
            (200, [2, 3, 4]),
            (249, [2, 3, 4]),
            (250, [3, 4, 5]),
        ):
            store.put("a", start, start)
            assert families(store) == live
    with opened(tmp_path) as store:
        assert families(store) == [3, 4, 5]
        assert [v for _, v in store.all()] == [200, 249, 250]
        store.put("a", 1, 149)
        store.put("a", 1, 150)
        assert store.dropped_total == 1
        assert [v for _, v in store.all()] == [200, 249, 250]


def test_put_into_a_live_segment_is_hidden_though_it_is_expired(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.put("a", 1, 249)
        store.put("a", 2, 149)
        assert store.dropped_total == 0
        assert store.fetch_at("a", 149) is None
        assert [v for _, v in store.all()] == [1]


def test_iterator_skips_segments_that_are_dropped_before_it_reaches_them(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for start in (0, 10, 50, 99):
            store.put("a", start, start)
        unread, begun, backward = store.all(), store.all(), store.backward_all()
        assert next(begun)[1] == 0
        assert next(backward)[1] == 99
        store.put("a", 150, 150)
        assert [v for _, v in unread] == [50, 99]
        assert [v for _, v in begun] == [10, 50, 99]
        assert [v for _, v in backward] == [50]


@pytest.mark.parametrize("method", ["all", "backward_all"])
def test_segment_that_is_dropped_under_an_iterator_is_read_to_its_end(tmp_path: Path, method: str) -> None:
    with opened(tmp_path, segment_interval=500) as store:
        for start in range(500):
            store.put("a", start, start)
        rows = getattr(store, method)()
        found = [next(rows)[1] for _ in range(3)]
        store.put("a", 1, 5000)
        assert families(store) == [10]
        live = list(range(400, 500))
        assert found + [v for _, v in rows] == (live if method == "all" else live[::-1])


def test_duplicates_are_numbered_on_when_opened_again(tmp_path: Path) -> None:
    for value in range(3):
        with opened(tmp_path, retain_duplicates=True) as store:
            store.put("a", value, 20)
            assert list(store.fetch("a", 20, 20)) == [(20, n) for n in range(value + 1)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segment_interval": 60}, "was made with segment_interval = 50, not 60"),
        ({"unit": "ms"}, "was made with unit = 'us', not 'ms'"),
        ({"retain_duplicates": True}, "was made with retain_duplicates = False, not True"),
    ],
)
def test_other_layout_than_it_was_made_with_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreError, match=message):
        opened(tmp_path, **settings)
    opened(tmp_path).close()


def test_retention_may_change_and_the_segments_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.put("a", 1, 1000)
        store.put("a", 2, 950)
    with opened(tmp_path, retention=20, segment_interval=None) as store:
        assert [v for _, v in store.all()] == [1]
        assert store.rows.interval == 50


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retention": 0}, "retention: 0 must be more than zero"),
        ({"retention": "soon"}, "retention: 'soon' is not a duration"),
        ({"retention": "1500us", "unit": "ms"}, "retention: '1500us' is no whole number of the store's unit"),
        ({"retention": 5}, "retention: 5 is shorter than window_size 10"),
        ({"window_size": True}, "window_size: True must be more than zero"),
        ({"segment_interval": -1}, "segment_interval: -1 must be more than zero"),
        ({"unit": "ns"}, "unit: 'ns' is not one of"),
    ],
)
def test_arguments_that_make_no_store(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, **settings)


def test_default_interval_is_half_the_retention_but_a_minute(tmp_path: Path) -> None:
    for number, (retention, unit, interval) in enumerate(
        [("2 days", "us", 86_400_000_000), (1, "us", 60_000_000), ("2 minutes", "s", 60), ("1 hour", "ms", 1_800_000)]
    ):
        settings: dict[str, Any] = {"retention": retention, "unit": unit, "window_size": 1, "segment_interval": None}
        with opened(tmp_path / str(number), **settings) as store:
            assert store.rows.interval == interval


def test_newest_of_many_keys_come_first(tmp_path: Path) -> None:
    with opened(tmp_path, retention=1000) as store:
        for start, key in ((10, "z"), (60, "a"), (110, "m"), (111, "b")):
            store.put(key, start, start)
        assert [w for w, _ in store.backward_all()][:2] == [Windowed("m", 110, 120), Windowed("b", 111, 121)]
