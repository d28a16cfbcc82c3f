"""The examples of docs/rules.md, rules 120 to 125, as they stand there."""

from typing import Any

import pytest

from sessionlake.testing.joins import JoinHarness
from tests.operators.joins.streams_support import at, message


def join(**settings: Any) -> JoinHarness:
    sides = {"left": {"name": "orders", "size": "2 minutes"}, "right": {"name": "shipments", "size": "1 minute"}}
    return JoinHarness(on=["id"], **sides, **{"grace": "5 minutes", "retention": "1 hour", **settings})


@pytest.mark.parametrize(("shipment", "pairs"), [("12:02", 1), ("12:02+", 0), ("11:59", 1), ("11:59-", 0)])
def test_partners_of_an_order_at_noon(shipment: str, pairs: int) -> None:
    with join() as run:
        assert len(run.process([message("12:00")], [message(shipment)]).pairs) == pairs


def test_the_watermark_is_that_of_the_slower_side_unless_it_is_idle() -> None:
    with join(idle="1 minute") as run:
        run.process([message("12:30")], [message("12:10")], at("9:00:00"))
        assert run.watermark_us == at("12:10")
        run.process([message("12:31")], [], at("9:01:00"))
        assert run.watermark_us == at("12:10")
        run.process([message("12:31")], [], at("9:01:01"))
        assert run.watermark_us == at("12:31")
        run.process([], [message("12:28")], at("9:01:02"))
        assert run.watermark_us == at("12:31")


def test_an_advance_moves_sides_that_are_both_idle() -> None:
    with join(idle="1 minute") as run:
        run.process([message("12:30")], [message("12:10")], at("9:00:00"))
        run.advance(at("13:00"), at("9:05:00"))
        assert run.watermark_us == at("13:00")


@pytest.mark.parametrize(
    ("side", "time", "outcome"),
    [
        ("left", "12:23", "accepted"),
        ("left", "12:23-", "late"),
        ("right", "12:24", "accepted"),
        ("right", "12:24-", "late"),
        ("left", "11:30", "late"),
        ("left", "11:30-", "dead"),
    ],
)
def test_late_and_beyond_retention(side: str, time: str, outcome: str) -> None:
    with join() as run:
        run.process([message("12:30")], [message("12:30")])
        given = [message(time)]
        output = run.process(given, []) if side == "left" else run.process([], given)
        assert output.counts[f"{outcome}:{side}"] == output.counts[outcome] == 1
        assert [row["side"] for row in output.late + output.dead] == ([] if outcome == "accepted" else [side])
        assert [row["position"] for row in output.late] == ([2] if outcome == "late" else [])


def test_beyond_retention_is_dropped_where_the_config_says_so() -> None:
    with join(beyond_retention="drop") as run:
        run.process([message("12:30")], [message("12:30")])
        output = run.process([message("11:30-")], [])
        assert (output.dead, output.late, output.counts["dropped:left"]) == ([], [], 1)


@pytest.mark.parametrize("lost", [False, True])
def test_messages_are_partners_from_the_horizon_on(*, lost: bool) -> None:
    """Retention is as short as sizes and grace allow: the horizon is 12:22."""
    with join(retention="8 minutes") as run:
        run.process([], [message("12:22-"), message("12:22")])
        run.process([message("12:30")], [message("12:30")])
        if lost:
            run.lose_stores()
        (pair,) = run.process([message("12:23")], []).pairs
        assert pair["right_position"] == 2
        late = run.process([message("12:22")], []).late
        assert [pair["right_position"] for pair in run.again(late).pairs] == [2]


def test_a_pair_waits_for_the_minute() -> None:
    with join(early="1 minute", late="1 minute") as run:
        assert run.process([message("12:00")], [], at("9:00:00")).pairs == []
        assert run.process([], [message("12:01")], at("9:00:10")).pairs == []
        (pair,) = run.tick(at("9:01:00")).pairs
        assert (pair["left_position"], pair["right_position"], pair["emitted_at"]) == (1, 1, at("9:01:00"))


def test_changed_policies_send_what_waits() -> None:
    with join(early="1 minute", late="1 minute") as run:
        run.process([message("12:00")], [message("12:01")], at("9:00:00"))
        run.emit("batch", "batch")
        assert len(run.tick(at("9:00:01")).pairs) == 1
        run.emit("1 minute", "batch")
        assert len(run.process([message("12:01")], [], at("9:00:02")).pairs) == 1
        assert len(run.process([message("12:01")], [], at("9:00:03")).pairs) == 0
        assert len(run.tick(at("9:01:03")).pairs) == 1


def test_a_side_that_runs_ahead_by_count_loses_partners() -> None:
    sides = {"left": {"name": "a", "size": 2}, "right": {"name": "b", "size": 2}}
    with JoinHarness(on=["id"], **sides, by="count", retention_count=4) as run:
        run.process([{"id": 1, "time_us": 0}] * 6, [])
        kept = run.process([], [{"id": 1, "time_us": 0}] * 6).pairs
        # Of the left ones 3 to 6 are left; a right one has partners one number off at most.
        expected = [(n, m) for n in range(3, 7) for m in range(1, 7) if abs(n - m) < 2]
        assert sorted((pair["left_position"], pair["right_position"]) for pair in kept) == expected


def test_a_tombstone_deletes_a_pair() -> None:
    with join() as run:
        run.process([message("12:00")] * 2, [message("12:00")])
        output = run.remove("1", 2, 1)
        assert [(row["op"], row["left_position"]) for row in output.pairs] == [("delete", 2)]
        assert [row["left_position"] for row in run.joins()] == [1]
        assert output.counts["applied"] == output.counts["deletes"] == 1
