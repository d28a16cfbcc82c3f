"""A view's window store: every read, forward and backward, beside windows made event by event; slices of a key lie in several blocks."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError, UnsupportedOperationError
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import (
    HoppingWindows,
    SlidingWindows,
    TumblingWindows,
    WindowDefinition,
)
from sessionlake.serve.decoder import decoder_of
from sessionlake.serve.replica import LocalShard, NotLocalError, View
from sessionlake.store.secondary import SecondarySegments, identity
from sessionlake.stores import Windowed
from sessionlake.testing import WindowHarness
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from tests.serve.replica_support import MINUTE
from tests.support import examples

SIZE, SHARDS = 12, 2
KINDS: dict[str, tuple[WindowDefinition, dict[str, Any]]] = {
    "tumbling": (TumblingWindows.of("12 minutes"), {}),
    "hopping": (HoppingWindows.of("12 minutes", "5 minutes"), {"advance": "5 minutes"}),
    "sliding": (SlidingWindows.of("12 minutes"), {}),
}
LEAST, LARGEST = -(1 << 63), (1 << 63) - 1
# Keys that others begin with, whose blocks lie among those of others: before 1970 a block's number begins with the byte 7F.
KEYS = ["a", "a\x7f", "a\x7f\x7f", "ab", "aé", "b"]
EVENTS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-300, 300)), min_size=1, max_size=12)


def config_of(kind: str, root: Path = Path("/nowhere")) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "p", "warehouse": "lake", "store": "store", "shards": SHARDS},
            "source": {"kind": "files", "path": "events", "format": "json"},
            "event": {"key": "key", "time": "time_us", "time_unit": "us"},
            "window": {"kind": kind, "size": "12 minutes", "retention": "1 day", **KINDS[kind][1]},
            "aggregates": {"total": "sum(v)"},
        },
        root,
    )


def harness_of(kind: str, retention: str = "1 day") -> WindowHarness:
    # Nothing is sent before a window is full: what the store tells was not sent.
    emit = EmitSection(early="off", late="1 hour")
    return WindowHarness(KINDS[kind][0].until(retention), {"total": "sum(v)"}, emit=emit, shards=SHARDS)


def view_of(config: Config, harness: WindowHarness) -> View:
    """Return a view of a harness's stores as of its last batch."""
    operator = harness._operator
    assert operator is not None
    paths = [harness._shards.store(operator, n)._db.path for n in range(SHARDS)]
    shards = {n: LocalShard(path, identity(path), SecondarySegments(path)) for n, path in enumerate(paths)}
    commits = tuple(f"c{n}" for n in range(SHARDS))
    types = {"v": "int64"}
    commit = BatchCommit(
        "p",
        "id",
        1,
        "c1",
        harness._state,
        {},
        commits,
        "",
        Settings({"aggregates": config.aggregates}, {}, types),
        None,
        0,
        0,
    )
    return View(commit, shards, {}, decoder_of(config, commit))


def windows_of(kind: str, events: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (count, sum of values) by key and start in minutes: each window that has an event, event by event."""
    starts: dict[str, set[int]] = defaultdict(set)
    for key, minute in events:
        if kind == "tumbling":
            starts[key].add(minute // SIZE * SIZE)
        elif kind == "hopping":
            starts[key] |= {at for at in range(minute - SIZE + 1, minute + 1) if at % 5 == 0}
    found = {}
    if kind == "sliding":
        # In microseconds: the second window of an event begins right after it.
        for key, minute in events:
            starts[key] |= {(minute - SIZE) * MINUTE, minute * MINUTE + 1}
    scale, reach = (1, SIZE * MINUTE) if kind == "sliding" else (MINUTE, SIZE * MINUTE - 1)
    for key, some in starts.items():
        for start in some:
            inside = [n for n, (k, m) in enumerate(events) if k == key and 0 <= m * MINUTE - start * scale <= reach]
            if inside:
                found[key, start * scale] = (len(inside), sum(inside))
    return found


def rows_of(events: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"key": key, "time_us": minute * MINUTE, "v": n} for n, (key, minute) in enumerate(events)]


def told(found: Any) -> list[tuple[str, int, int, int]]:
    return [(w.key, w.start, row["event_count"], row["total"]) for w, row in found]


@pytest.mark.parametrize("kind", KINDS)
@examples(6)
@given(
    EVENTS,
    st.sampled_from([None, *KEYS, "c"]),
    st.sampled_from([None, *KEYS, "c"]),
    st.integers(-320, 320),
    st.integers(0, 400),
)
def test_every_read_in_both_directions(
    kind: str, events: list[tuple[str, int]], low: str | None, high: str | None, first: int, length: int
) -> None:  # fmt: skip
    with harness_of(kind) as harness:
        harness.process(rows_of(events))
        store = view_of(config_of(kind), harness).window_store()
        expected = sorted((*of, *value) for of, value in windows_of(kind, events).items())
        assert sorted(told(store.all())) == expected
        assert told(store.backward_all()) == told(store.all())[::-1]
        start, end = first * MINUTE, (first + length) * MINUTE
        for key in KEYS:
            for a, b in ((LEAST, LARGEST), (start, end), (end, start - 1)):
                of_key = [row[1:] for row in expected if row[0] == key and a <= row[1] <= b]
                rows = [(at, row["event_count"], row["total"]) for at, row in store.fetch(key, a, b)]
                assert rows == of_key
                assert [at for at, _ in store.backward_fetch(key, a, b)] == [row[0] for row in of_key[::-1]]
        inside = [
            row
            for row in expected
            if (low is None or row[0].encode() >= low.encode())
            and (high is None or row[0].encode() <= high.encode())
            and start <= row[1] <= end
        ]
        found = told(store.fetch_range(low, high, start, end))
        assert sorted(found) == inside
        assert told(store.backward_fetch_range(low, high, start, end)) == found[::-1]
        # Of a key its windows stand together, by start.
        assert [key for n, (key, *_) in enumerate(found) if not n or found[n - 1][0] != key] == list(
            dict.fromkeys(row[0] for row in found)
        )
        assert all(a[1] < b[1] for a, b in pairwise(found) if a[0] == b[0])
        assert sorted(told(store.fetch_all(start, end))) == [row for row in expected if start <= row[1] <= end]


def test_a_window_by_its_start_and_its_columns() -> None:
    with harness_of("hopping") as harness:
        harness.process([{"key": "a", "time_us": 7 * MINUTE, "v": 3}, {"key": "a", "time_us": 11 * MINUTE, "v": 4}])
        harness.process([{"key": "b", "time_us": 60 * MINUTE, "v": 1}])
        store = view_of(config_of("hopping"), harness).window_store()
        row = {"event_count": 2, "revision": 0, "final": False, "total": 7}
        assert store.fetch_at("a", 5 * MINUTE) == row
        assert next(store.fetch_range("a", "a", 5 * MINUTE, 5 * MINUTE)) == (
            Windowed("a", 5 * MINUTE, 17 * MINUTE),
            row,
        )
        assert (store.fetch_at("a", 6 * MINUTE), store.fetch_at("nobody", 5 * MINUTE)) == (None, None)


def test_windows_whose_slices_may_have_gone_are_left_out() -> None:
    """With an hour of retention: what begins before W - retention - size is in the tables only."""
    with harness_of("tumbling", "1 hour") as harness:
        harness.process(rows_of([("a", 0), ("a", 24), ("a", 36)]))
        harness.process(rows_of([("b", 96)]))
        view = view_of(config_of("tumbling"), harness)
        assert view.complete_from_us == 24 * MINUTE
        store = view.window_store()
        assert [at // MINUTE for at, _ in store.fetch("a", LEAST, LARGEST)] == [24, 36]
        assert store.fetch_at("a", 0) is None
        finals = [row["final"] for _, row in store.all()]
        assert finals == [True, False, False]


def test_it_is_read_only_and_of_windows_by_time(tmp_path: Path) -> None:
    with harness_of("tumbling") as harness:
        harness.process(rows_of([("a", 0)]))
        view = view_of(config_of("tumbling"), harness)
        store: Any = view.window_store()
        with pytest.raises(UnsupportedOperationError, match=r"put\(\) is not for a pipeline's own"):
            store.put("a", {}, 0)
        for call in (view.session_store, view.key_value_store):
            with pytest.raises(ConfigError, match=r"in no such store; use: window_store\(\)"):
                call()
        with pytest.raises(ConfigError, match=r"ask for `window_store\(\)`, or the tables"):
            view.find(["a"])
        missing = View(view.commit, {}, {0: "there is none", 1: "there is none"}, view.decoder)
        with pytest.raises(NotLocalError):
            list(missing.window_store().fetch("a", LEAST, LARGEST))
        by_count = parse_config(
            {
                **config_of("tumbling").model_dump(include={"pipeline", "source", "event"}, exclude_none=True),
                "window": {
                    "by": "count",
                    "kind": "tumbling",
                    "size": 3,
                    "retention": "1 day",
                    "retention_count": 9,
                },
                "aggregates": {"total": "sum(v)"},
            },
            tmp_path,
        )
        with pytest.raises(ConfigError, match="stores of windows by count can't be read"):
            decoder_of(by_count, view.commit)
