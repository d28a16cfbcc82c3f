"""What is in the store: windows beside plain Python, and messages by all eight forms of SAMZA-552."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessionlake import CountSessions, CountWindows, HoppingWindows, SessionWindows, SlidingWindows
from sessionlake.standalone import Emit, JoinWindow, WindowedAggregator
from tests.standalone.kinds import aggregator
from tests.standalone.support import Row

P = 1 << 40
GIVEN = [("abc"[i % 3], i * 7 % 31, i) for i in range(40)]
"""Key, time, value."""


def filled(path: Path, definition: Any, *, flush_at: int = 20, **options: Any) -> WindowedAggregator:
    """Return an aggregator that was given all messages; some of them lie on disk, some in the overlay."""
    run = WindowedAggregator(
        path, definition, {"total": "sum(v)"}, key="key", emit=options.pop("emit", None), **options
    )
    for number, (key, time, value) in enumerate(GIVEN):
        run.add_message({"key": key, "time_us": time, "v": value}, clock_us=0)
        if number == flush_at:
            run.flush()
    return run


def summed(
    bounds: Iterable[tuple[str, int, int, int]], inside: Callable[[int, int, int], bool]
) -> list[tuple[Any, ...]]:
    """Return the windows (key, start, end as it is shown) that have a message, with their sums; by start, key."""
    found = []
    for key, start, end, low in bounds:
        values = [v for k, t, v in GIVEN if k == key and t >= low and inside(start, end, t)]
        if values:
            found.append((start, key, end, len(values), sum(values)))
    return sorted(found)


def shown(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row[n] for n in ("window_start", "window_key", "window_end", "event_count", "total")) for row in rows]


@pytest.mark.parametrize(
    ("low", "high", "key"), [(-50, 100, None), (10, 12, None), (12, 12, "b"), (31, 50, "c"), (5, 5, "zz")]
)
def test_windows_of_a_range_by_time(tmp_path: Path, low: int, high: int, key: str | None) -> None:
    keys = [k for k in "abc" if key in (None, k)]
    with filled(tmp_path / "h", HoppingWindows.of("9 us", "3 us").offset("1 us").until("1 hour")) as run:
        every = [(k, s, s + 9, -100) for k in keys for s in range(-50, 100) if s % 3 == 1 and s <= high and s + 9 > low]
        assert shown(run.get_windows(low, high, key)) == summed(every, lambda s, e, t: s <= t < e)
    with filled(tmp_path / "s", SlidingWindows.of("4 us").until("1 hour")) as run:
        made = {(k, s) for k, t, _ in GIVEN for s in (t - 4, t + 1) if k in keys}
        every = [(k, s, s + 4, -100) for k, s in made if s <= high and s + 4 >= low]
        assert shown(run.get_windows(low, high, key)) == summed(every, lambda s, e, t: s <= t <= e)


def test_windows_below_the_horizon_are_none(tmp_path: Path) -> None:
    with filled(tmp_path / "w", HoppingWindows.of("4 us", "2 us").grace("0 us").until("6 us"), flush_at=99) as run:
        run.add_message({"key": "a", "time_us": 1000, "v": 1}, clock_us=0)
        run.flush()
        run.add_message({"key": "a", "time_us": 1001, "v": 1}, clock_us=0)
        assert {row["window_start"] for row in run.get_windows(-100, 2000)} == {998, 1000}


def test_sessions_of_a_range(tmp_path: Path) -> None:
    with filled(tmp_path / "w", SessionWindows.with_gap("1 us").grace("1 hour").until("2 hours")) as run:
        expected = []
        for key in "abc":
            times = sorted({t for k, t, _ in GIVEN if k == key})
            starts = [t for t in times if t - 1 not in times]
            ends = [t for t in times if t + 1 not in times]
            expected += [(key, s, e, -1) for s, e in zip(starts, ends, strict=True)]
        within = [row for row in expected if row[1] <= 20 and row[2] >= 10]
        assert shown(run.get_windows(10, 20)) == summed(within, lambda s, e, t: s <= t <= e)
        only = [row for row in within if row[0] == "b"]
        assert shown(run.get_windows(10, 20, "b")) == summed(only, lambda s, e, t: s <= t <= e)


def test_windows_by_count_are_those_that_are_not_full(tmp_path: Path) -> None:
    values = {key: [v for k, _, v in GIVEN if k == key] for key in "abc"}
    with filled(tmp_path / "k", CountWindows.of(5), emit=Emit(early="1 hour")) as run:
        expected = []
        for first, (key, own) in enumerate(values.items(), 1):
            left = own[len(own) // 5 * 5 :]
            start = first + len(own) // 5 * 5
            expected += [(start, key, start + 4, len(left), sum(left))] * bool(left)
        assert shown(run.get_windows(0, 100)) == sorted(expected)
    with filled(tmp_path / "p", CountWindows.of(16).advance(8).per("partition")) as run:
        expected = []
        for start in (33, 25 + 0):
            for key in "abc":
                own = [v for n, (k, _, v) in enumerate(GIVEN, 1) if k == key and start <= n < start + 16]
                expected += [(start, key, start + 15, len(own), sum(own))] * (start + 15 > 40)
        assert shown(run.get_windows(0, 100)) == sorted(expected)
    with filled(tmp_path / "s", CountSessions.of(2), emit=Emit(early="1 hour")) as run:
        run.add_message({"key": "d", "time_us": 0, "v": 7}, clock_us=0)
        assert [row["window_key"] for row in run.get_windows(41, 41)] == ["d"]
        # The last b is the 38th message, with three of others behind it: its session is full.
        assert {row["window_key"] for row in run.get_windows(0, 100)} == {"a", "c", "d"}


def test_messages_by_time_and_key(tmp_path: Path) -> None:
    with filled(
        tmp_path / "w",
        HoppingWindows.of("9 us", "3 us").until("1 hour"),
        keep_messages=True,
        columns=["note"],
        schema={"note": "string"},
    ) as run:
        run.add_message({"key": "a", "time_us": 12, "v": 99, "note": "n"}, partition=3, clock_us=0)
        every = [{"key": k, "time_us": t, "position": n, "v": v, "note": None} for n, (k, t, v) in enumerate(GIVEN, 1)]
        every.append({"key": "a", "time_us": 12, "position": 3 * P + 1, "v": 99, "note": "n"})
        for key in (None, "a", "zz"):
            expected = [row for row in every if 10 <= row["time_us"] <= 20 and key in (None, row["key"])]
            expected.sort(key=lambda row: (row["time_us"], row["position"]))
            assert run.get_messages(10, 20, session_key=key) == expected


def test_messages_out_of_retention_are_gone(tmp_path: Path) -> None:
    windows = HoppingWindows.of("4 us", "2 us").grace("2 us").until("6 us")
    with filled(tmp_path / "w", windows, keep_messages=True, flush_at=99) as run:
        run.add_message({"key": "a", "time_us": 1000, "v": 1}, clock_us=0)
        assert [row["time_us"] for row in run.get_messages(-100, 2000)] == [1000]
        assert run.counts["late"] + run.counts["accepted"] + run.counts["dead"] == run.counts["input"]


def test_messages_by_position_and_key(tmp_path: Path) -> None:
    with filled(tmp_path / "w", CountWindows.of(3).per("partition"), keep_messages=600) as run:
        for value in range(2):
            run.add_message({"key": "a", "time_us": value, "v": value}, partition=2, clock_us=0)
        assert [row["v"] for row in run.get_messages(5, 7)] == [4, 5, 6]
        assert [row["v"] for row in run.get_messages(5, 12, session_key="b")] == [4, 7, 10]
        assert [row["position"] for row in run.get_messages(P, 9 * P)] == [2 * P + 1, 2 * P + 2]


def test_by_count_the_newest_of_each_partition_are_kept(tmp_path: Path) -> None:
    import pyarrow as pa

    with WindowedAggregator(
        tmp_path / "w", CountWindows.of(3).per("partition"), {"n": "count()"}, time=None, keep_messages=300
    ) as run:
        for partition, rows in ((0, 2000), (5, 200)):
            run.add_messages(pa.table({"x": list(range(rows))}), partitions=partition, clock_us=partition)
        for _ in range(2):
            positions = [row["position"] for row in run.get_messages(0, 9 * P)]
            assert positions == [*range(1701, 2001), *range(5 * P + 1, 5 * P + 201)]
            run.flush()
        run.add_message({"x": 1}, partition=0, clock_us=9)
        assert [row["time_us"] for row in run.get_messages(2000, 2001)] == [0, 9]
        assert run.get_messages(0, 1701) == []


PAIRS = [("u1", "i1"), ("u1", "i2"), ("u2", "i1"), ("u10", "i1")]


@pytest.fixture(params=["time", "count", "session"])
def joined(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[JoinWindow]:
    """Return a join on two fields, of which the left side has 16 messages: at time i and with number i + 1 of the i % 4th key."""
    sides: dict[str, Any] = {"left": {"name": "l", "columns": ["v"]}, "right": {"name": "r"}}
    settings: dict[str, dict[str, Any]] = {
        "time": {"retention": "1 hour"},
        "count": {"by": "count", "retention_count": 100},
        "session": {"kind": "session", "gap": "3 us", "retention": "1 hour"},
    }
    if request.param != "session":
        sides = {name: {**side, "size": {"time": "3 us", "count": 4}[request.param]} for name, side in sides.items()}
    run = JoinWindow(tmp_path / "w", on=["user", "item = thing"], **sides, **settings[request.param])
    for i in range(16):
        user, item = PAIRS[i % 4]
        run.add_message("left", {"user": user, "item": item, "time_us": i, "v": i}, clock_us=0)
        if i == 9:
            run.flush()
    run.add_message("right", {"user": "u1", "thing": "i2", "time_us": 5}, clock_us=0)
    yield run
    run.close()


@pytest.mark.parametrize(
    ("session_key", "join_keys", "keys"),
    [
        (None, None, {0, 1, 2, 3}),
        (None, ["u1", "i1"], {0}),
        (None, ["u1"], {0, 1}),
        ("u1", None, {0, 1}),
        ("u1", ["i2"], {1}),
        ("u3", ["i2"], set()),
    ],
)
def test_messages_of_a_join_by_all_forms(
    joined: JoinWindow, session_key: str | None, join_keys: list[str] | None, keys: set[int]
) -> None:
    shift = 1 if joined._operator.spec.by == "count" else 0
    found = joined.get_messages("left", 2 + shift, 12 + shift, join_keys=join_keys, session_key=session_key)
    assert [row["v"] for row in found] == [i for i in range(2, 13) if i % 4 in keys]
    (right,) = joined.get_messages("right", 0, 100, session_key="u1", join_keys=["i2"])
    assert (right["key"], right["position"]) == ('["u1","i2"]', 1)
    assert joined.get_messages("right", 0, 100, session_key="u2") == []


def test_windows_of_a_side(joined: JoinWindow) -> None:
    found = joined.get_windows("left", 4, 6, join_keys=["u1", "i2"])
    bounds = [(row["window_start"], row["window_end"], row["event_count"]) for row in found]
    positions = [(row["first_position"], row["last_position"]) for row in found]
    spec = joined._operator.spec
    if spec.kind == "session":
        # Left ones at 1, 5, 9 and 13 are 4 apart, and the right one at 5 brings none together.
        assert (bounds, positions) == ([(5, 5, 1)], [(6, 6)])
    elif spec.by == "time":
        assert (bounds, positions) == ([(2, 5, 1), (6, 9, 1)], [(6, 6), (10, 10)])
    else:
        assert (bounds, positions) == ([(3, 6, 1)], [(6, 6)])


def test_windows_of_a_side_on_a_grid(tmp_path: Path) -> None:
    sides = {"left": {"name": "l"}, "right": {"name": "r"}}
    with JoinWindow(
        tmp_path / "w", on=["id"], kind="hopping", size="4 us", advance="2 us", retention="1 hour", **sides
    ) as run:
        for time in (3, 4, 9):
            run.add_message("left", {"id": 1, "time_us": time}, clock_us=0)
        found = [tuple(row.values()) for row in run.get_windows("left", 5, 20, session_key=1)]
        assert found == [("1", 2, 6, 2, 1, 2), ("1", 4, 8, 1, 2, 2), ("1", 6, 10, 1, 3, 3), ("1", 8, 12, 1, 3, 3)]
        assert run.get_windows("right", 0, 100) == []


def test_a_window_that_ends_where_the_retention_begins_is_shown(tmp_path: Path) -> None:
    with aggregator("tumbling", tmp_path / "w") as run:
        for time, starts in ((5, [0]), (50, [0, 50]), (51, [50])):
            run.add_message({"key": "a", "time_us": time, "v": 1}, clock_us=0)
            assert [row["window_start"] for row in run.get_windows(-100, 100)] == starts
