"""Stores of a release that listed only what was not sent: windows and sessions go on with their lists (docs/rules.md, rules 104 and 260)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sessionlake import SessionWindows
from sessionlake.operators.shared.windowing.emission import CURRENT, WAITING
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import SlidingWindows, TumblingWindows
from sessionlake.store.lists import HasLists
from sessionlake.testing.harness import SessionizerHarness
from sessionlake.testing.windows import WindowHarness

S = 1_000_000
KINDS = {
    "sessions": lambda emit: SessionizerHarness(
        SessionWindows.with_gap("10 seconds").grace("5 seconds").until("1 hour"), {"n": "count()"}, emit=emit
    ),
    "tumbling": lambda emit: WindowHarness(
        TumblingWindows.of("10 seconds").grace("5 seconds").until("1 hour"), {"n": "count()"}, emit=emit
    ),
    "sliding": lambda emit: WindowHarness(
        SlidingWindows.of("10 seconds").grace("5 seconds").until("1 hour"), {"n": "count()"}, emit=emit
    ),
}


@contextmanager
def earlier_release(monkeypatch: pytest.MonkeyPatch, run: Any, early: str) -> Iterator[None]:
    """Keep the lists and the state as the release before: of a window without early ticks the one list was that of the unsent."""
    written = HasLists.list_writes

    def writes(store: HasLists, kind: str, *given: Any) -> Any:
        if kind == CURRENT:
            kind, given = (
                (WAITING["early"], given) if early == "off" else (kind, (given[0], given[1][:0], given[2][:0]))
            )
        return written(store, kind, *given)

    with monkeypatch.context() as patched:
        patched.setattr(HasLists, "list_writes", writes)
        yield
    run._state = {name: value for name, value in run._state.items() if name != "lists_from"}


def sent(run: Any, key: str, at: float, clock: float) -> list[tuple[str, int, str]]:
    """Return key, number of events and trigger of the rows that a batch of one event sends."""
    output = run.process([{"key": key, "time_us": int(at * S)}], clock_us=int(clock * S))
    keys = ("key", "window_key")
    return [(next(row[k] for k in keys if k in row), row["n"], row["trigger"]) for row in output.changes]


@pytest.mark.parametrize("kind", KINDS)
def test_what_waited_before_is_sent_when_it_is_full(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with KINDS[kind](EmitSection(early="off", full="close")) as run:
        with earlier_release(monkeypatch, run, "off"):
            assert sent(run, "a", 1, 0) == []
        assert ("a", 1, "full") in sent(run, "b", 40, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_after_is_full_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Sent before, and changed since: the list of all that is current lacks it until then."""
    with KINDS[kind](EmitSection(early="1 second", full="close")) as run:
        with earlier_release(monkeypatch, run, "1 second"):
            sent(run, "a", 1, 0)
            assert ("a", 1, "early") in sent(run, "c", 2, 1)
        again = sent(run, "a", 3, 3)
        assert {row for row in again if row[2] == "early"}
        rows = sent(run, "b", 40, 3.1)
        full = [row for row in rows if row[0] == "a" and row[2] == "full"]
        assert full
        assert max(n for _, n, _ in full) == 2
        assert [row for row in sent(run, "b", 41, 3.2) if row[0] == "a"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_stores_that_are_restored_know_all(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A list of all that is current is made of the tables: also what an early row of the release before had in its last form is full."""
    with KINDS[kind](EmitSection(early="1 second", full="close")) as run:
        with earlier_release(monkeypatch, run, "1 second"):
            sent(run, "a", 1, 0)
            sent(run, "c", 2, 1)
        assert not [row for row in sent(run, "d", 2, 1.1) if row[0] == "a"]
        run.lose_stores()
        assert ("a", 1, "full") in sent(run, "b", 40, 1.2)
