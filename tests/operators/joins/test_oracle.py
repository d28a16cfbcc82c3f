"""Streams of two sides through the harness, beside a double loop (each batch) and DuckDB's join (in the end)."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessionlake.testing.joins import JoinHarness, JoinOutput
from tests.oracle.joins import PARTITION, Given, JoinModel, Message, Reach, joined
from tests.support import examples

UNIT = 20_000_000
"""Microseconds of a unit of time: segments of stores are a minute at least."""
KEPT = 10**6
"""More messages than any stream has."""


@dataclass(frozen=True)
class Case:
    """A join, as the harness and as the oracles take it. Lengths are in units of time, or in messages."""

    reach: Reach
    by_time: bool
    grace: int
    retention: int
    idle: int
    early: str | int
    late: str | int
    unbounded: str | None
    """A side that is as wide as retention allows."""
    most: int | None = None
    """How many messages are kept by time; None for all."""
    least: int = 0
    """How far back of the watermark a message may have partners."""

    def harness(self, shards: int) -> JoinHarness:
        reach, unit = self.reach, UNIT if self.by_time else 1
        less = 0 if self.by_time else 1
        sizes: dict[str, int | None] = dict.fromkeys(("left", "right"))
        if reach.kind == "sliding":
            sizes = {"left": reach.left * unit + less, "right": reach.right * unit + less}
            if self.unbounded is not None:
                sizes[self.unbounded] = None
        widths = {n: getattr(reach, n) * unit for n in ("size", "advance", "offset", "gap")}
        return JoinHarness(
            on=["id = k"],
            left={"name": "a", "size": sizes["left"], "columns": ["v"]},
            right={"name": "b", "size": sizes["right"], "columns": ["w"]},
            by="time" if self.by_time else "count",
            kind=reach.kind,
            **widths,
            grace=f"{self.grace * UNIT} us",
            retention_time=f"{self.retention * UNIT if self.by_time else 0} us",
            retention_count=(self.most or 0) if self.by_time else self.retention,
            idle=f"{self.idle} us",
            early=self.early if isinstance(self.early, str) else f"{self.early} us",
            late=self.late if isinstance(self.late, str) else f"{self.late} us",
            shards=shards,
            schema={"v": "long", "w": "string", "id": "string", "k": "string"},
        )

    def model(self) -> JoinModel:
        early, late = ("batch" if isinstance(p, str) else p for p in (self.early, self.late))
        return JoinModel(
            self.reach, self.by_time, self.grace, self.retention, self.idle, early, late, self.most, self.least
        )


SMALL = st.integers(0, 6)
POLICIES = st.sampled_from(["batch", 3, 7])


@st.composite
def reaches(draw: st.DrawFn) -> Reach:
    kind = draw(st.sampled_from(["sliding", "sliding", "tumbling", "hopping", "session"]))
    if kind == "sliding":
        return Reach(kind, left=draw(SMALL), right=draw(SMALL))
    if kind == "session":
        return Reach(kind, gap=draw(st.integers(0, 4)))
    size = draw(st.integers(1, 8))
    advance = draw(st.integers(1, size)) if kind == "hopping" else size
    return Reach(kind, size=size, advance=advance, offset=draw(st.integers(-2, 9)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    reach, by_time, grace = draw(reaches()), draw(st.booleans()), draw(SMALL)
    windows = reach.size + (reach.size - 1) // reach.advance * reach.advance
    least = {"sliding": reach.left + reach.right, "session": 2 * reach.gap}.get(reach.kind, windows) + grace
    retention = least + draw(st.sampled_from([0, 1, 5, 50])) if by_time else KEPT
    grace_on_axis = grace if by_time else 0
    unbounded = draw(st.sampled_from([None, None, "left", "right"])) if reach.kind == "sliding" else None
    fields = dict(reach.__dict__)
    if unbounded is not None:
        other = reach.right if unbounded == "left" else reach.left
        free = retention - grace_on_axis - other
        fields[unbounded] = free if by_time else free - 2
    fields["span"] = retention - grace_on_axis - reach.gap
    idle = draw(st.sampled_from([5, 10**9]))
    bounded = by_time and unbounded is None and reach.kind != "session"
    # Cells are as long as that then, whatever a 64th of the retention is.
    most = draw(st.sampled_from([None, 1, 2, 5])) if bounded and least else None
    return Case(
        Reach(**fields), by_time, grace, retention, idle, draw(POLICIES), draw(POLICIES), unbounded, most, least
    )


KEYS = st.sampled_from(["a", "a", "b", "é", None])
MESSAGES = st.lists(
    st.builds(Given, st.sampled_from(["left", "right"]), KEYS, st.integers(0, 40), st.sampled_from([0, 0, 0, 2])),
    max_size=7,
)
BATCHES = st.lists(st.tuples(MESSAGES, st.integers(0, 6), st.booleans()), min_size=1, max_size=6)
"""Messages; how much later by the clock than the batch before; whether all disks are lost after the batch."""


def row(one: Given, number: int) -> dict[str, Any]:
    fields = {"id": one.key, "v": number} if one.side == "left" else {"k": one.key, "w": f"w{number}"}
    return {**fields, "time_us": one.time * UNIT, "partition": one.partition}


def played(join: JoinHarness, batch: list[Given], clock: int) -> JoinOutput:
    # The model numbers messages as they come; partitions of a side are apart, so that their order says nothing.
    left, right = ([row(one, i) for i, one in enumerate(batch) if one.side == side] for side in ("left", "right"))
    return join.process(left, right, clock)


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
