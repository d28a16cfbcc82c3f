import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.columnar.records import Records
from sessionlake.errors import StoreError
from sessionlake.store.segmented import segment_interval
from tests.store.sessions import OneSessionAtATime, Session

MINUTE = 60_000_000


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = OneSessionAtATime(tmp_path / "db", 100)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("retention", "segments", "interval"),
    [
        (0, 3, MINUTE),
        (2 * MINUTE, 3, MINUTE),
        (2 * MINUTE + 2, 3, MINUTE + 1),
        (10 * MINUTE, 2, 10 * MINUTE),
        (10 * MINUTE, 6, 2 * MINUTE),
    ],
)
def test_segment_interval_is_retention_over_segments_less_one_but_a_minute(
    retention: int, segments: int, interval: int
) -> None:
    assert segment_interval(retention, segments) == interval


def test_expiry_drops_whole_segments_below_the_bound(store: Any) -> None:
    rows = [Session("k", 0, end) for end in (99, 100, 199, 200)]
    for row in rows:
        store.put(row)
    none = store.writes(pa.array(["k"]), empty(), np.zeros(0, np.int64), np.zeros(0, np.int64))
    store.apply(none, {}, 100)
    assert store.fetch("k") == rows[1:]
    store.apply(none, {}, 199)
    assert store.fetch("k") == rows[1:]
    store.apply(none, {}, 200)
    assert store.fetch("k") == rows[3:]


def test_writes_below_the_bound_are_left_out_and_meta_is_kept(store: Any) -> None:
    store.apply(writes_of(store, [50, 150]), {"commit_id": b"c1"}, 100)
    assert [s.end for s in store.fetch("k")] == [150]
    assert store.meta("commit_id") == b"c1"
    assert store.meta("other") is None


def test_dropped_segment_can_come_back_empty(store: Any) -> None:
    store.put(Session("k", 0, 50))
    store.apply(writes_of(store, [250]), {}, 200)
    store.put(Session("k", 20, 60))
    assert [s[:3] for s in store.fetch("k")] == [("k", 20, 60), ("k", 250, 250)]


def test_find_many_gives_owner_and_segment(store: Any) -> None:
    for key, end in (("a", 50), ("a", 150), ("c", 151), ("c", 350)):
        store.put(Session(key, end, end, state=key.encode()))
    found = store.find_many(pa.array([b"a", b"b", b"c"]), np.array([0, 0, 300]))
    rows = zip(found.sessions.codes.tolist(), found.sessions.end.tolist(), found.segment.tolist(), strict=True)
    assert sorted(rows) == [(0, 50, 0), (0, 150, 1), (2, 350, 3)]
    assert len(store.find_many(pa.array([b"x"]), np.array([0])).segment) == 0
    assert len(store.find_many(pa.array([], pa.binary()), np.zeros(0, np.int64)).segment) == 0


def test_touched_pair_without_sessions_is_deleted(store: Any) -> None:
    store.put(Session("k", 0, 50))
    store.apply(store.writes(pa.array(["k"]), empty(), np.array([0, 0]), np.array([0, 0])), {}, 0)
    assert store.fetch("k") == []
    assert store.scan(0)[0] == []


def test_scan_leaves_out_what_ended_before(store: Any) -> None:
    for end in (110, 150, 210):
        store.put(Session("k", end, end))
    keys, sessions = store.scan(150)
    assert [(keys[o], e) for o, e in zip(sessions.codes, sessions.end, strict=True)] == [(b"k", 150), (b"k", 210)]


def test_clear_that_leaves_sessions_is_an_error(tmp_path: Path) -> None:
    """A restore would be merged with them."""
    store = OneSessionAtATime(tmp_path / "db", 100)
    (tmp_path / "db" / "7.run").mkdir()
    with pytest.raises(StoreError, match="can't be used"):
        store.clear()
    store.close()


def test_clear_empties_and_goes_on(store: Any) -> None:
    store.apply(writes_of(store, [50]), {"commit_id": b"c1"}, 0)
    store.clear()
    assert store.all() == []
    assert store.meta("commit_id") is None
    store.put(Session("k", 0, 50))
    assert len(store.fetch("k")) == 1


def test_reopened_store_has_everything(tmp_path: Path) -> None:
    first = OneSessionAtATime(tmp_path / "db", 100)
    first.apply(writes_of(first, [50, 250]), {"commit_id": b"c1"}, 0)
    first.close()
    second = OneSessionAtATime(tmp_path / "db", 100)
    assert [s.end for s in second.fetch("k")] == [50, 250]
    assert second.meta("commit_id") == b"c1"
    second.close()


def test_open_store_keeps_others_out_and_close_lets_them_in(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.store.sessions import OneSessionAtATime as S\n"
        "s = S(Path(sys.argv[1]), 100); print(len(s.fetch('k'))); s.close()"
    )
    opened = OneSessionAtATime(tmp_path / "db", 100)
    opened.apply(writes_of(opened, [50, 250]), {}, 0)
    opened.fetch("k")
    with pytest.raises(StoreError, match=r"is open in another process"):
        OneSessionAtATime(tmp_path / "db", 100)
    opened.close()
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "db")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n"


def test_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("no directory")
    with pytest.raises(StoreError, match="can't be used"):
        OneSessionAtATime(tmp_path / "db", 100)


def test_many_rounds_of_open_write_close_keep_the_number_of_files_bounded(tmp_path: Path) -> None:
    for number in range(60):
        opened = OneSessionAtATime(tmp_path / "db", 100)
        opened.apply(writes_of(opened, [number % 200]), {"commit_id": b"c%d" % number}, 0)
        opened.close()
    assert len(list((tmp_path / "db").glob("*.sst"))) <= 3 * 5


def empty() -> Records:
    none = np.zeros(0, np.int64)
    return Records(none, none, none, none, none, pa.array([], pa.binary()))


def writes_of(store: Any, ends: list[int]) -> pa.Table:
    end = np.array(ends, np.int64)
    zero = np.zeros(len(end), np.int64)
    sessions = Records(zero, end, end, zero + 1, zero, pa.array([b"s"] * len(end), pa.binary()))
    return store.writes(pa.array(["k"]), sessions, zero, end // 100)
