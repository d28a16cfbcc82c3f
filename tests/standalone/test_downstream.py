"""Outputs are offered downstream: what is refused stays, holds everything back, and goes on from where it stopped."""

import logging
from pathlib import Path
from typing import Any

import pytest

from sessionlake import TumblingWindows
from sessionlake.errors import BackPressureError
from sessionlake.standalone import Emit, WindowedAggregator
from tests.standalone.support import Row, Taker, refused

EACH = Emit(early="batch", late="batch")


def opened(path: Path, downstream: Any, **options: Any) -> WindowedAggregator:
    windows = TumblingWindows.of("10 us").grace("20 us").until("30 us")
    given = {"emit": EACH, "key": "key", "schema": {"v": "long", "key": "string"}, **options}
    return WindowedAggregator(path, windows, {"total": "sum(v)"}, downstream=downstream, **given)


def message(time: int, key: str | None = "a", value: int = 1) -> Row:
    return {"key": key, "time_us": time, "v": value}


def totals(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["window_start"], row["total"]) for row in rows]


def test_what_is_taken_is_flushed(tmp_path: Path) -> None:
    taker = Taker()
    with opened(tmp_path / "w", taker) as run:
        run.add_message(message(1), position=1)
        run.add_message(message(2, value=5), position=2)
        assert totals(taker.taken) == [(0, 1), (0, 6)]
        assert run.get_result() == []
        assert run.positions() == {0: 2}
        run._segments.close()  # a crash: nothing more is written
        run._is_open = False
    with opened(tmp_path / "w", taker) as run:
        run.add_message(message(2, value=5), position=2)
        run.add_message(message(3, value=9), position=3)
    assert totals(taker.taken) == [(0, 1), (0, 6), (0, 15)]


def test_what_is_refused_waits_for_a_timeout_and_holds_messages_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import pyarrow as pa

    taker = Taker(room=1)
    with opened(tmp_path / "w", taker) as run, caplog.at_level(logging.WARNING, "sessionlake.standalone"):
        table = pa.Table.from_pylist([message(time) for time in (1, 11, 21)])
        with refused(taken=True):
            run.add_messages(table, positions=[1, 2, 3])
        assert totals(taker.taken) == [(0, 1)]
        assert totals(run.get_result()) == [(10, 1), (20, 1)]
        for position in (3, 4):
            with refused(taken=False):
                run.add_message(message(22), position=position)
        with pytest.raises(BackPressureError, match="flush: downstream has not taken all outputs; call timeout"):
            run.flush()
        assert run.positions() == {}
        assert not run.timeout()
        taker.room = 2
        assert not run.timeout()
        assert totals(taker.taken) == [(0, 1), (10, 1)]
        assert len(caplog.records) == 1
        taker.room = 9
        assert run.timeout()
        assert totals(taker.taken) == [(0, 1), (10, 1), (20, 1)]
        assert run.positions() == {0: 3}
        run.add_message(message(21), position=3)
        run.add_message(message(22), position=4)
        assert totals(taker.taken)[3:] == [(20, 2)]
        taker.room = 4
        with refused(taken=True):
            run.add_message(message(23), position=5)
        assert len(caplog.records) == 2
    with opened(tmp_path / "w", taker) as run:
        assert run.positions() == {0: 4}, "closing flushed what was not taken"


def test_none_takes_and_what_is_false_does_not(tmp_path: Path) -> None:
    answers: list[Any] = [None, 1, 0]
    with opened(tmp_path / "w", lambda _: answers.pop(0)) as run:
        run.add_message(message(1))
        run.add_message(message(2))
        with refused(taken=True):
            run.add_message(message(3))


def test_a_downstream_that_raises_has_taken_nothing(tmp_path: Path) -> None:
    taken: list[Row] = []

    def broken(row: Row) -> None:
        if row["total"] == 2:
            raise OSError("no")
        taken.append(row)

    with opened(tmp_path / "w", broken) as run:
        run.add_message(message(1), position=1)
        with pytest.raises(OSError, match="no"):
            run.add_message(message(2), position=2)
        with refused(taken=False):
            run.add_message(message(3), position=3)
        assert totals(run.get_result()) == [(0, 2)]
    with opened(tmp_path / "w", taken.append) as run:
        run.add_message(message(2), position=2)
        run.add_message(message(3), position=3)
    assert totals(taken) == [(0, 1), (0, 2), (0, 3)]


def test_late_and_refused_messages_have_their_own_way(tmp_path: Path) -> None:
    taker = Taker()
    with opened(tmp_path / "w", taker) as run:
        run.add_message(message(100))
        run.add_message(message(79, value=3))
        run.add_message(message(69, value=4))
        run.add_message({"key": "a", "time_us": 100, "v": "text"})
        run.add_message(message(100, key=None))
        assert run.counts == {
            **dict.fromkeys(("partly_late", "dropped", "filtered", "duplicate", "replayed"), 0),
            "input": 5,
            "accepted": 1,
            "late": 1,
            "dead": 3,
        }
        assert run.late() == run.dead() == []
    assert taker.were_late == [message(79, value=3)]
    assert taker.refused == [
        (message(69, value=4), "beyond retention"),
        ({"key": "a", "time_us": 100, "v": "text"}, "wrong type: v = 'text' is not int64"),
        (message(100, key=None), "null key"),
    ]


@pytest.mark.parametrize("downstream", [None, lambda _: True])
def test_without_a_way_of_their_own_they_are_kept_for_the_caller(tmp_path: Path, downstream: Any) -> None:
    with opened(tmp_path / "w", downstream) as run:
        run.add_message(message(100))
        run.add_message(message(79))
        run.add_message(message(69))
        run.timeout()
        assert run.late() == [message(79)]
        assert run.dead() == [{"message": message(69), "reason": "beyond retention"}]
        run.flush()
        assert run.late() == run.dead() == []


def test_beyond_retention_is_dropped_where_that_is_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path / "w", None, beyond_retention="drop") as run:
        run.add_message(message(100))
        run.add_message(message(69))
        assert (run.dead(), run.counts["dropped"], run.counts["input"]) == ([], 1, 2)
