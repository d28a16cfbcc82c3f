"""Pipelines that pause: a quiet source, or runs that lie days apart (docs/rules.md, rule 183)."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from sessionlake.engine.operator import BatchContext
from sessionlake.errors import PipelineStateError
from sessionlake.operators.keyed.expiry.ttl import LAST_PUT, Ttl
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.ttl_section import ttl_section
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.operators.shared.cleanups.brake import DAY_US, JUMP, JUMPED, ROUND_OF, jumped_us, notes_of
from sessionlake.operators.shared.cleanups.names import LIVE_ROWS
from sessionlake.operators.shared.cleanups.schedule import Schedule
from sessionlake.testing import SessionizerHarness, TableHarness
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN
from tests.operators.shared.cleanups.steps import stepped

MINUTE, HOUR = 60_000_000, 3_600_000_000
T = 1_700_000_000_000_000 // DAY_US * DAY_US


def ttl_of(**section: object) -> Ttl:
    with TableHarness({"v": "long"}, ttl=section) as harness:
        ttl = harness._operator.spec.ttl
    assert ttl is not None
    return ttl


def test_a_jump_does_not_keep_rows_that_are_all_hidden_from_staying_so() -> None:
    ttl = ttl_of(pattern="segments", ttl="1 hour")
    state = {LAST_PUT: T, HIDDEN_WRITTEN: T + 1}
    jump = BatchContext(5, "c", state, T + 3 * DAY_US, T + HOUR)
    assert ttl.hidden_us(jump) == T + 3 * DAY_US - HOUR
    shown = replace(jump, state={LAST_PUT: T, HIDDEN_WRITTEN: T - 1})
    assert ttl.hidden_us(shown) == T - 1


def test_weekly_batches_are_held_back_once_and_then_have_cleanups() -> None:
    schedule, week = Schedule("wall", MINUTE), 7 * DAY_US
    state = {"cleaned_wall_us": T}
    assert schedule.due(BatchContext(1, "c", state, T + week, T)) is None
    held = {**state, JUMPED: T + week}
    assert schedule.due(BatchContext(2, "c", held, T + 2 * week, T + week)) == T + 2 * week
    (note,) = notes_of(held, {JUMP: T + 2 * week, "max_cleaned_wall_us": T + 2 * week})
    assert "this batch removes expired rows" in note


def test_rows_that_go_for_their_number_know_no_jump() -> None:
    jump = BatchContext(1, "c", {}, T + 3 * DAY_US, T)
    assert not list(ttl_of(pattern="lru", max_entries=5).schedule.split(jump))
    assert list(ttl_of(pattern="lru", max_entries=5, changelog_retention="1 day").schedule.split(jump))


def test_a_table_without_rows_has_nothing_to_lose_by_a_jump() -> None:
    jump = BatchContext(1, "c", {LIVE_ROWS: 0}, T + 3 * DAY_US, T)
    assert jumped_us(jump) is None
    assert jumped_us(replace(jump, state={LIVE_ROWS: 1})) == T + 3 * DAY_US


def run(harness: TableHarness, count: int, clock_us: int, operator: Any = None) -> None:
    """Run a batch of new keys, by the operator of another run if one is given, and judge it as a run does."""
    before, own = harness.state, harness._operator
    harness._operator = operator or own
    stats = harness.process(
        [{"key": f"{clock_us}-{n}", "time_us": clock_us - 1_000_000, "v": n} for n in range(count)], clock_us=clock_us
    ).counts
    judge, harness._operator = harness._operator.spec.ttl, own
    assert judge is not None
    judge.checked(before, stats)


def test_a_short_ttl_goes_on_after_an_upgrade_and_after_a_run_that_may_remove_all() -> None:
    section = ttl_section({"pattern": "index", "ttl": "2 minutes"})
    with TableHarness({"v": "long"}, ttl=section.model_dump(exclude_unset=True), shards=2) as harness:
        own = harness._operator.spec
        lifted = TableKeeper(replace(own, ttl=section.build(own.types, 2, allowed=True)))
        for n in range(10):
            run(harness, 150, T + n * MINUTE)
        harness._state = {name: value for name, value in harness.state.items() if name != ROUND_OF}
        run(harness, 150, T + 10 * MINUTE)
        for n in range(40, 50):
            run(harness, 150, T + n * MINUTE, lifted)
        run(harness, 150, T + 50 * MINUTE)


@pytest.mark.parametrize(("rows", "refused"), [(100, False), (101, True)])
def test_a_table_that_begins_to_hide_rows_is_refused_once(rows: int, refused: bool) -> None:  # noqa: FBT001
    with TableHarness({"v": "long"}, ttl={"pattern": "index", "ttl": "30 days", "since": "write"}) as harness:
        run(harness, rows, T)
        types = harness._operator.spec.types
        spec, section = harness._operator.spec, ttl_section({"pattern": "segments", "ttl": "3 minutes"})
        told = pytest.raises(PipelineStateError, match=r"may be all of the 101; .*--allow-expiry")
        with told if refused else nullcontext():
            run(harness, 0, T + HOUR, TableKeeper(replace(spec, ttl=section.build(types, 1))))
        run(harness, 0, T + HOUR, TableKeeper(replace(spec, ttl=section.build(types, 1, allowed=True))))


def test_a_bounded_round_of_sessions_counts_what_went_before_in_it() -> None:
    """Of 40,000 sessions 4,000 have expired, a tenth: no cleanup of 500 is refused."""
    ttl = {"pattern": "scan", "ttl": "6 hours", "max_per_cleanup": 500}
    with SessionizerHarness(SessionWindows(600_000_000, 0, 2 * DAY_US), {}, ttl=ttl) as harness:
        old = [{"key": f"a{n:06d}", "time_us": T} for n in range(4_000)]
        new = [{"key": f"b{n:06d}", "time_us": T + 12 * HOUR} for n in range(36_000)]
        harness.process(old + new, clock_us=T + 5 * HOUR)
        harness.process([{"key": "c", "time_us": T + 13 * HOUR}], clock_us=T + 5 * HOUR + MINUTE)
        for n in range(8):
            stepped(harness, [], T + 7 * HOUR + n * 1_000_000)
        assert len(harness.sessions()) == 36_001
