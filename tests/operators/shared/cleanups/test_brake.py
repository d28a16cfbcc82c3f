"""What holds cleanups back: a share of the rows a round, and a clock that has jumped (docs/rules.md, rule 183)."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from sessionlake.engine.operator import BatchContext
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.operators.keyed.expiry.ttl import LAST_PUT, MAX_HIDDEN
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.operators.shared.cleanups.brake import DAY_US, JUMPED, check_hidden, jumped_us
from sessionlake.operators.shared.cleanups.names import LIVE_ROWS
from sessionlake.operators.shared.cleanups.schedule import Schedule
from sessionlake.testing import SessionizerHarness, TableHarness
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN
from tests.operators.shared.cleanups.steps import stepped

SECOND, HOUR = 1_000_000, 3_600_000_000
T = 1_700_000_000_000_000 // DAY_US * DAY_US
YEARS = 3650 * DAY_US
REFUSED = r"ttl\.max_share: the cleanup at .* (\d+) rows, (\d+)% of all, more than 20%; .*--allow-expiry.*--replan"


def key_of(number: int, time_us: int) -> str:
    """Return a UUIDv7 of a time."""
    text = f"{time_us // 1000:012x}7{number:03x}8{number:015x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def rows(count: int, time_us: int, first: int = 0) -> list[dict[str, Any]]:
    """Return updates of distinct keys, a millisecond apart."""
    times = [time_us + n * 1000 for n in range(count)]
    return [
        {"key": key_of(first + n, at), "time_us": at, "v": n, "until": at + 365 * DAY_US} for n, at in enumerate(times)
    ]


def table(pattern: str, ttl: str = "365 days", **settings: Any) -> TableHarness:
    """Return a table with [ttl]."""
    return TableHarness({"v": "long", "until": "long"}, ttl={"pattern": pattern, "ttl": ttl, **settings}, shards=2)


def batch(harness: TableHarness, some: list[dict[str, Any]], clock_us: int, **known: Any) -> list[str]:
    """Run a batch; return what is said of it, PipelineStateError where it is refused."""
    ttl = harness._operator.spec.ttl
    before = {**harness.state, **known}
    harness._state = before
    stats = harness.process(some, clock_us=clock_us).counts
    assert ttl is not None
    json.dumps(harness.state)
    return ttl.checked(before, stats)


def refused(**told: str) -> AbstractContextManager[Any]:
    return pytest.raises(PipelineStateError, match=REFUSED.replace(r"(\d+) rows", f"{told['gone']} rows"))


PATTERNS = ("scan", "index", "time_boxed", "time_ordered_keys")


@pytest.mark.parametrize("live", [{}, {LIVE_ROWS: None}], ids=["counted", "uncounted"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_clock_of_ten_years_ahead_takes_away_no_table(pattern: str, live: Mapping[str, Any]) -> None:
    with table(pattern) as harness:
        batch(harness, [], T)
        batch(harness, rows(300, T), T + HOUR)
        with refused(gone="300"):
            batch(harness, [{"kind": "tick"}], T + YEARS, **live)


@pytest.mark.parametrize("live", [{}, {LIVE_ROWS: None}], ids=["counted", "uncounted"])
@pytest.mark.parametrize(("goes", "stays", "refusing"), [(100, 0, 0), (101, 0, 1), (200, 800, 0), (201, 799, 1)])
def test_a_hundred_rows_may_go_and_of_more_a_share_inclusive(
    live: Mapping[str, Any], goes: int, stays: int, refusing: int
) -> None:
    with table("scan") as harness:
        batch(harness, [], T)
        batch(harness, rows(goes, T) + rows(stays, T + 200 * DAY_US, goes), T + 2 * HOUR)
        with refused(gone=str(goes)) if refusing else nullcontext():
            batch(harness, [{"kind": "tick"}], T + 370 * DAY_US, **live)


@pytest.mark.parametrize("pattern", ["scan", "index", "time_ordered_keys"])
def test_a_round_of_bounded_cleanups_counts_as_one(pattern: str) -> None:
    with table(pattern, max_per_cleanup=50) as harness:
        batch(harness, [], T)
        batch(harness, rows(400, T), T + HOUR)
        clock_us = T + YEARS
        assert batch(harness, [], clock_us) == []
        with refused(gone="200"):
            batch(harness, [], clock_us + SECOND)


def test_a_round_of_a_time_boxed_cleanup_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.operators.shared.cleanups.schedule.LEAST_ROWS", 30)
    with table("time_boxed", max_duration="1 us") as harness:
        batch(harness, [], T)
        batch(harness, rows(300, T), T + HOUR)
        minute, clock_us = 60 * SECOND, T + YEARS
        assert batch(harness, [], clock_us) == []
        with refused(gone="120"):
            batch(harness, [], clock_us + minute)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_that_were_old_when_they_came_are_not_counted(pattern: str) -> None:
    with table(pattern, ttl="1 hour") as harness:
        batch(harness, [], T)
        batch(harness, rows(300, T - 10 * DAY_US), T + SECOND)
        assert len(harness.rows()) == 300
        assert batch(harness, [], T + 60 * SECOND) == []
        assert harness.rows() == {}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_short_ttl_at_its_pace_is_never_refused(pattern: str) -> None:
    minute = 60 * SECOND
    with table(pattern, ttl="2 minutes") as harness:
        for number in range(8):
            now = T + number * minute
            assert batch(harness, rows(150, now - SECOND), now) == []
        assert len(harness.rows()) == 300


@pytest.mark.parametrize("ttl", ["365 days", "1 day"])
def test_a_rule_that_was_changed_is_held_against_all_rows(ttl: str) -> None:
    with table("scan") as harness, table("scan", ttl=ttl, since="event") as other:
        batch(harness, [], T)
        batch(harness, rows(300, T), T + HOUR)
        harness._operator = other._operator
        with refused(gone="300") if ttl == "1 day" else nullcontext():
            batch(harness, [], T + 3 * DAY_US + HOUR)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_max_share_of_one_lets_all_go(pattern: str) -> None:
    with table(pattern, max_share=1.0) as harness:
        batch(harness, [], T)
        batch(harness, rows(300, T), T + HOUR)
        assert batch(harness, [], T + YEARS) == []
        assert harness.rows() == {}
        assert "cleanup_held" not in harness.state


@pytest.mark.parametrize(("pattern", "counts"), [("scan", 150), ("time_boxed", 150)])
@pytest.mark.parametrize("max_share", [0.2, 0.6])
def test_sessions_are_held_back_by_those_that_are_in_the_stores(pattern: str, counts: int, max_share: float) -> None:
    ttl = {"pattern": pattern, "ttl": "6 hours", "max_share": max_share}
    windows = SessionWindows(600 * SECOND, 0, 2 * DAY_US)
    with SessionizerHarness(windows, {}, ttl=ttl) as harness:
        old = [{"key": f"a{n}", "time_us": T} for n in range(counts)]
        new = [{"key": f"b{n}", "time_us": T + 12 * HOUR} for n in range(counts)]
        harness.process(old + new, clock_us=T + 5 * HOUR)
        harness.process([], clock_us=T + 5 * HOUR + 60 * SECOND)
        harness.process([{"key": "c", "time_us": T + 13 * HOUR}], clock_us=T + 5 * HOUR + 61 * SECOND)
        message = r"150 sessions, 50% of all, more than 20%"
        with pytest.raises(PipelineStateError, match=message) if max_share == 0.2 else nullcontext():
            stepped(harness, [], T + 12 * HOUR)


@pytest.mark.parametrize(
    ("clock_us", "state", "jumped"),
    [
        (T + DAY_US, {}, None),
        (T + DAY_US + 1, {}, T + DAY_US + 1),
        (T + 5, {JUMPED: T}, T),
        (T + DAY_US - 1, {JUMPED: T}, T),
        (T + DAY_US, {JUMPED: T}, None),
        (T + 5, {JUMPED: T + 6}, None),
    ],
    ids=["a day", "more than a day", "after", "for a day", "a day later", "set back"],
)
def test_a_clock_more_than_a_day_past_the_last_commit_has_jumped(
    clock_us: int, state: dict[str, int], jumped: int | None
) -> None:
    assert jumped_us(BatchContext(1, "c", state, clock_us, T)) == jumped


def test_cleanups_wait_for_an_interval_after_a_jump() -> None:
    schedule, minute = Schedule("wall", 60 * SECOND), 60 * SECOND
    state = {"cleaned_wall_us": T - 60 * SECOND}
    jump = T + YEARS + SECOND
    assert schedule.due(BatchContext(1, "c", state, jump, T)) is None
    after = {**state, JUMPED: jump}
    assert schedule.due(BatchContext(2, "c", after, jump + minute - 1, jump)) is None
    assert schedule.due_us(after) == jump + minute
    assert schedule.due(BatchContext(2, "c", after, jump + minute, jump)) == jump + minute
    assert Schedule("wall", minute, allowed=True).due(BatchContext(1, "c", state, jump, T)) == jump


def test_a_jump_is_said_once_and_kept_for_a_day() -> None:
    with table("index") as harness:
        batch(harness, rows(300, T), T)
        ttl = harness._operator.spec.ttl
        assert ttl is not None
        jump, before = T + YEARS, harness.state
        told = [piece.stats for piece in ttl.split(BatchContext(1, "c", before, jump, T))]  # type: ignore[union-attr]
        (note,) = ttl.checked(before, dict(told[0]))
        assert "\n" not in note
        assert note.startswith("ttl: the clock, 2033-11-11 00:00:00+00:00, is more than a day ahead of the last commit")
        assert ttl.checked({**before, JUMPED: jump}, dict(told[0])) == []


@pytest.mark.parametrize(
    ("after_us", "last_put_us", "refusing"),
    [(T + 2 * DAY_US, T + 4 * DAY_US, 1), (T + DAY_US, T + DAY_US, 0), (T + 2 * DAY_US, T + 10 * DAY_US, 0)],
    ids=["half", "a day at most", "a fifth"],
)
def test_hidden_rows_are_held_back_by_the_time_in_which_they_were_written(
    after_us: int, last_put_us: int, refusing: int
) -> None:
    with pytest.raises(PipelineStateError, match="--allow-expiry") if refusing else nullcontext():
        check_hidden(0.2, T, after_us, last_put_us)


def test_segments_that_would_hide_all_of_a_table_at_once_are_refused() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "segments", "ttl": "1 hour"}) as harness:
        harness.process([{"key": "a", "time_us": T, "v": 1}], clock_us=T)
        ttl, before = harness._operator.spec.ttl, harness.state
        assert ttl is not None
        assert before[LAST_PUT] == T
        assert before[HIDDEN_WRITTEN] == T - HOUR
        assert ttl.checked(before, {MAX_HIDDEN: T + 10 * HOUR}) == []
        with pytest.raises(PipelineStateError, match="100% of the time since"):
            ttl.checked(before, {MAX_HIDDEN: T + YEARS})
        # In the batch of the jump itself nothing more is hidden.
        jump = BatchContext(1, "c", before, T + YEARS, T)
        assert ttl.hidden_us(jump) == T - HOUR


def test_max_share_is_for_patterns_that_expire_by_a_clock() -> None:
    with pytest.raises(ConfigError, match=r"ttl\.max_share: goes with changelog_retention"):
        TableHarness({"v": "long"}, ttl={"pattern": "lru", "max_entries": 5, "max_share": 0.5})
