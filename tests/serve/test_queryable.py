"""A view's stores: every read, forward and backward, beside sorted lists; half of what they show lies in a file beside the store."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import ConfigError, NullKeyError, UnsupportedOperationError
from sessionlake.serve.replica import NotLocalError
from sessionlake.stores import Windowed, open_replica
from sessionlake.testing import TableHarness
from tests.serve.replica_support import MINUTE, Stream, micros
from tests.serve.views_support import table_config, view_of

KEYS = ["a", "a\0b", "b", "b\0", "zz", "é"]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Two batches: the second one is not in the stores yet."""
    stream = Stream(tmp_path)
    stream.run([(key, n * MINUTE) for key in KEYS[:4] for n in (0, 2, 20)])
    stream.run([(key, n * MINUTE) for key in KEYS[2:] for n in (4, 30, 38)])
    return stream


def expected_of(stream: Stream) -> list[tuple[Windowed[str], int]]:
    rows = stream.shown()
    return [
        (Windowed(row["session_key"], micros(row["session_start"]), micros(row["session_end"])), row["event_count"])
        for row in rows
    ]


def counted(found: Any) -> list[tuple[Windowed[str], int]]:
    return [(window, row["event_count"]) for window, row in found]


def test_sessions_of_a_key_in_both_directions(stream: Stream) -> None:
    view = open_replica(stream.config).view
    store, expected = view.session_store(), expected_of(stream)
    assert (view.batch_id, len({w.key for w, _ in expected})) == (1, len(KEYS))
    for key in [*KEYS, "none"]:
        of_key = [row for row in expected if row[0].key == key]
        assert counted(store.fetch(key)) == counted(store.fetch_range(key, key)) == of_key
        assert counted(store.backward_fetch(key)) == of_key[::-1]
        for earliest in (0, 4 * MINUTE, 4 * MINUTE + 1, 99 * MINUTE):
            for latest in (0, 20 * MINUTE - 1, 20 * MINUTE):
                met = [(w, n) for w, n in of_key if w.end >= earliest and w.start <= latest]
                assert counted(store.find_sessions(key, earliest, latest)) == met
                assert counted(store.backward_find_sessions(key, earliest, latest)) == met[::-1]
        for window, count in of_key:
            found = store.fetch_session(*window)
            assert found is not None
            assert (found["event_count"], store.fetch_session(window.key, window.start, window.end + 1)) == (
                count,
                None,
            )


def test_sessions_of_ranges_are_those_of_their_keys_newest_segment_first_backward(stream: Stream) -> None:
    store, expected = open_replica(stream.config).view.session_store(), expected_of(stream)
    interval = stream.operator.open_store(stream.root / "other").interval_us
    ordered = sorted(expected, key=lambda row: (row[0].end // interval, row[0].key.encode(), row[0].end))
    assert len({w.end // interval for w, _ in expected}) > 1
    for low, high in ((None, None), ("a", "b"), ("a\0", None), (None, "a"), ("c", "é"), ("zzz", None), ("b", "a")):
        inside = [
            (w, n)
            for w, n in ordered
            if (low is None or w.key.encode() >= low.encode()) and (high is None or w.key.encode() <= high.encode())
        ]
        assert counted(store.fetch_range(low, high)) == inside
        assert counted(store.backward_fetch_range(low, high)) == inside[::-1]
        met = [(w, n) for w, n in inside if w.end >= 20 * MINUTE and w.start <= 30 * MINUTE]
        assert counted(store.find_sessions_range(low, high, 20 * MINUTE, 30 * MINUTE)) == met
        assert counted(store.backward_find_sessions_range(low, high, 20 * MINUTE, 30 * MINUTE)) == met[::-1]


def test_values_are_the_columns_and_the_first_row_decodes_one(stream: Stream) -> None:
    store = open_replica(stream.config).view.session_store()
    with store.fetch_range(None, None) as rows:
        assert next(rows) == (
            Windowed("a", 0, 2 * MINUTE),
            {"event_count": 2, "revision": 0, "total": 2 * MINUTE % 7, "last": f"n{2 * MINUTE % 5}"},
        )
        assert store.deserialised == 1


def test_stores_of_a_pipeline_are_read_only_and_stay_at_their_batch(stream: Stream) -> None:
    store: Any = open_replica(stream.config).view.session_store()
    before = expected_of(stream)
    stream.run([("a", 40 * MINUTE)])
    assert sorted(counted(store.fetch_range(None, None))) == sorted(before)
    for call in (
        lambda: store.put(Windowed("a", 0, 1), {}),
        lambda: store.remove(Windowed("a", 0, 1)),
        lambda: store.restore([]),
    ):
        with pytest.raises(
            UnsupportedOperationError, match=r"is not for a pipeline's own; send it events or a correction$"
        ):
            call()
    with pytest.raises(NullKeyError):
        store.fetch(None)


def test_a_shard_that_is_not_here_is_told(stream: Stream) -> None:
    shard = open_replica(stream.config).view.shard_of("a")
    (stream.root / f"store/p/{shard}.pending/c2.arrow").unlink()
    store = open_replica(stream.config).view.session_store()
    for call in (lambda: store.fetch("a"), lambda: store.fetch_range(None, None)):
        with pytest.raises(NotLocalError, match=f"^store: shard {shard} is not here"):
            list(call())


def test_rows_of_a_table_in_both_directions(tmp_path: Path, stream: Stream) -> None:
    with TableHarness({"v": "long"}) as harness:
        harness.process([{"key": key, "time_us": n, "v": n} for n, key in enumerate(KEYS)])
        harness.process([{"key": "b", "time_us": 9, "v": None}, {"key": "a", "time_us": 9, "v": 1, "deleted": True}])
        view = view_of(table_config(tmp_path), harness)
        store = view.key_value_store()
        rows = {
            key: {"event_time": row["event_time"], "v": row["v"], "revision": row["revision"]}
            for key, row in sorted(harness.rows().items(), key=lambda item: item[0].encode())
        }
        assert list(rows) == ["a\0b", "b", "b\0", "zz", "é"]
        assert list(store.all()) == list(rows.items())
        assert list(store.reverse_all()) == list(rows.items())[::-1]
        for low in (None, "", "a", "b", "c", "zz", "zzz"):
            for high in (None, "", "a", "a\0b", "é"):
                inside = [
                    key
                    for key in rows
                    if (low is None or key.encode() >= low.encode()) and (high is None or key.encode() <= high.encode())
                ]
                assert [key for key, _ in store.range(low, high)] == inside
                assert [key for key, _ in store.reverse_range(low, high)] == inside[::-1]
        assert [key for key, _ in store.prefix_scan("a")] == ["a\0b"]
        assert [key for key, _ in store.prefix_scan("b")] == ["b", "b\0"]
        assert (store.get("b"), store.get("a"), store.get("none")) == (rows["b"], None, None)
        assert store.approximate_num_entries() == len(rows)
        with pytest.raises(UnsupportedOperationError):
            store.put("b", {})  # type: ignore[attr-defined]
        with pytest.raises(
            ConfigError, match=r"^session_store: this pipeline's rows are in no such store; use: key_value_store\(\)$"
        ):
            view.session_store()
    with pytest.raises(ConfigError, match=r"^key_value_store: .*; use: session_store\(\)$"):
        open_replica(stream.config).view.key_value_store()
