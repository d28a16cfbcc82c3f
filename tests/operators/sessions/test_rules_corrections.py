"""The rules of restates, replacements and tombstones (docs/rules.md, rules 2, 3 and 8), one test each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operators.sessions.strategies import Config, Row, opened

GAP, GRACE, RETENTION = 10, 20, 100


@pytest.fixture(params=[1, 60_000_000], ids=["us", "minutes"])
def s(request: pytest.FixtureRequest) -> Iterator[Stream]:
    unit = request.param
    with opened(Config(GAP * unit, GRACE * unit, RETENTION * unit)) as harness:
        yield Stream(harness, unit)


class Stream:
    """Rows in units of the store's segments or of 1 us; `nudge` is always 1 us."""

    def __init__(self, harness: Any, unit: int) -> None:
        self.harness, self.unit, self.ids = harness, unit, 0

    def event(self, time: int, v: float = 1.0, key: str = "a", nudge: int = 0) -> Row:
        self.ids += 1
        return {"key": key, "time_us": time * self.unit + nudge, "v": v, "id": str(self.ids)}

    def partial(self, start: int, end: int, count: int = 1, v: float | None = 1.0, nudge: int = 0) -> Row:
        return {"start_us": start * self.unit + nudge, "end_us": end * self.unit + nudge, "event_count": count, "v": v}

    def restate(self, *partial: int, **kwargs: Any) -> Row:
        return {"kind": "restate", "key": "a", **self.partial(*partial, **kwargs)}

    def tombstone(self, start: int, end: int, revision: int) -> Row:
        return {
            "kind": "tombstone",
            "key": "a",
            "start_us": start * self.unit,
            "end_us": end * self.unit,
            "revision": revision,
        }

    def replace(self, remove: list[tuple[int, int]], put: list[Row]) -> Row:
        return {"kind": "replace", "key": "a", "remove": [(start * self.unit, r) for start, r in remove], "put": put}

    def process(self, *rows: Row) -> Any:
        return self.harness.process(list(rows))

    def watermark(self, time: int) -> None:
        self.process(self.event(time, key="w"))

    def ops(self, out: Any) -> list[tuple[Any, ...]]:
        """Return (delete, start) and (upsert, start, end, count, total) in whole units."""
        unit = self.unit
        return sorted(
            ("delete", c["start_us"] // unit)
            if c["op"] == "delete"
            else (c["op"], c["start_us"] // unit, c["end_us"] // unit, c["event_count"], c["total"])
            for c in out.changes
        )


# --- restate ----------------------------------------------------------------------------------------------------------


def test_restate_is_accepted_after_grace(s: Stream) -> None:
    s.watermark(1_000)
    out = s.process(s.restate(905, 910, 3, v=5.0))
    assert s.ops(out) == [("upsert", 905, 910, 3, 5.0)]
    assert (out.counts["applied"], out.counts["corrections"], out.counts["input"]) == (1, 1, 0)


def test_restate_start_equal_watermark_minus_retention_is_applied(s: Stream) -> None:
    s.watermark(1_000)
    assert s.process(s.restate(900, 900)).counts["applied"] == 1


def test_restate_start_1_us_beyond_retention_is_expired_though_its_end_is_not(s: Stream) -> None:
    s.watermark(1_000)
    row = s.restate(900, 999, nudge=-1)
    out = s.process(row)
    assert (out.counts["expired"], out.counts["dead"], out.changes) == (1, 0, [])
    assert [(dead["start_us"], dead["reason"]) for dead in out.dead] == [(row["start_us"], "expired")]


@pytest.mark.parametrize("policy", ["drop", "emit"])
def test_restate_beyond_retention_is_a_dead_letter_whatever_the_policy(policy: str) -> None:
    with opened(Config(10, 20, 100, policy)) as harness:
        harness.process([{"key": "w", "time_us": 1_000, "v": 1.0, "id": "1"}])
        out = harness.process(
            [{"kind": "restate", "key": "a", "start_us": 899, "end_us": 899, "event_count": 1, "v": 1.0}]
        )
        assert [(row["reason"], out.counts["expired"], out.changes) for row in out.dead] == [("expired", 1, [])]


def test_restate_never_moves_the_watermark(s: Stream) -> None:
    s.process(s.restate(0, 5_000))
    assert s.harness.watermark_us is None
    s.watermark(1_000)
    s.process(s.restate(2_000, 2_000))
    assert s.harness.watermark_us == 1_000 * s.unit


def test_old_event_that_touches_a_restate_of_its_batch_is_accepted(s: Stream) -> None:
    s.watermark(1_000)
    out = s.process(s.event(905), s.restate(915, 915))
    assert (s.ops(out), out.late) == ([("upsert", 905, 915, 2, 2.0)], [])


def test_old_event_gap_plus_1_us_from_a_restate_of_its_batch_is_late(s: Stream) -> None:
    s.watermark(1_000)
    out = s.process(s.event(905, nudge=-1), s.restate(915, 915))
    assert (out.counts["late"], s.ops(out)) == (1, [("upsert", 915, 915, 1, 1.0)])


def test_restate_bridges_closed_sessions(s: Stream) -> None:
    s.process(s.event(905), s.event(925), s.event(940))
    s.watermark(1_000)
    out = s.process(s.restate(915, 915))
    assert s.ops(out) == [("delete", 925), ("upsert", 905, 925, 3, 3.0)]


def test_event_count_of_a_restate_is_1_when_it_is_left_out(s: Stream) -> None:
    row = s.restate(0, 5)
    del row["event_count"]
    assert s.ops(s.process(row)) == [("upsert", 0, 5, 1, 1.0)]


# --- tombstone and replace --------------------------------------------------------------------------------------------


def test_tombstone_deletes_the_named_session_only(s: Stream) -> None:
    s.process(s.event(0), s.event(50))
    out = s.process(s.tombstone(0, 0, 0))
    assert (s.ops(out), out.counts["applied"], len(s.harness.sessions())) == ([("delete", 0)], 1, 1)
    assert [c["revision"] for c in out.changes] == [1]


@pytest.mark.parametrize(("start", "revision"), [(0, 1), (1, 0)], ids=["other revision", "no such session"])
def test_tombstone_at(s: Stream, start: int, revision: int) -> None:
    s.process(s.event(0))
    out = s.process(s.tombstone(start, start, revision))
    assert (out.changes, len(out.stale), out.counts["stale"], out.counts["applied"]) == ([], 1, 1, 0)
    assert len(s.harness.sessions()) == 1


def test_tombstone_at_the_revision_before_the_last_change_is_stale(s: Stream) -> None:
    s.process(s.event(0))
    s.process(s.event(5))
    assert s.process(s.tombstone(0, 0, 0)).counts["stale"] == 1
    assert s.ops(s.process(s.tombstone(0, 5, 1))) == [("delete", 0)]


def test_tombstone_twice_is_stale_the_second_time(s: Stream) -> None:
    s.process(s.event(0))
    s.process(s.tombstone(0, 0, 0))
    assert s.process(s.tombstone(0, 0, 0)).counts["stale"] == 1


def test_tombstone_does_not_take_the_events_of_its_own_batch_along(s: Stream) -> None:
    s.process(s.event(0), s.event(5))
    out = s.process(s.event(3), s.tombstone(0, 5, 0))
    assert s.ops(out) == [("delete", 0), ("upsert", 3, 3, 1, 1.0)]


def test_tombstone_takes_the_session_away_that_an_old_event_would_have_touched(s: Stream) -> None:
    s.process(s.event(960), s.event(970))
    s.watermark(1_000)
    out = s.process(s.event(955), s.tombstone(960, 970, 0))
    assert (s.ops(out), out.counts["late"]) == ([("delete", 960)], 1)


def test_replace_splits_a_session(s: Stream) -> None:
    s.process(*(s.event(t) for t in (0, 10, 20, 30)))
    out = s.process(s.replace([(0, 0)], [s.partial(0, 5, 2, 2.0), s.partial(16, 30, 2, 7.0)]))
    assert s.ops(out) == [("upsert", 0, 5, 2, 2.0), ("upsert", 16, 30, 2, 7.0)]


def test_replace_puts_exact_gap_apart_merge(s: Stream) -> None:
    s.process(s.event(0))
    out = s.process(s.replace([(0, 0)], [s.partial(0, 5), s.partial(15, 30)]))
    assert s.ops(out) == [("upsert", 0, 30, 2, 2.0)]


def test_replace_put_merges_with_a_stored_neighbour_at_exact_gap(s: Stream) -> None:
    s.process(s.event(0), s.event(30))
    out = s.process(s.replace([(0, 0)], [s.partial(10, 20)]))
    assert s.ops(out) == [("delete", 0), ("delete", 30), ("upsert", 10, 30, 2, 2.0)]


def test_replace_is_all_or_nothing(s: Stream) -> None:
    s.process(s.event(0), s.event(50))
    out = s.process(s.replace([(0, 0), (50, 7)], [s.partial(80, 80)]))
    assert (out.changes, out.counts["stale"], len(out.stale), len(s.harness.sessions())) == ([], 1, 1, 2)


def test_replace_that_names_nothing_puts(s: Stream) -> None:
    assert s.ops(s.process(s.replace([], [s.partial(0, 5)]))) == [("upsert", 0, 5, 1, 1.0)]


def test_replace_works_on_the_state_before_the_batch(s: Stream) -> None:
    s.process(s.event(0))
    out = s.process(s.event(5), s.replace([(0, 0)], [s.partial(0, 2, 1, 9.0)]))
    assert (s.ops(out), out.counts["stale"]) == ([("upsert", 0, 5, 2, 10.0)], 0)


def test_replace_does_not_see_a_session_of_its_own_batch(s: Stream) -> None:
    out = s.process(s.event(0), s.tombstone(0, 0, 0))
    assert (out.counts["stale"], s.ops(out)) == (1, [("upsert", 0, 0, 1, 1.0)])


def test_the_earliest_of_two_corrections_that_name_one_session_wins(s: Stream) -> None:
    s.process(s.event(0))
    out = s.process(s.replace([(0, 0)], [s.partial(0, 0, 1, 7.0)]), s.tombstone(0, 0, 0))
    assert (s.ops(out), out.counts["applied"], out.stale[0]["kind"]) == ([("upsert", 0, 0, 1, 7.0)], 1, "tombstone")


def test_a_stale_correction_does_not_claim_the_sessions_it_names(s: Stream) -> None:
    s.process(s.event(0), s.event(50))
    out = s.process(s.replace([(0, 0), (50, 7)], [s.partial(0, 5)]), s.tombstone(0, 0, 0))
    assert (s.ops(out), out.counts["applied"], out.counts["stale"]) == ([("delete", 0)], 1, 1)


def test_removed_and_put_back_unchanged_is_no_change_and_keeps_the_revision(s: Stream) -> None:
    s.process(s.event(0, 3.0))
    out = s.process(s.replace([(0, 0)], [s.partial(0, 0, 1, 3.0)]))
    assert (out.changes, out.counts["applied"]) == ([], 1)
    assert [row["revision"] for row in s.harness.sessions()] == [0]
    assert s.ops(s.process(s.tombstone(0, 0, 0))) == [("delete", 0)]


@pytest.mark.parametrize("changed", [{"count": 2}, {"v": 4.0}], ids=["count", "value"])
def test_removed_and_put_back_with_another(s: Stream, changed: Row) -> None:
    s.process(s.event(0, 3.0))
    out = s.process(s.replace([(0, 0)], [s.partial(0, 0, **{"count": 1, "v": 3.0, **changed})]))
    assert [(c["op"], c["revision"]) for c in out.changes] == [("upsert", 1)]


def test_removed_and_formed_again_by_an_event_is_a_change_though_it_looks_as_before(s: Stream) -> None:
    """At its old revision a second correction, made before the new event, would take that event away."""
    s.process(s.event(1, 3.0))
    out = s.process(s.tombstone(1, 1, 0), s.event(1, 3.0))
    assert [(c["op"], c["revision"]) for c in out.changes] == [("upsert", 1)]
    assert s.process(s.tombstone(1, 1, 0)).counts["stale"] == 1


def test_formed_again_by_an_event_is_a_change_also_beside_a_put_elsewhere(s: Stream) -> None:
    s.process(s.event(1, 3.0))
    out = s.process(s.replace([(1, 0)], [s.partial(50, 50)]), s.event(1, 3.0))
    assert sorted((c["op"], c["start_us"], c["revision"]) for c in out.changes) == [
        ("upsert", 1 * s.unit, 1),
        ("upsert", 50 * s.unit, 1),
    ]


def test_put_in_the_future_does_not_move_the_watermark(s: Stream) -> None:
    s.watermark(1_000)
    s.process(s.replace([], [s.partial(5_000, 5_000)]))
    assert s.harness.watermark_us == 1_000 * s.unit


def test_old_event_that_touches_a_put_is_accepted(s: Stream) -> None:
    s.watermark(1_000)
    assert s.ops(s.process(s.event(905), s.replace([], [s.partial(895, 895)]))) == [("upsert", 895, 905, 2, 2.0)]


# --- below the horizon ------------------------------------------------------------------------------------------------
# With W = 1,000 units: W - retention = 900, horizon = 890.


def test_cold_session_is_removed_by_a_tombstone(s: Stream) -> None:
    s.process(s.event(500))
    s.watermark(1_000)
    out = s.process(s.tombstone(500, 500, 0))
    assert (s.ops(out), out.counts["applied"]) == ([("delete", 500)], 1)
    assert s.process(s.tombstone(500, 500, 0)).counts["stale"] == 1


def test_cold_session_at_another_revision_is_stale(s: Stream) -> None:
    s.process(s.event(500))
    s.watermark(1_000)
    assert s.process(s.tombstone(500, 500, 1)).counts["stale"] == 1


def test_cold_put_merges_with_a_cold_neighbour_at_exact_gap_that_it_does_not_name(s: Stream) -> None:
    s.process(s.event(500), s.event(550))
    s.watermark(1_000)
    out = s.process(s.replace([(550, 0)], [s.partial(510, 520)]))
    assert s.ops(out) == [("delete", 550), ("upsert", 500, 520, 2, 2.0)]


def test_cold_put_leaves_a_neighbour_at_gap_plus_1_us(s: Stream) -> None:
    s.process(s.event(500))
    s.watermark(1_000)
    out = s.process(s.replace([], [s.partial(510, 520, nudge=1)]))
    assert [(c["op"], c["start_us"], c["event_count"]) for c in out.changes] == [("upsert", 510 * s.unit + 1, 1)]


def test_put_that_starts_at_the_horizon_still_merges_with_a_cold_neighbour(s: Stream) -> None:
    """The put is not below the horizon; its neighbour is. Cold sessions are needed as soon as start < W - retention."""
    s.process(s.event(880))
    s.watermark(1_000)
    assert s.ops(s.process(s.replace([], [s.partial(890, 890)]))) == [("upsert", 880, 890, 2, 2.0)]


def test_put_that_starts_1_us_before_retention_merges_with_the_neighbour_1_us_below_the_horizon(s: Stream) -> None:
    s.process(s.event(890, nudge=-1))
    s.watermark(1_000)
    out = s.process(s.replace([], [s.partial(900, 950, nudge=-1)]))
    assert [(c["op"], c["start_us"], c["event_count"]) for c in out.changes] == [("upsert", 890 * s.unit - 1, 2)]


def test_put_bridges_a_cold_and_a_warm_session(s: Stream) -> None:
    s.process(s.event(885), s.event(905))
    s.watermark(1_000)
    out = s.process(s.replace([], [s.partial(895, 895)]))
    assert s.ops(out) == [("delete", 905), ("upsert", 885, 905, 3, 3.0)]
    assert len([row for row in s.harness.sessions() if row["key"] == "a"]) == 1


def test_session_made_warm_by_a_put_is_stored_and_takes_events(s: Stream) -> None:
    s.process(s.event(500))
    s.watermark(1_000)
    s.process(s.replace([(500, 0)], [s.partial(500, 985)]))
    assert s.ops(s.process(s.event(990))) == [("upsert", 500, 990, 2, 2.0)]


def test_cold_put_that_overlaps_several_cold_sessions_swallows_them(s: Stream) -> None:
    s.process(s.event(500), s.event(520), s.event(540), s.event(600))
    s.watermark(1_000)
    out = s.process(s.replace([(600, 0)], [s.partial(505, 535)]))
    assert s.ops(out) == [("delete", 520), ("delete", 540), ("delete", 600), ("upsert", 500, 540, 4, 4.0)]


def test_two_puts_of_two_corrections_meet_over_a_cold_session(s: Stream) -> None:
    s.process(s.event(500))
    s.watermark(1_000)
    out = s.process(s.replace([], [s.partial(490, 490)]), s.replace([], [s.partial(510, 510)]))
    assert s.ops(out) == [("delete", 500), ("upsert", 490, 510, 3, 3.0)]


def test_handed_in_cold_sessions_that_do_not_change_are_not_forwarded(s: Stream) -> None:
    s.process(s.event(500, 3.0), s.event(515), s.event(480))
    s.watermark(1_000)
    assert s.process(s.replace([(500, 0)], [s.partial(500, 500, 1, 3.0)])).changes == []
    assert s.process(s.tombstone(500, 500, 0)).counts["applied"] == 1


def test_put_of_a_stale_correction_does_not_merge_cold_sessions(s: Stream) -> None:
    s.process(s.event(500), s.event(520))
    s.watermark(1_000)
    out = s.process(s.replace([(500, 9)], [s.partial(510, 510)]))
    assert (out.changes, out.counts["stale"]) == ([], 1)


def test_cold_session_written_by_a_replacement_can_be_replaced_again(s: Stream) -> None:
    s.watermark(1_000)
    s.process(s.replace([], [s.partial(500, 500)]))
    out = s.process(s.replace([(500, 1)], [s.partial(501, 501)]))
    assert s.ops(out) == [("delete", 500), ("upsert", 501, 501, 1, 1.0)]


def test_cold_replacement_beside_events_of_the_same_batch_keeps_them_apart(s: Stream) -> None:
    s.process(s.event(500), s.event(890, nudge=-1))
    s.watermark(1_000)
    out = s.process(s.replace([(500, 0)], [s.partial(501, 501)]), s.event(980), s.event(905))
    assert s.ops(out) == [("delete", 500), ("upsert", 501, 501, 1, 1.0), ("upsert", 980, 980, 1, 1.0)]
    assert out.counts["late"] == 1
