"""Sessions that expire, against a plain model (`tests/oracle/session_expiry.py`) and by example (docs/rules.md, rules 177 to 179)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake import SessionWindows
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions import expiring, ttl
from sessionlake.operators.sessions.section import session_ttl_section
from sessionlake.testing import SessionizerHarness
from tests.operators.sessions.expiring import RULES, expiring_pair
from tests.operators.sessions.strategies import (
    LIMITS,
    Config,
    Draft,
    Resolver,
    Row,
    batches,
    canonical_outcome,
    canonical_session,
    configs,
    rows,
    subject,
)
from tests.support import examples

MINUTE = 60_000_000
MEASURED = ("scan_rows_per_ms",)
"""What of a state no two runs have alike."""


@pytest.mark.parametrize(
    ("rule", "limits"),
    [
        pytest.param(
            rule,
            limits,
            marks=() if (rule, limits) in (("expires_at", "both"), ("ttl", "constant")) else pytest.mark.slow,
        )
        for rule in RULES
        for limits in LIMITS
    ],
)
@examples(12)
@given(data=st.data())
def test_every_batch_removes_what_has_expired_at_its_clock(rule: str, limits: str, data: st.DataObject) -> None:
    config = data.draw(configs(limits=limits, shards=(1, 3)))
    drafted = data.draw(batches(rows("ab"), most=6))
    steps = data.draw(st.lists(st.integers(-5, 12), min_size=len(drafted), max_size=len(drafted)))
    lost = data.draw(st.sets(st.integers(0, 5)))
    age, every = data.draw(st.integers(0, 8)) * config.unit, data.draw(st.sampled_from([1, 3])) * config.unit
    pattern, stream = data.draw(st.sampled_from(["scan", "time_boxed"])), data.draw(st.booleans())
    section, model = expiring_pair(config, rule, pattern, age, every, stream=stream)
    resolver, clock = Resolver(config), config.base
    harness = subject(config, ttl=section)
    try:
        for number, (drafts, step) in enumerate(zip(drafted, steps, strict=True)):
            clock += step * config.unit
            if number in lost:
                harness.lose_stores()
            given_rows: list[Row] = resolver.batch(drafts, model.model)
            wanted = model.batch(given_rows, clock)
            out = harness.process(given_rows, clock_us=clock)
            assert (
                canonical_outcome(out, config.aggregates)["changes"]
                == (canonical_outcome(wanted, config.aggregates)["changes"])
            )
            assert out.counts["deleted_by_ttl"] == wanted.counts.get("deleted_by_ttl", 0)
            assert (out.counts["late"], out.counts["accepted"]) == (wanted.counts["late"], wanted.counts["accepted"])
            assert [canonical_session(row, config.aggregates) for row in harness.sessions()] == (
                [canonical_session(row, config.aggregates) for row in model.model.sessions()]
            )
            assert harness.state.get("expired_events", 0) == model.removed_events
            assert harness.state.get("expiry_lag_us") == model.lag
    finally:
        harness.close()


@examples(10)
@given(
    config=configs(shards=(1, 2)),
    drafted=batches(rows("abcd"), most=8),
    lost=st.sets(st.integers(0, 7)),
    most=st.integers(1, 3),
    page=st.integers(1, 3),
    pattern=st.sampled_from(["time_boxed", "scan"]),
)
def test_a_budget_is_spent_on_the_same_sessions_whatever_the_stores_still_hold(
    config: Config, drafted: list[list[Draft]], lost: set[int], most: int, page: int, pattern: str
) -> None:
    """What is cold may be in a store, or not, as after its loss: neither what goes nor where a cleanup stops depends on it."""
    section = {"pattern": pattern, "ttl": "0 us", "every": "1 us"}
    section |= {"max_per_cleanup": most} if pattern == "scan" else {}
    model, resolver = config.model(), Resolver(config)
    kept, restored = subject(config, ttl=section), subject(config, ttl=section)
    with patch.object(ttl, "budget", lambda *_: most):
        for number, drafts in enumerate([*drafted, [], [], []]):
            given_rows = resolver.batch(drafts, model)
            model.process(given_rows)
            clock = config.base + (number + 40) * config.unit
            if number in lost:
                restored.lose_stores()
            wanted = kept.process(given_rows, clock_us=clock)
            with patch.object(expiring, "PAGE", page):
                assert restored.process(given_rows, clock_us=clock) == wanted
            states = [{k: v for k, v in h.state.items() if k not in MEASURED} for h in (kept, restored)]
            assert states[0] == states[1]
            assert kept._shards._cursors == restored._shards._cursors
    kept.close()
    restored.close()


def minutes(windows: SessionWindows, **section: Any) -> SessionizerHarness:
    section = {"pattern": "scan", "clock": "stream", "every": "1 us", **section}
    return SessionizerHarness(windows, {"n": "count()"}, ttl=section)


def event(key: str, minute: float) -> Row:
    return {"key": key, "time_us": round(minute * MINUTE)}


TEN = SessionWindows.with_gap("10 minutes").grace("5 minutes").until("60 minutes")


def keys_of(harness: SessionizerHarness) -> list[str]:
    return [row["key"] for row in harness.sessions()]


def test_only_closed_sessions_expire() -> None:
    with minutes(TEN, ttl="5 minutes") as harness:
        harness.process([event("a", 0), event("z", 15)])
        harness.process([event("z", 15)])
        assert keys_of(harness) == ["a", "z"], "open until minute 10, which is not before the watermark less grace"
        harness.process([event("z", 15.001)])
        out = harness.process([])
        assert [(row["op"], row["key"]) for row in out.changes] == [("delete", "a")]
        assert harness.state["expiry_lag_us"] == round(15.001 * MINUTE) - 5 * MINUTE


def test_an_expired_session_is_as_if_it_had_been_removed_by_a_tombstone() -> None:
    """What comes later beside it is late or a session of its own, by the rules of any event."""
    with minutes(TEN, ttl="15 minutes") as harness:
        harness.process([event("a", 0), event("z", 20)])
        assert harness.process([]).counts["deleted_by_ttl"] == 1
        out = harness.process([event("a", 1)])
        assert (out.counts["late"], out.changes) == (1, [])
        out = harness.process([event("a", 6), event("b", 4)])
        assert [(row["op"], row["key"], row["event_count"]) for row in out.changes] == [("upsert", "a", 1)]
        assert [row["key"] for row in out.late] == ["b"]
        out = harness.process([{"kind": "tombstone", "key": "a", "start_us": 0, "revision": 0}])
        assert out.counts["stale"] == 1


def test_a_session_that_the_batch_of_a_cleanup_changes_stays_until_the_next_one() -> None:
    with minutes(TEN, ttl="1 minute") as harness:
        harness.process([event("a", 0), event("b", 0), event("z", 20)])
        restate = {"kind": "restate", "key": "a", "start_us": MINUTE, "end_us": MINUTE, "event_count": 2}
        out = harness.process([restate, event("z", 21)])
        assert (out.counts["deleted_by_ttl"], keys_of(harness)) == (1, ["a", "z"])
        assert harness.process([]).counts["deleted_by_ttl"] == 1


def test_what_has_left_the_store_by_retention_stays_in_the_tables() -> None:
    with minutes(TEN, where="true") as harness:
        harness.process([event("a", 0), event("z", 71)])
        assert harness.process([]).changes == []


def test_a_clock_that_is_wrong_removes_nothing_that_the_rule_does_not_name() -> None:
    """By the wall clock ten years ahead the rule names all that is closed, and nothing that is open; by none set back any."""
    windows, years = TEN, 10 * 365 * 24 * 60 * MINUTE
    with minutes(windows, ttl="30 minutes", clock="wall", every="1 minute") as harness:
        harness.process([event("a", 0), event("b", 30), event("z", 40)], clock_us=41 * MINUTE)
        assert harness.process([], clock_us=-years).counts["deleted_by_ttl"] == 0
        assert harness.watermark_us == 40 * MINUTE
        out = harness.process([], clock_us=years)
        assert [(row["op"], row["key"]) for row in out.changes] == [("delete", "a")]
        assert (keys_of(harness), harness.watermark_us) == (["b", "z"], 40 * MINUTE)
        assert harness.process([], clock_us=41 * MINUTE).changes == []


def test_an_idle_pipeline_makes_batches_as_long_as_closed_sessions_are_there() -> None:
    with minutes(TEN, ttl="30 minutes", clock="wall", every="1 minute") as harness:
        harness.process([event("a", 0), event("z", 20)], clock_us=21 * MINUTE)
        assert harness.due_us() == 22 * MINUTE
        harness.process([], clock_us=22 * MINUTE)
        assert harness.due_us() == 23 * MINUTE, "a is closed and not old enough"
        assert harness.process([], clock_us=30 * MINUTE).counts["deleted_by_ttl"] == 1
        assert harness.due_us() is None, "z never closes without events"
        restate = {"kind": "restate", "key": "a", "start_us": MINUTE, "end_us": MINUTE, "event_count": 2}
        harness.process([restate], clock_us=30 * MINUTE + 1)
        assert harness.due_us() == 31 * MINUTE, "a correction makes a closed one without a move of the watermark"


def test_a_scan_that_takes_no_more_than_it_may_goes_on_in_the_next_batches() -> None:
    section = {"ttl": "1 minute", "clock": "wall", "every": "1 hour", "max_per_cleanup": 2}
    with patch.object(expiring, "PAGE", 2), minutes(TEN, **section) as harness:
        harness.process([*(event(key, 0) for key in "abcde"), event("z", 20)], clock_us=21 * MINUTE)
        found = []
        for minute in (61, 62, 63, 64, 121):
            gone = harness.process([], clock_us=minute * MINUTE).counts["deleted_by_ttl"]
            found.append((gone, harness.state["cleaned_wall_us"] // MINUTE, harness.due_us() is not None))
    # As long as some may be left an idle pipeline makes batches.
    assert found == [(2, 61, True), (2, 62, True), (1, 63, False), (0, 63, False), (0, 121, False)]


def test_a_scan_whose_room_ends_within_a_page_has_looked_at_no_more_than_one_with_smaller_pages() -> None:
    """Else a store that was restored, and has other values in a page, would count otherwise."""
    section = {"ttl": "1 minute", "clock": "wall", "max_per_cleanup": 2}
    found = []
    for page in (1, 2, 3, 10):
        with patch.object(expiring, "PAGE", page), minutes(TEN, **section) as harness:
            harness.process([*(event(key, 0) for key in "abcde"), event("z", 20)], clock_us=21 * MINUTE)
            counts = harness.process([], clock_us=61 * MINUTE).counts
            found.append({name: counts[name] for name in ("deleted_by_ttl", "scanned")})
    assert found == [{"deleted_by_ttl": 2, "scanned": 2}] * len(found)


def test_a_round_of_a_bounded_cleanup_is_timed_by_the_clock() -> None:
    with (
        patch.object(ttl, "budget", lambda *_: 2),
        minutes(TEN, pattern="time_boxed", where="session_key > 'x'", clock="wall") as harness,
    ):
        harness.process([*(event(key, 0) for key in "abcde"), event("z", 20)], clock_us=21 * MINUTE)
        rounds = []
        for minute in range(22, 27):
            harness.process([], clock_us=minute * MINUTE)
            rounds.append(harness.state["cleanup_round_us"] // MINUTE)
        # Two, two and one of five; then anew. The first cleanup found none that was closed.
        assert rounds == [0, 1, 2, 0, 1]
        assert harness._shards._cursors[0]["began_us"] == 25 * MINUTE
        harness.process([], clock_us=MINUTE)
        assert harness.state["cleanup_round_us"] == 0, "by a clock that was set back"
        assert "expiry_lag_us" not in harness.state, "a condition knows no time at which it became true"


def test_a_scan_looks_at_all_though_a_bounded_round_stopped_midway_before() -> None:
    with patch.object(ttl, "budget", lambda *_: 2):
        harness = minutes(TEN, pattern="time_boxed", where="false", clock="wall")
        harness.process([*(event(key, 0) for key in "abcde"), event("z", 20)], clock_us=21 * MINUTE)
        harness.process([], clock_us=22 * MINUTE)
    assert harness._shards._cursors[0]["key"] == "b"
    harness._ttl, harness._operator = session_ttl_section({"pattern": "scan", "where": "true", "every": "1 us"}), None
    assert harness.process([], clock_us=23 * MINUTE).counts["deleted_by_ttl"] == 5
    assert harness._shards._cursors == {0: {}}
    harness.close()


def sections(root: Path, ttl: dict[str, Any], **session: Any) -> dict[str, Any]:
    (root / "events").mkdir(exist_ok=True)
    return {
        "pipeline": {"name": "test", "warehouse": "warehouse"},
        "source": {"kind": "files", "path": "events", "format": "json"},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "session": {"gap": "10 minutes", "retention": "1 hour", **session},
        "ttl": ttl,
    }


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (
            {"pattern": "index", "ttl": "1 minute"},
            "ttl.pattern: 'index' is not allowed; write 'scan' or 'time_boxed'",
        ),
        ({"pattern": "scan"}, "ttl: none is there; write exactly one of ttl, expires_at, where"),
        ({"pattern": "scan", "ttl": "1 s", "where": "true"}, "ttl: ttl and where are there"),
        ({"pattern": "scan", "ttl": "2 hours"}, "ttl.ttl: '2 hours' is longer than session.retention, '1h'"),
        (
            {"pattern": "scan", "ttl": "1 s", "max_duration": "1 s"},
            "ttl.max_duration: is not used with pattern = 'scan'",
        ),
        (
            {"pattern": "time_boxed", "ttl": "1 s", "max_per_cleanup": 1},
            "ttl.max_per_cleanup: is not used with pattern = 'time_boxed'; remove it, or write one of 'scan'",
        ),
        ({"pattern": "scan", "ttl": "1 s", "every": "0 s"}, "ttl.every: '0 s' must be longer than zero"),
        ({"pattern": "scan", "ttl": "1 s", "since": "write"}, "ttl.since"),
    ],
)
def test_config_names_a_wrong_setting(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_config(sections(tmp_path, section), tmp_path)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("operator", ["window", "join"])
def test_ttl_beside_other_operators_is_refused(tmp_path: Path, operator: str) -> None:
    raw = sections(tmp_path, {"pattern": "scan", "ttl": "1 s"})
    raw[operator] = raw.pop("session")
    with pytest.raises(
        ConfigError,
        match=rf"ttl: goes with \[session\] or \[table\], and not with \[{operator}\]; .* {operator}.retention",
    ):
        parse_config(raw, tmp_path)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"expires_at": "now()"}, "ttl.expires_at: 'now()' reads the clock"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"where": "event_count"}, "ttl.where"),
    ],
)
def test_sql_that_does_not_fit_a_session_is_refused(rule: dict[str, str], words: str) -> None:
    with minutes(TEN, **rule) as harness, pytest.raises(ConfigError) as found:
        harness.process([event("a", 0)])
    assert words in str(found.value)
