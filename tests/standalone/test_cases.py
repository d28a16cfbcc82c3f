"""The seed's Cases 1 and 2 (SAMZA-552), message by message, row for row; a replay of each message changes nothing."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake import CountWindows, TumblingWindows
from sessionlake.standalone import Emit, JoinWindow, WindowedAggregator
from tests.oracle.case2 import BY, CLOCKS, EACH_MESSAGE, EACH_MINUTE, ORDERS, SHIPMENTS, SIZES, at, shown
from tests.standalone.support import Row

MESSAGES = {
    "9:00:00": (1, {"value": 0, "time_us": at("8:59:10")}),
    "9:00:59": (2, {"value": 5, "time_us": at("9:00:01")}),
    "9:02:01": (3, {"value": 9, "time_us": at("8:59:30")}),
}
BY_TUPLE = {"9:01:00": (1, 3, 2, 5, "early"), "9:02:01": (1, 3, 3, 9, "full")}
BY_TIME = {
    "9:00:59": (at("8:59:00"), at("9:00:00"), 1, 0, "full"),
    "9:01:00": (at("9:00:00"), at("9:01:00"), 1, 5, "early"),
    "9:02:10": (at("8:59:00"), at("9:00:00"), 2, 9, "late"),
}


@pytest.mark.parametrize("keeps", ["none", "all"])
@pytest.mark.parametrize(
    ("windows", "emit", "expected"),
    [
        (CountWindows.of(3).per("partition").keep(3), Emit(early="1 minute"), BY_TUPLE),
        (
            TumblingWindows.of("1 minute").grace("1 hour").until("1 day"),
            Emit(early="1 minute", late="10 seconds"),
            BY_TIME,
        ),
    ],
)
def test_case_1(tmp_path: Path, windows: Any, emit: Emit, expected: dict[str, Any], keeps: str) -> None:
    kept: Any = (100 if isinstance(windows, CountWindows) else True) if keeps == "all" else False
    told = {}
    with WindowedAggregator(tmp_path / "w", windows, {"hottest": "max(value)"}, emit=emit, keep_messages=kept) as run:
        for clock in ("9:00:00", "9:00:59", "9:01:00", "9:02:00", "9:02:01", "9:02:10"):
            if clock in MESSAGES:
                position, message = MESSAGES[clock]
                run.add_message(message, position=position, clock_us=at(clock))
                before = run.get_result()
                run.add_message(message, position=position, clock_us=at(clock))
                run.add_message({"value": 100, "time_us": 0}, position=1, clock_us=at("9:02:10"))
                assert run.get_result() == before
            else:
                assert run.timeout(at(clock))
            for row in run.get_result():
                names = ("window_start", "window_end", "event_count", "hottest", "trigger")
                told[clock] = tuple(row[name] for name in names)
                assert (row["op"], row["window_key"], row["emitted_at"]) == ("upsert", "", at(clock))
            assert len(run.get_result()) == (clock in expected)
            run.flush()
            assert run.get_result() == []
        assert run.positions() == {0: 3}
        assert run.counts == {
            **dict.fromkeys(("late", "partly_late", "dead", "dropped", "filtered", "duplicate"), 0),
            "input": 3,
            "accepted": 3,
            "replayed": 6,
        }
    assert told == expected


def test_clocks_never_go_back(tmp_path: Path) -> None:
    """The example of docs/rules.md, rule 128."""
    emit = Emit(early="1 minute")
    with WindowedAggregator(tmp_path / "w", TumblingWindows.of("1 hour"), {"n": "count()"}, emit=emit) as run:
        sent = []
        for clock in ("9:00:30", "9:01:10", "9:00:50", "9:01:20", "9:02:00"):
            run.add_message({"time_us": 1}, clock_us=at(clock))
            sent.append([(row["n"], row["emitted_at"]) for row in run.get_result()])
            run.flush()
    assert sent == [[], [(2, at("9:01:10"))], [], [], [(5, at("9:02:00"))]]


def case_2(directory: Path, by: str, emit: str, **options: Any) -> JoinWindow:
    return JoinWindow(
        directory,
        on=["id"],
        left={"name": "orders", "size": SIZES[by], "columns": ["value"]},
        right={"name": "shipments", "size": None, "columns": ["cost"]},
        emit=Emit(early=emit, late=emit),
        **BY[by],
        **options,
    )


def at_clock(clock: str) -> list[tuple[str, int, Row]]:
    """Return side, offset and message of what comes at a time of the clock: those of Shipments begin at 1000."""
    left = [("left", n + 1, row) for n, (when, row) in enumerate(ORDERS) if when == clock]
    return left + [("right", n + 1000, row) for n, (when, row) in enumerate(SHIPMENTS) if when == clock]


@pytest.mark.parametrize("flushed", ["each", "never"])
@pytest.mark.parametrize(("emit", "expected"), [("1 minute", EACH_MINUTE), ("batch", EACH_MESSAGE)])
@pytest.mark.parametrize("by", ["time", "count"])
def test_case_2(tmp_path: Path, by: str, emit: str, expected: list[Any], flushed: str) -> None:
    found: list[tuple[Any, ...]] = []
    with case_2(tmp_path / "w", by, emit) as run:
        for clock in CLOCKS:
            seen = len(run.get_result())
            for side, position, message in at_clock(clock):
                run.add_message(side, message, position=position, clock_us=at(clock))
                result = run.get_result()
                run.add_message(side, message, position=position, clock_us=at(clock))
                assert run.get_result() == result
            if not at_clock(clock):
                run.timeout(at(clock))
            found += shown(clock, run.get_result()[seen:])
            if flushed == "each":
                run.flush()
        run.flush()
        assert (run.positions("left"), run.positions("right")) == ({0: 3}, {0: 1003})
        assert run.counts["replayed"] == run.counts["accepted"] == 7
    assert found == expected
