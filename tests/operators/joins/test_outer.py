"""Outer joins through the harness, beside a double loop after each batch and DuckDB's outer join in the end (rules 290 to 294)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.testing.joins import JoinHarness
from tests.operators.joins.streams_support import (
    BATCHES,
    FAR,
    KEPT,
    TYPES,
    UNIT,
    Case,
    at,
    cases,
    message,
    played,
    there,
    told,
)
from tests.oracle.joins import Given, JoinModel, Message, joined
from tests.support import examples


@st.composite
def timed(draw: st.DrawFn) -> Case:
    """Draw a join by time."""
    case = draw(cases())
    if case.by_time:
        return case
    # Of a join by count that was drawn the lengths are taken as times.
    reach = case.reach
    least = {"sliding": reach.left + reach.right, "session": 2 * reach.gap}.get(reach.kind, 2 * reach.size) + case.grace
    retention = min(least, 10_000) + draw(st.sampled_from([0, 1, 5, 50]))
    if case.unbounded is not None:
        fields = {"left": min(reach.left, 6), "right": min(reach.right, 6)}
        retention = sum(fields.values()) + case.grace
        reach = replace(reach, **fields)
    reach = replace(reach, span=retention - case.grace - reach.gap)
    return replace(case, reach=reach, by_time=True, retention=retention, unbounded=None, most=None)


def both(case: Case, how: str, unmatched: str, shards: int) -> tuple[JoinModel, JoinHarness]:
    harness = case.harness(shards)
    harness._settings |= {"outer": TYPES[how], "unmatched": unmatched}
    return replace(case.model(), outer=TYPES[how], unmatched=unmatched), harness


@examples(60)
@given(timed(), st.sampled_from(sorted(TYPES)), BATCHES, st.integers(1, 3))
def test_closed_messages_without_a_partner_are_sent_once(
    case: Case, how: str, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    (model, run), clock, accepted = both(case, how, "close", shards), 100, list[Message]()
    with run:
        for batch, later, lose_stores in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(run, batch, clock)
            assert told(output) == {"pairs": expected.pairs, "alone": expected.alone, "taken_back": set()}
            accepted += expected.accepted
            if lose_stores:
                run.lose_stores()
        run.tick(clock, flush=True)
        run.advance(FAR * UNIT, clock)
        assert there(run) == joined(case.reach, accepted, how)
        assert not run.advance(2 * FAR * UNIT, clock).pairs


@examples(60)
@given(timed(), st.sampled_from(sorted(TYPES)), BATCHES, st.integers(1, 3))
def test_after_each_batch_the_rows_are_sqls_outer_join(
    case: Case, how: str, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    case = replace(case, early="batch", late="batch")
    (model, run), clock, accepted = both(case, how, "batch", shards), 100, list[Message]()
    with run:
        for batch, later, lose_stores in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(run, batch, clock)
            found = told(output)
            assert found == {"pairs": expected.pairs, "alone": expected.alone, "taken_back": expected.taken_back}
            accepted += expected.accepted
            assert there(run) == joined(case.reach, accepted, how)
            if lose_stores:
                run.lose_stores()
        assert not run.advance(FAR * UNIT, clock).pairs


@examples(60)
@given(timed(), st.sampled_from(sorted(TYPES)), st.sampled_from(["close", "batch"]), BATCHES, st.integers(1, 3))
def test_late_messages_handed_in_again_take_rows_back(
    case: Case, how: str, unmatched: str, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    case = replace(case, early="batch", late="batch")
    if case.reach.kind == "session" or case.unbounded or case.retention == KEPT:
        return
    (model, run), clock = both(case, how, unmatched, shards), 100
    with run:
        for batch, later, lose_stores in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(run, batch, clock)
            if expected.late:
                again = [row for row in output.late if row["time_us"] >= model.expired * UNIT]
                kept = [m for m in expected.late if m.time >= model.expired]
                wanted = model.batch([], clock, again=kept)
                found = told(run.again(again, clock))
                assert (found["pairs"], found["alone"]) == (wanted.pairs, wanted.alone)
                # A row may be deleted that was not there: a partner of before is beyond retention.
                assert wanted.taken_back <= found["taken_back"]
                assert there(run) == model.sent | set(model.alone.values())
                if lose_stores:
                    run.lose_stores()
                assert not run.again(again, clock).pairs


def outer(**settings: Any) -> JoinHarness:
    sides = {"left": {"name": "orders", "size": "2 minutes"}, "right": {"name": "shipments", "size": "1 minute"}}
    return JoinHarness(on=["id"], **sides, **{"type": "left", "grace": "5 minutes", "retention": "1 hour", **settings})


@pytest.mark.parametrize(("watermark", "sent"), [("12:08", 0), ("12:08+", 1)])
def test_an_order_is_alone_once_the_last_shipment_would_be_late(watermark: str, sent: int) -> None:
    with outer() as run:
        run.process([message("12:00")], [])
        (*rows,) = run.advance(at(watermark)).pairs
        assert len(rows) == sent
        if sent:
            (row,) = rows
            assert (row["left_time"], row["right_time"], row["right_position"]) == (at("12:00"), None, 0)
        else:
            # At 12:08 a shipment of 12:02 is still accepted.
            (pair,) = run.process([], [message("12:02")]).pairs
            assert pair["right_time"] == at("12:02")


def test_a_tombstone_names_a_row_without_a_partner_by_0() -> None:
    with outer() as run:
        run.process([message("12:00")], [])
        (row,) = run.advance(at("12:09")).pairs
        (deleted,) = run.remove(row["join_key"], row["left_position"], 0).pairs
        assert (deleted["op"], deleted["left_time"], run.joins()) == ("delete", at("12:00"), [])
        assert not run.advance(at("13:30")).pairs


def test_a_session_is_alone_two_gaps_after_its_end() -> None:
    sides = {"left": {"name": "a"}, "right": {"name": "b"}}
    with JoinHarness(on=["id"], **sides, kind="session", gap="1 minute", type="left", retention="1 hour") as run:
        run.process([message("12:00")], [])
        run.process([message("12:01")], [])
        assert not run.advance(at("12:03")).pairs
        # A message that goes on with the session still may come, and keeps all of it open.
        assert not run.process([message("12:02")], []).pairs
        assert not run.advance(at("12:04")).pairs
        assert len(run.advance(at("12:04+")).pairs) == 3


def test_a_session_that_late_messages_open_again_is_not_sent_again() -> None:
    sides = {"left": {"name": "a"}, "right": {"name": "b"}}
    second = 1_000_000
    with JoinHarness(on=["id"], **sides, kind="session", gap="10 seconds", type="left", retention="1 hour") as run:
        run.process([{"id": 1, "time_us": 0}], [{"id": 2, "time_us": 0}])
        assert [row["left_position"] for row in run.advance(25 * second).pairs] == [1]
        late = run.process([{"id": 1, "time_us": t * second} for t in (16, 0, 8)], []).late
        assert not run.again(late).pairs
        sent = [row["left_position"] for row in run.advance(37 * second).pairs]
        assert sorted(sent) == [2, 3, 4], "the message that was sent alone came again"


def test_a_restore_knows_a_partner_that_has_left_the_stores() -> None:
    sides = {"left": {"name": "a", "size": "10 seconds"}, "right": {"name": "b", "size": "10 seconds"}}
    second = 1_000_000
    with JoinHarness(on=["id"], **sides, type="left", retention="20 seconds") as run:
        assert len(run.process([{"id": 1, "time_us": 10 * second}], [{"id": 1, "time_us": 0}]).pairs) == 1
        run.advance(25 * second)
        run.lose_stores()
        assert not run.advance(31 * second).pairs


def test_a_restore_takes_back_the_row_of_a_session_that_is_open_again() -> None:
    second = 1_000_000
    sides = {"left": {"name": "a"}, "right": {"name": "b"}}
    with JoinHarness(on=["id"], **sides, kind="session", gap="10 seconds", type="left", retention="1 hour") as run:
        run.process([{"id": 1, "time_us": 0}], [])
        assert len(run.advance(25 * second).pairs) == 1
        late = run.process([{"id": 1, "time_us": t * second} for t in (16, 8)], []).late
        assert not run.again(late).pairs
        run.lose_stores()
        output = run.process([], [{"id": 1, "time_us": 20 * second}])
        assert [(r["left_position"], r["right_position"]) for r in output.pairs if r["op"] == "delete"] == [(1, 0)]
        assert not [row for row in run.joins() if row["right_position"] == 0]
