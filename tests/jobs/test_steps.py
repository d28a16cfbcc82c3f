"""A step of a run: people are told of it, and a process can be killed at its ends."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessionlake.engine import failpoints
from sessionlake.jobs.run import JobRun
from sessionlake.warehouse.tables import Tables


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(failpoints, "hit", found.append)
    return found


def run_of(told: list[str]) -> JobRun:
    nothing: Any = SimpleNamespace()
    return JobRun(cast(Tables, nothing), "expire", "r", 0, {}, dry_run=False, finished=None, on_step=told.append)


def test_a_step_is_told_before_its_points(seen: list[str]) -> None:
    with run_of(seen).step("sending 3", "append"):
        seen.append("work")
    assert seen == ["sending 3", "expire_before_append", "work", "expire_after_append"]


def test_a_step_without_points(seen: list[str]) -> None:
    with run_of(seen).step("counting"):
        pass
    assert seen == ["counting"]


def test_a_step_that_fails_did_not_come_to_its_end(seen: list[str]) -> None:
    with pytest.raises(ValueError, match="no luck"), run_of(seen).step("sending 3", "append"):
        raise ValueError("no luck")
    assert seen == ["sending 3", "expire_before_append"]


def test_steps_are_numbered_once_it_is_known_how_many_there_are(seen: list[str]) -> None:
    run = run_of(seen)
    run.say("looking")
    run.expect(2)
    for what in ("a", "b", "more than expected"):
        with run.step(what):
            pass
    assert seen == ["looking", "2 of 3: a", "3 of 3: b", "more than expected"]
