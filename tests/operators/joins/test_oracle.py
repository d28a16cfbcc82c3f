"""Streams of two sides through the harness, beside a double loop (each batch) and DuckDB's join (in the end)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessionlake.testing.joins import JoinOutput
from tests.operators.joins.streams_support import BATCHES, KEPT, POLICIES, UNIT, Case, cases, played
from tests.oracle.joins import PARTITION, Given, Message, joined
from tests.support import examples


def told(output: JoinOutput) -> set[tuple[str, int, int]]:
    found = [(r["join_key"], r["left_position"], r["right_position"]) for r in output.pairs]
    assert len(found) == len(set(found))
    return set(found)


@examples(80)
@given(cases(), BATCHES, st.integers(1, 3))
def test_every_batch_is_the_double_loops_and_all_are_sqls_join(
    case: Case, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    model, clock, accepted = case.model(), 100, list[Message]()
    with case.harness(shards) as join:
        for batch, later, lose_stores in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(join, batch, clock)
            assert told(output) == expected.pairs
            late = sorted((r["side"], r.get("id", r.get("k")), r["time_us"], r["position"]) for r in output.late)
            assert late == sorted((m.side, m.key, m.time * UNIT, m.position) for m in expected.late)
            dead = sorted((r["side"], str(r.get("id", r.get("k"))), r["time_us"]) for r in output.dead)
            assert dead == sorted((one.side, str(one.key), one.time * UNIT) for one in expected.dead)
            counts = {name: output.counts.get(name, 0) for name in ("input", "accepted", "late", "dead")}
            assert counts.pop("input") == len(batch) == sum(counts.values())
            assert counts["accepted"] == len(expected.accepted)
            accepted += expected.accepted
            if lose_stores:
                join.lose_stores()
        model.batch([], clock, flush=True)
        join.tick(clock, flush=True)
        found = {(r["join_key"], r["left_position"], r["right_position"]) for r in join.joins()}
        assert found == model.sent == joined(case.reach, accepted)


@examples(20)
@given(cases(), BATCHES, st.integers(1, 3))
def test_rows_have_times_and_columns_of_their_messages(
    case: Case, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    everything = [one for batch, _, _ in batches for one in batch]
    with case.harness(shards) as join:
        by_position: dict[tuple[str, int], tuple[int, Any]] = {}
        numbers: dict[tuple[str, int], int] = {}
        output = played(join, everything, 100)
        for i, one in enumerate(everything):
            if one.key is not None:
                at = one.side, one.partition
                numbers[at] = numbers.get(at, 0) + 1
                value = i if one.side == "left" else f"w{i}"
                by_position[one.side, one.partition * PARTITION + numbers[at]] = one.time * UNIT, value
        for pair in (*output.pairs, *join.tick(101, flush=True).pairs):
            assert (pair["left_time"], pair["a_v"]) == by_position["left", pair["left_position"]]
            assert (pair["right_time"], pair["b_w"]) == by_position["right", pair["right_position"]]
            assert pair["op"] == "upsert"


@examples(50)
@given(cases(), BATCHES, st.integers(1, 3))
def test_late_messages_handed_in_again_join_what_retention_has_kept(
    case: Case, batches: list[tuple[list[Given], int, bool]], shards: int
) -> None:
    case = Case(**{**case.__dict__, "early": "batch", "late": "batch", "by_time": True})
    case = Case(**{**case.__dict__, "retention": min(case.retention, 60)}) if case.retention == KEPT else case
    if case.reach.kind == "session" or case.unbounded:
        return
    model, clock = case.model(), 100
    with case.harness(shards) as join:
        for batch, later, _ in batches:
            clock += later
            expected, output = model.batch(batch, clock), played(join, batch, clock)
            if expected.late:
                beyond = model.expired
                again = [row for row in output.late if row["time_us"] >= beyond * UNIT]
                kept = [m for m in expected.late if m.time >= beyond]
                pairs = model.batch([], clock, again=kept).pairs
                assert told(join.again(again, clock)) == pairs
                assert told(join.again(again, clock)) == set()
                join.lose_stores()
                assert told(join.again(again, clock)) == set()


TEXTS = {"batch": "batch", 3: "3 us", 7: "7 us"}


@examples(40)
@given(cases(), BATCHES, st.lists(st.tuples(POLICIES, POLICIES) | st.none(), min_size=6, max_size=6), st.integers(1, 3))
def test_changes_of_policies_send_every_pair_once(
    case: Case,
    batches: list[tuple[list[Given], int, bool]],
    changes: list[tuple[Any, Any] | None],
    shards: int,
) -> None:
    model, clock, accepted = case.model(), 100, list[Message]()
    sent: list[tuple[str, int, int]] = []
    with case.harness(shards) as join:
        for (batch, later, lose_stores), change in zip(batches, changes, strict=False):
            clock += later
            accepted += model.batch(batch, clock).accepted
            sent += told(played(join, batch, clock))
            if change is not None:
                join.emit(*(TEXTS[policy] for policy in change))
            if lose_stores:
                join.lose_stores()
        sent += told(join.tick(clock, flush=True))
    assert len(sent) == len(set(sent))
    assert set(sent) == joined(case.reach, accepted)
