"""A message too far ahead of the clock is refused as in a pipeline, and those after it are taken as ever (docs/rules.md, rules 1 and 128)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessionlake import CountWindows, SessionWindows, TumblingWindows
from sessionlake.errors import ConfigError
from sessionlake.standalone import JoinWindow, WindowedAggregator
from sessionlake.standalone.base import Standalone
from sessionlake.stream.ingest import FUTURE
from sessionlake.testing import JoinHarness, TableHarness, WindowHarness
from tests.standalone.support import MINUTE, Row

NOW = 1_700_000_000_000_000
YEAR = 365 * 1440 * MINUTE
Made = Callable[..., Standalone[Any]]


def windows(path: Path, **options: Any) -> WindowedAggregator:
    return WindowedAggregator(path, TumblingWindows.of("5 minutes").until("1 hour"), {"n": "sum(v)"}, **options)


def sessions(path: Path, **options: Any) -> WindowedAggregator:
    defined = SessionWindows(MINUTE, 5 * MINUTE, 60 * MINUTE)
    return WindowedAggregator(path, defined, {"n": "sum(v)"}, key="id", **options)


def numbered(path: Path, **options: Any) -> WindowedAggregator:
    return WindowedAggregator(path, CountWindows.of(2).until("1 hour"), {"n": "sum(v)"}, **options)


def join(path: Path, **options: Any) -> JoinWindow:
    side = {"name": "a", "size": "1 minute"}
    sides = {"left": side, "right": {**side, "name": "b"}}
    return JoinWindow(path, on=["id"], grace="5 minutes", retention="1 hour", **sides, **options)


def add(run: Standalone[Any], message: Row) -> None:
    """Add a message at NOW; of a join to both sides."""
    for side in ["left", "right"] if isinstance(run, JoinWindow) else [None]:
        given = [] if side is None else [side]
        run.add_message(*given, message, clock_us=NOW)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("made", "skew", "ahead_us"),
    [
        (windows, None, 5 * MINUTE),
        (sessions, None, 5 * MINUTE),
        (numbered, None, MINUTE),
        (join, None, 5 * MINUTE),
        (windows, "1 hour", 60 * MINUTE),
        (join, "0 seconds", 0),
    ],
)
def test_a_message_beyond_the_skew_moves_no_watermark(
    tmp_path: Path, made: Made, skew: str | None, ahead_us: int
) -> None:
    with made(tmp_path / "run", **({} if skew is None else {"max_future_skew": skew})) as run:
        sides = 2 if made is join else 1
        early = {"id": "a", "v": 1, "time_us": NOW + ahead_us + 1}
        for message in (early, {"id": "a", "v": 1, "time_us": NOW + YEAR}):
            add(run, message)
        assert [row["reason"] for row in run.dead()] == [FUTURE] * 2 * sides
        assert {key: run.dead()[0]["message"][key] for key in early} == early
        add(run, {"id": "a", "v": 1, "time_us": NOW + ahead_us})
        assert (run.counts["accepted"], run.counts["late"], run.counts["dead"]) == (sides, 0, 2 * sides)


def test_the_skew_may_be_another_one_at_each_opening(tmp_path: Path) -> None:
    message = {"id": "a", "v": 1, "time_us": NOW + YEAR}
    for skew, dead in ((None, 1), ("2 years", None), ("730 days", 0)):
        if dead is None:
            with pytest.raises(ConfigError, match=r"max_future_skew: '2 years' is not a duration"):
                windows(tmp_path / "w", max_future_skew=skew)
            continue
        with windows(tmp_path / "w", max_future_skew=skew) as run:
            add(run, message)
            assert run.counts["dead"] == dead
            run.flush()


def test_harnesses_refuse_such_rows_where_they_are_asked_to() -> None:
    row = {"key": "a", "id": "a", "time_us": NOW + MINUTE + 1, "v": 1}
    defined = TumblingWindows.of("5 minutes").until("1 hour")
    with WindowHarness(defined, {"n": "sum(v)"}, max_future_skew="1 minute") as run:
        assert [dead["reason"] for dead in run.process([row], clock_us=NOW).dead] == [FUTURE]
    with WindowHarness(CountWindows.of(2).until("1 hour"), {"n": "sum(v)"}, max_future_skew="1 minute") as run:
        assert [dead["reason"] for dead in run.process([row], clock_us=NOW).dead] == [FUTURE]
    with TableHarness({"v": "long"}, max_future_skew="1 minute") as table:
        assert [dead["reason"] for dead in table.process([row], clock_us=NOW).dead] == [FUTURE]
    side = {"name": "a", "size": "1 minute"}
    sides = {"left": side, "right": {**side, "name": "b"}}
    with JoinHarness(on=["id"], retention="1 hour", max_future_skew="1 minute", **sides) as both:
        assert [dead["reason"] for dead in both.process([row], [], NOW).dead] == [FUTURE]
