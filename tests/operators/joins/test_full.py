"""Pairs that wait until their window is full, through the harness, beside a double loop after each batch (rule 295)."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlake.engine.operator import BatchContext
from sessionlake.operators.joins import until_full
from sessionlake.testing.joins import JoinHarness
from tests.operators.joins.streams_support import (
    BATCHES,
    FAR,
    POLICIES,
    SMALL,
    TYPES,
    UNIT,
    Case,
    at,
    message,
    played,
    there,
    told,
)
from tests.oracle.joins import Given, JoinModel, Message, Reach, joined
from tests.support import examples

Full = Literal["end", "close"]
FULL = st.sampled_from(["end", "close"])
OUTER = st.sampled_from(["inner", "inner", *sorted(TYPES)])
STRETCHES = st.sampled_from([1_000_000, 3 * UNIT + 7])
"""The least times that a list is of: some lists are of several windows then."""


@st.composite
def windows(draw: st.DrawFn) -> Case:
    """Draw a tumbling or hopping join by time."""
    kind, size, grace = draw(st.sampled_from(["tumbling", "hopping"])), draw(st.integers(1, 8)), draw(SMALL)
    reach = Reach(
        kind,
        size=size,
        advance=draw(st.integers(1, size)) if kind == "hopping" else size,
        offset=draw(st.integers(-2, 9)),
    )
    least = size + (size - 1) // reach.advance * reach.advance + grace
    retention, idle = least + draw(st.sampled_from([0, 1, 5, 50])), draw(st.sampled_from([5, 10**9]))
    most = draw(st.sampled_from([None, 1, 2, 5]))
    return Case(reach, True, grace, retention, idle, "off", draw(POLICIES), None, most, least)


def both(case: Case, full: Full | None, how: str, shards: int) -> tuple[JoinModel, JoinHarness]:
    harness, outer = case.harness(shards, full), TYPES.get(how, ())
    harness._settings |= {"outer": outer}
    return replace(case.model(), full=full, early=case.early, outer=outer), harness


@examples(120)
@given(windows(), FULL, OUTER, BATCHES, st.integers(1, 3), STRETCHES)
def test_every_batch_has_the_pairs_of_full_windows(
    case: Case, full: Full, how: str, batches: list[tuple[list[Given], int, bool]], shards: int, stretch: int
) -> None:
    (model, run), clock, accepted = both(case, full, how, shards), 100, list[Message]()
    with run, pytest.MonkeyPatch.context() as patched:
        patched.setattr(until_full, "_LEAST_STRETCH_US", stretch)
        for batch, later, lose_stores in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(run, batch, clock)
            assert told(output) == {"pairs": expected.pairs, "alone": expected.alone, "taken_back": set()}
            assert len(output.late) == len(expected.late)
            accepted += expected.accepted
            if lose_stores:
                run.lose_stores()
        assert told(run.tick(clock, flush=True))["pairs"] == model.batch([], clock, flush=True).pairs
        run.advance(FAR * UNIT, clock)
        assert there(run) == joined(case.reach, accepted, how)
        assert not run.advance(2 * FAR * UNIT, clock).pairs


@examples(60)
@example(
    case=Case(Reach("hopping", size=8, advance=5), True, 0, 13, 5, "off", "batch", None, None, 13),
    full="end",
    how="inner",
    batches=[
        ([Given("left", "a", 18, 0), Given("right", "a", 17, 0)], 0, False),
        ([Given("left", "a", 10, 0), Given("left", "a", 0, 0)], 5, False),
        ([Given("right", "a", 6, 0)], 1, False),
    ],
    shards=1,
)
@example(
    case=Case(Reach("tumbling", size=2, advance=2), True, 0, 3, 5, "off", "batch", None, None, 2),
    full="end",
    how="full",
    batches=[
        ([Given("left", "a", 0, 0), Given("left", "a", 4, 0), Given("right", "a", 4, 0)], 0, False),
        ([Given("right", "a", 1, 0)], 0, False),
    ],
    shards=1,
)
@given(windows(), FULL, OUTER, BATCHES, st.integers(1, 3))
def test_late_messages_handed_in_again_are_due_by_the_policy_late(
    case: Case, full: Full, how: str, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    (model, run), clock = both(case, full, how, shards), 100
    with run:
        for batch, later, lose_stores in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(run, batch, clock)
            assert told(output)["pairs"] == expected.pairs
            again = [row for row in output.late if row["time_us"] >= model.expired * UNIT]
            kept = [m for m in expected.late if m.time >= model.expired]
            wanted, found = model.batch([], clock, again=kept), told(run.again(again, clock))
            assert (found["pairs"], found["alone"]) == (wanted.pairs, wanted.alone)
            if lose_stores:
                run.lose_stores()
        model.batch([], clock, flush=True)
        run.tick(clock, flush=True)
        assert there(run) == model.sent | set(model.alone.values())


CHANGES = st.lists(
    st.none() | st.tuples(POLICIES, POLICIES, st.none()) | st.tuples(st.just("off"), POLICIES, FULL),
    min_size=6,
    max_size=6,
)
TEXTS = {"batch": "batch", "off": "off", 3: "3 us", 7: "7 us"}


@pytest.mark.slow
@examples(120)
@given(windows(), FULL, OUTER, BATCHES, CHANGES, st.integers(1, 3))
def test_policies_that_change_send_every_pair_once(
    case: Case,
    full: Full,
    how: str,
    batches: list[tuple[list[Given], int, bool]],
    changes: list[tuple[Any, Any, Full | None] | None],
    shards: int,
) -> None:
    (model, run), clock, accepted = both(case, full, how, shards), 100, list[Message]()
    with run:
        for (batch, later, lose_stores), change in zip(batches, changes, strict=False):
            clock += later
            expected, output = model.batch(batch, clock), played(run, batch, clock)
            assert told(output) == {"pairs": expected.pairs, "alone": expected.alone, "taken_back": set()}
            accepted += expected.accepted
            if change is not None:
                early, late, held = change
                model.go_on(early, late, held)
                run.emit(TEXTS[early], TEXTS[late], held)
            if lose_stores:
                run.lose_stores()
        run.tick(clock, flush=True)
        run.advance(FAR * UNIT, clock)
        assert there(run) == joined(case.reach, accepted, how)


def tumbling(**settings: Any) -> JoinHarness:
    windows = {"kind": "tumbling", "size": "10 minutes", "grace": "5 minutes", "retention": "1 hour"}
    sides = {"left": {"name": "orders"}, "right": {"name": "shipments"}}
    return JoinHarness(on=["id"], **sides, **{**windows, "early": "off", "full": "end", **settings})


@pytest.mark.parametrize(("full", "before", "then"), [("end", "12:10-", "12:10"), ("close", "12:15-", "12:15")])
def test_a_pair_is_sent_when_its_window_is_full(full: str, before: str, then: str) -> None:
    with tumbling(full=full) as run:
        assert not run.process([message("12:01")], [message("12:04")]).pairs
        assert not run.advance(at(before)).pairs
        assert len(run.advance(at(then)).pairs) == 1


@pytest.mark.parametrize(("full", "late", "sent"), [("end", "batch", 1), ("end", "1 minute", 0), ("close", "batch", 0)])
def test_a_shipment_after_the_end_of_its_window_is_of_the_policy_late(full: str, late: str, sent: int) -> None:
    with tumbling(full=full, late=late) as run:
        run.process([message("12:01")], [], at("9:00:00"))
        run.advance(at("12:10"), at("9:00:00"))
        assert len(run.process([], [message("12:09")], at("9:00:00")).pairs) == sent
        assert len(run.tick(at("9:01:00")).pairs) == (1 if late != "batch" else 0)
        assert len(run.advance(at("12:15"), at("9:01:00")).pairs) == (1 if full == "close" else 0)


def test_a_pair_of_hopping_windows_waits_for_the_first_that_has_both() -> None:
    with tumbling(kind="hopping", advance="5 minutes") as run:
        run.process([message("12:04")], [message("12:06")])
        assert not run.advance(at("12:10-")).pairs
        assert len(run.advance(at("12:10")).pairs) == 1
        assert not run.advance(at("12:15")).pairs


def test_the_end_of_a_run_sends_no_pair_of_a_window_that_is_not_full() -> None:
    with tumbling() as run:
        run.process([message("12:01")], [message("12:04")])
        assert not run.tick(at("9:00:00"), flush=True).pairs


def test_waiting_pairs_are_due_as_full_is_set_and_as_it_is_removed() -> None:
    with tumbling(early="1 minute", full=None) as run:
        run.process([message("12:01")], [message("12:04")], at("9:00:00"))
        run.emit("off", "batch", "end")
        assert len(run.tick(at("9:00:01")).pairs) == 1
        run.process([message("12:02")], [], at("9:00:02"))
        (pair,) = run.advance(at("12:10"), at("9:00:02")).pairs
        assert pair["left_position"] == 2, "a pair came again"
        run.process([message("12:11")], [message("12:14")], at("9:00:03"))
        run.emit("batch", "batch")
        assert len(run.tick(at("9:00:04")).pairs) == 1
        assert not run.advance(at("12:20"), at("9:00:05")).pairs


def test_pairs_that_waited_for_a_period_are_due_as_full_is_set_also_of_windows_that_have_ended() -> None:
    with tumbling(early="1 minute", full=None) as run:
        run.process([message("12:01")], [message("12:04")], at("9:00:00"))
        assert not run.advance(at("12:10"), at("9:00:01")).pairs
        run.emit("off", "batch", "end")
        assert len(run.tick(at("9:00:02")).pairs) == 1


def test_pairs_go_on_waiting_as_end_is_changed_to_close() -> None:
    with tumbling() as run:
        run.process([message("12:01")], [message("12:04")])
        run.emit("off", "batch", "close")
        assert not run.advance(at("12:15-")).pairs
        assert len(run.advance(at("12:15")).pairs) == 1


def test_a_restore_lists_no_message_of_a_full_window(tmp_path: Path) -> None:
    with tumbling() as run:
        run.process([message("12:01"), message("12:11")], [message("12:11")])
        run.advance(at("12:10"))
        operator = run._operator
        assert operator is not None
        store = operator.open_store(tmp_path / "store")
        (writes,) = operator.restored(run._tables.stored(operator, run._state), store, 0)
        operator.commit(store, writes, {}, BatchContext(0, "", run._state))
        assert store.lists(b"F")[1].x.tolist() == [at("12:11")] * 2
        store.close()


def test_windows_of_less_than_a_second_have_a_list_together_and_are_sent_one_by_one() -> None:
    noon, tenth = at("12:00"), 100_000
    rows = [{"id": number, "time_us": noon + number * tenth} for number in range(5)]
    with tumbling(size=tenth, full="close") as run:
        assert not run.process(rows, rows).pairs
        for number in range(5):
            (pair,) = run.advance(at("12:05") + (number + 1) * tenth).pairs
            assert pair["join_key"] == str(number)


@pytest.mark.parametrize("lost", [False, True])
def test_messages_do_not_stay_for_longer_because_pairs_wait(*, lost: bool) -> None:
    """There is always a window that is not full, and its messages hold back none that are older than the retention."""
    with tumbling(retention="15 minutes") as run:
        for hour in range(12, 20):
            run.process([message(f"{hour}:01"), message(f"{hour}:11")], [message(f"{hour}:04"), message(f"{hour}:14")])
            if lost:
                run.lose_stores()
        assert set(run._state["horizons"].values()) == {at("18:56")}
        run.advance(at("20:00"))
        assert len(run.joins()) == 16
