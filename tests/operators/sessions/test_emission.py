"""What sessions send by policy, batch by batch: equal to a flag a session, and the rules one by one (docs/rules.md, rules 260 to 265)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sessionlake import SessionWindows
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions import sending
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.testing.harness import Output, SessionizerHarness
from tests.operators.sessions.emission_streams import S, differences

WINDOWS = SessionWindows.with_gap("10 minutes").grace("5 minutes").until("1 hour")
MINUTE = 60 * S
NOON = 12 * 60


def harness(early: str = "off", full: str = "end", late: str = "10 seconds", **more: Any) -> SessionizerHarness:
    section = EmitSection(early=early, full=full, late=late)  # type: ignore[arg-type]
    return SessionizerHarness(WINDOWS, {"n": "count()"}, emit=section, **more)


def events(*given: tuple[str, float]) -> list[dict[str, Any]]:
    """Return events of keys at minutes after 12:00."""
    return [{"key": key, "time_us": int((NOON + minute) * MINUTE)} for key, minute in given]


def told(output: Output) -> list[tuple[Any, ...]]:
    """Return (op, key, minutes of start and end, trigger); a delete has no end and no trigger."""
    found = []
    for row in output.changes:
        start, end = (row[name] / MINUTE - NOON for name in ("start_us", "end_us"))
        found.append((row["op"], row["key"], start, *((end, row["trigger"]) if row["op"] == "upsert" else ())))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_batch_sends_what_a_flag_a_session_says(seed: int) -> None:
    assert differences(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 3_000, 100))
def test_every_batch_of_many_streams(first: int) -> None:
    assert [told for seed in range(first, first + 100) if (told := differences(seed))] == []


@pytest.mark.parametrize("weaker", ["no rule 264", "full only of changes"])
def test_a_weaker_rule_is_told(weaker: str) -> None:
    """Without rule 264 a final changes, and what an early row had already would never be full."""
    assert any(differences(seed, weaker) for seed in range(40))


def test_what_is_shown_depends_on_what_was_sent_since(monkeypatch: pytest.MonkeyPatch) -> None:
    of = sending.Shown.of

    def never_sent(known: Any, stored: Any, marks: Any, sent_before: Any, verdict: Any) -> sending.Shown:
        return of(known, stored, marks, np.zeros_like(sent_before), verdict)

    monkeypatch.setattr(sending.Shown, "of", never_sent)
    assert any(_differs(seed) for seed in range(40))


def test_a_session_that_has_outgrown_its_list_is_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = sending._lists

    def once(*given: Any) -> Any:
        return lists(*given[:7], given[7][:0], *given[8:])

    monkeypatch.setattr(sending, "_lists", once)
    assert any(_differs(seed) for seed in range(80))


def _differs(seed: int) -> bool:
    try:
        return differences(seed) is not None
    except AssertionError:
        return True


def test_finals_are_sent_once_and_an_event_after_is_late() -> None:
    """Rule 260's example."""
    with harness(full="close") as run:
        assert told(run.process(events(("a", 0), ("a", 5)))) == []
        assert told(run.process(events(("b", 20)))) == []
        assert told(run.process(events(("b", 20 + 1 / MINUTE)))) == [("upsert", "a", 0, 5, "full")]
        output = run.process(events(("a", 1)))
        assert told(output) == []
        assert output.counts["late"] == 1


@pytest.mark.parametrize("shards", [1, 2])
def test_sessions_that_wait_are_sent_after_a_restore_in_parts(shards: int) -> None:
    """Each part of the state brings lists of its own, and takes none of another part's away."""
    keys = "abcdefgh"
    with harness(full="close", shards=shards) as run:
        run.process(events(*((key, 0) for key in keys)))
        run.lose_stores()
        assert sorted(told(run.process(events(("z", 30))))) == [("upsert", key, 0, 0, "full") for key in keys]


@pytest.mark.parametrize(("minute", "late"), [(15, 1), (15 + 1 / MINUTE, 0)])
def test_the_last_event_that_would_join_a_closed_session_is_late_and_the_next_one_is_not(
    minute: float, late: int
) -> None:
    """A session until 12:15 has closed by a microsecond."""
    with harness(full="close") as run:
        run.process(events(("a", 0), ("a", 5)))
        run.process(events(("b", 20 + 1 / MINUTE)))
        assert run.process(events(("a", minute))).counts["late"] == late


def test_an_event_between_a_closed_session_and_an_open_one_is_late() -> None:
    """Rule 264's example: without [emit] it is accepted."""
    given = events(("a", 30), ("a", 34), ("a", 50), ("b", 60))
    with harness(full="close") as run:
        run.process(given)
        assert run.process(events(("a", 44))).counts["late"] == 1
    with SessionizerHarness(WINDOWS, {"n": "count()"}) as run:
        run.process(given)
        assert run.process(events(("a", 44))).counts["accepted"] == 1


def test_a_session_that_merges_two_deletes_the_rows_of_both() -> None:
    with harness(early="batch", late="close") as run:
        assert len(told(run.process(events(("a", 0), ("a", 15))))) == 2
        both = [("upsert", "a", 0, 15, "early"), ("delete", "a", 15)]
        assert told(run.process(events(("a", 8)))) == both
        assert [(row["start_us"], row["n"]) for row in run.sent()] == [(NOON * MINUTE, 3)]


def test_a_session_with_an_earlier_start_deletes_its_old_row_when_it_is_sent() -> None:
    with harness(early="1 minute") as run:
        run.process(events(("a", 10)), clock_us=0)
        assert told(run.process([{"kind": "tick"}], clock_us=MINUTE)) == [("upsert", "a", 10, 10, "early")]
        assert told(run.process(events(("a", 5)), clock_us=MINUTE)) == []
        sent = [("upsert", "a", 5, 10, "early"), ("delete", "a", 10)]
        assert told(run.process([{"kind": "tick"}], clock_us=2 * MINUTE)) == sent


def test_a_tombstone_deletes_what_is_shown_and_names_the_last_change() -> None:
    with harness(early="batch", late="close") as run:
        run.process(events(("a", 0)))
        row = run.sent()[0]
        tombstone = {"kind": "tombstone", "key": "a", "start_us": row["start_us"], "revision": row["revision"]}
        assert told(run.process([tombstone])) == [("delete", "a", 0)]
        assert run.sessions() == run.sent() == []


def test_a_restate_of_a_closed_session_is_sent_with_its_batch() -> None:
    with harness(full="close", late="close") as run:
        run.process(events(("a", 0), ("b", 40)))
        run.process(events(("b", 41)))
        restate = {"kind": "restate", "key": "a", "start_us": (NOON + 2) * MINUTE, "end_us": (NOON + 2) * MINUTE}
        assert told(run.process([restate])) == [("upsert", "a", 0, 2, "restate")]


def test_ttl_removes_closed_sessions_from_both_tables() -> None:
    with harness(full="end", ttl={"pattern": "scan", "ttl": "10 minutes"}) as run:
        run.process(events(("a", 0), ("b", 40)), clock_us=(NOON + 40) * MINUTE)
        run.process(events(("b", 41)), clock_us=(NOON + 41) * MINUTE)
        run.process([{"kind": "tick"}], clock_us=(NOON + 120) * MINUTE)
        output = run.process([{"kind": "tick"}], clock_us=(NOON + 240) * MINUTE)
        assert [row["key"] for row in run.sessions()] == ["b"]
        assert [row["key"] for row in run.sent()] == []
        assert output.counts["deleted_by_ttl"] <= 1


@pytest.mark.parametrize(
    ("session", "emit", "said"),
    [
        (
            {},
            {"full": "close"},
            "session.grace: is missing; emit.full = 'close' sends a session when its grace is over",
        ),
        (
            {"emit": "final"},
            {},
            "session.emit: does not go with [emit]; remove one of them",
        ),
        (
            {},
            {"early": "batch", "late": "batch"},
            "emit: early = late = 'batch' sends every change with its batch, as sessions do without it; remove [emit], or write another policy",
        ),
        (
            {"grace": "1 minute"},
            {"full": "close", "late": "batch"},
            "emit.late: 'batch' does not go with full = 'close', which holds sessions back; write full = 'end', or another policy",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(session: Any, emit: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(_config(session) | {"emit": emit}, Path("/"))
    assert str(refused.value) == said


def test_a_topic_of_finals_asks_for_policies_that_send_finals() -> None:
    sink = {"kafka": {"topic": "t", "emit": "final", "bootstrap_servers": "b:9092"}}
    config = _config({"grace": "1 minute"})
    parse_config(config | {"emit": {"full": "close"}, "sink": sink}, Path("/"))
    with pytest.raises(ConfigError, match=r"sink.kafka.emit: 'final' would take for closed"):
        parse_config(config | {"emit": {"early": "1 minute"}, "sink": sink}, Path("/"))


def _config(session: dict[str, Any]) -> dict[str, Any]:
    return {
        "pipeline": {"name": "clicks", "warehouse": "warehouse"},
        "source": {"kind": "files", "path": "clicks", "format": "json"},
        "event": {"key": "user", "time": "at"},
        "session": {"gap": "10 minutes", **session},
        "aggregates": {"n": "count()"},
    }


@pytest.mark.parametrize("emit", [None, EmitSection()])
def test_no_more_events_are_kept_than_retention_count_says(emit: EmitSection | None) -> None:
    """Cells are as long as the gap, 10 minutes: the newest cells that together have at most 3 events stay."""
    windows = SessionWindows.with_gap("10 minutes").grace("5 hours").until("10 hours")
    with SessionizerHarness(windows, {"n": "count()"}, emit=emit, retention_count=3) as run:
        run.process(events(("a", 0), ("b", 1), ("a", 30), ("b", 50), ("a", 70)))
        assert run.process(events(("c", 5))).counts["accepted"] == 1
        output = run.process(events(("c", 29), ("c", 30)))
        assert [row["reason"] for row in output.dead] == ["beyond retention"]
        assert output.counts["accepted"] == 1
        run.lose_stores()
        assert sorted({row["start_us"] // MINUTE - NOON for row in run.sessions()}) == [30, 50, 70]
