"""Pipelines that pause: a quiet source, or runs that lie days apart (docs/rules.md, rule 183)."""

from dataclasses import replace

from sessionlake.engine.operator import BatchContext
from sessionlake.operators.cleanups.brake import DAY_US, JUMP, JUMPED, notes_of
from sessionlake.operators.cleanups.schedule import Schedule
from sessionlake.operators.keyed.ttl import LAST_PUT, Ttl
from sessionlake.testing import TableHarness
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN

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
    assert "this batch does remove what has expired" in note


def test_rows_that_go_for_their_number_know_no_jump() -> None:
    jump = BatchContext(1, "c", {}, T + 3 * DAY_US, T)
    assert not list(ttl_of(pattern="lru", max_entries=5).schedule.split(jump))
    assert list(ttl_of(pattern="lru", max_entries=5, changelog_retention="1 day").schedule.split(jump))
