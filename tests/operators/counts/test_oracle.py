"""Every batch's rows against a machine per window, and the last ones against SQL; any shards, chunks, and lost stores."""

from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.operators.counts.definition import (
    CountDefinition,
    CountSessions,
    CountWindows,
    SlidingCountWindows,
)
from sessionlake.stream.positions import PARTITION
from sessionlake.testing import EmitSection, WindowHarness
from tests.oracle.counts import Machine, Message, plain
from tests.support import examples

KEYS = ("a", "b", "c", "")
messages = st.tuples(st.sampled_from(KEYS[:3]), st.integers(0, 2), st.integers(0, 40), st.integers(-5, 5))


@dataclass(frozen=True)
class Step:
    rows: list[Message]
    passed: int
    """How far the clock goes on before it."""
    flush: bool
    lost: bool


steps = st.lists(
    st.builds(Step, st.lists(messages, max_size=12), st.integers(0, 7), st.booleans(), st.booleans()),
    min_size=1,
    max_size=8,
)


@dataclass(frozen=True)
class Kind:
    name: str
    size: int
    advance: int = 0
    offset: int = 0
    per_key: bool = True

    @property
    def definition(self) -> CountDefinition:
        if self.name == "session":
            return CountSessions.of(self.size)
        if self.name == "sliding":
            return SlidingCountWindows.of(self.size).per("key" if self.per_key else "partition")
        windows = CountWindows.of(self.size).advance(self.advance).offset(self.offset)
        return windows.per("key" if self.per_key else "partition")


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    name = draw(st.sampled_from(["grid", "grid", "sliding", "session"]))
    size = draw(st.integers(1, 6))
    if name == "session":
        return Kind(name, size - 1, per_key=False)
    per_key = draw(st.booleans())
    if name == "sliding":
        return Kind(name, size, per_key=per_key)
    return Kind(name, size, draw(st.integers(1, size)), draw(st.sampled_from([0, 0, 1, 4])), per_key)


def rows_of(rows: list[Message]) -> list[dict[str, Any]]:
    return [{"key": key, "partition": partition, "time_us": time, "v": value} for key, partition, time, value in rows]


@examples(60)
@given(
    kinds(),
    steps,
    st.sampled_from(["off", "batch", 5]),
    st.sampled_from([1, 20, 1000]),
    st.integers(1, 3),
    st.sampled_from([1, 3, 100]),
)
def test_every_batch_sends_what_a_machine_per_window_sends(
    kind: Kind, given_steps: list[Step], early: str | int, retention: int, shards: int, chunk_rows: int
) -> None:
    machine = Machine(
        kind.name,
        kind.size,
        kind.advance,
        kind.offset,
        per_key=kind.per_key,
        early=early,
        retention=retention,
    )
    windows = kind.definition.until(f"{retention} us")
    emit = EmitSection(early=f"{early} us" if isinstance(early, int) else early)
    clock = 0
    with WindowHarness(windows, {"s": "sum(v)"}, emit=emit, shards=shards, schema={"v": "long"}) as harness:
        for step in given_steps:
            clock += step.passed
            if step.lost:
                harness.lose_stores()
            if step.rows:
                out = harness.process(rows_of(step.rows), clock, chunk_rows=chunk_rows)
            else:
                out = harness.tick(clock, flush=step.flush)
            expected, refused = machine.batch(step.rows, clock, flush=step.flush and not step.rows)
            assert plain(out.changes) == expected
            assert len(out.dead) == refused
            assert out.counts.get("accepted", 0) + refused == len(step.rows)
            assert len({(row[0], row[1]) for row in expected}) == len(expected)


@pytest.mark.parametrize(
    "kind",
    [
        Kind("grid", 3, 3, 0, per_key=False),
        Kind("grid", 4, 2, 1, per_key=False),
        Kind("session", 2, per_key=False),
    ],
)
@pytest.mark.parametrize("loses", [False, True], ids=["stores are kept", "stores are restored, in parts"])
@pytest.mark.parametrize("early", ["off", "batch"])
def test_windows_get_full_with_the_messages_of_others(
    kind: Kind, early: Literal["off", "batch"], *, loses: bool
) -> None:
    """A message a batch: nothing but lists tells which keys' windows it fills. Early rows had most of them in their last form."""
    machine = Machine(kind.name, kind.size, kind.advance, kind.offset, per_key=False, early=early, retention=1000)
    emit = EmitSection(early=early)
    with WindowHarness(kind.definition.until("1000 us"), {"s": "sum(v)"}, emit=emit, schema={"v": "long"}) as harness:
        for number, key in enumerate("abcdabeacdbbeadcaebd"):
            rows: list[Message] = [(key, int(number % 5 == 4), number, number)]
            expected, _ = machine.batch(rows, number)
            if loses:
                harness.lose_stores()
            assert plain(harness.process(rows_of(rows), number).changes) == expected


@examples(30)
@given(kinds(), st.lists(st.lists(messages, min_size=1, max_size=20), min_size=1, max_size=5), st.integers(1, 3))
def test_the_last_row_of_each_window_is_what_sql_makes_of_all_messages(
    kind: Kind, batches: list[list[Message]], shards: int
) -> None:
    with WindowHarness(kind.definition, {"s": "sum(v)"}, emit=EmitSection(early="batch"), shards=shards) as harness:
        for rows in batches:
            harness.process(rows_of(rows))
        found = [(k, start, end, n, s) for k, start, end, n, s, _ in plain(harness.windows())]
    # Arrival: by batch, partition and place.
    order = [row for rows in batches for row in sorted(rows, key=lambda m: m[1])]
    frame = pd.DataFrame(order, columns=["key", "part", "time", "v"]).reset_index(names="place")
    with duckdb.connect() as database:
        database.register("given", frame)
        assert found == sorted(database.execute(sql_of(kind)).fetchall())


def sql_of(kind: Kind) -> str:
    """Return the query of all windows, over `given` (place, key, part, v)."""
    per_key = """
        select key, 0 as base, v, min(place) over (partition by key) + 1 as first,
               min(place) over (partition by key) + row_number() over (partition by key order by place) as x from given"""
    per_partition = f"""
        select key, part * {PARTITION} as base, v, 1 as first, row_number() over (partition by part order by place) as x
        from given"""
    numbered = per_key if kind.per_key else per_partition
    if kind.name == "sliding":
        frame = f"over (partition by key, base order by x range between {kind.size - 1} preceding and current row)"
        return f"""
            select key, base + x - {kind.size - 1}, base + x, count(*) {frame}, sum(v) {frame}
            from ({numbered})"""
    if kind.name == "session":
        new = f"coalesce(x - lag(x) over (partition by key, base order by x) > {kind.size + 1}, true)"
        return f"""
            select key, base + min(x), base + max(x), count(*), sum(v) from (
              select *, sum(new::int) over (partition by key, base order by x) as session from (
                select *, {new} as new from ({numbered})))
            group by key, base, session"""
    return f"""
        select key, base + start, base + start + {kind.size - 1}, count(*), sum(v) from (
          select *, unnest(generate_series(first + {kind.offset}, x, {kind.advance})) as start from ({numbered}))
        where x < start + {kind.size}
        group by key, base, start"""


MINUTE = 60_000_000


def at(hour: int, minute: int, second: int = 0) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1_000_000


def test_case_1_of_the_seed_by_count() -> None:
    given_rows = {
        at(9, 0): (0, at(8, 59, 10)),
        at(9, 0, 59): (5, at(9, 0, 1)),
        at(9, 2, 1): (9, at(8, 59, 30)),
    }
    windows = CountWindows.of(3).per("partition").keep(3)
    told = {}
    with WindowHarness(windows, {"hottest": "max(value)"}, emit=EmitSection(early="1 minute"), keyed=False) as harness:
        for clock in (at(9, 0), at(9, 0, 59), at(9, 1), at(9, 2), at(9, 2, 1), at(9, 2, 10)):
            rows = [{"value": given_rows[clock][0], "time_us": given_rows[clock][1]}] if clock in given_rows else []
            out = harness.process(rows, clock) if rows else harness.tick(clock)
            for row in out.changes:
                shown = (row["window_start"], row["window_end"], row["event_count"], row["hottest"], row["trigger"])
                told[clock] = shown
    assert told == {at(9, 1): (1, 3, 2, 5, "early"), at(9, 2, 1): (1, 3, 3, 9, "full")}


def test_a_key_that_comes_again_after_it_was_forgotten_uses_no_number_twice() -> None:
    windows = CountWindows.of(2).until("10 us")
    with WindowHarness(windows, {"s": "sum(v)"}) as harness:
        for time in (0, 1, 2):
            harness.process([{"key": "a", "time_us": time, "v": 1}])
        harness.process([{"key": "b", "time_us": 100, "v": 1}])
        out = harness.process([{"key": "a", "time_us": 100, "v": 1}, {"key": "a", "time_us": 100, "v": 1}])
        # Numbers 1 to 3 were used; its next message is the fifth that was accepted.
        assert [(row["window_start"], row["window_end"]) for row in out.changes] == [(5, 6)]


@pytest.mark.parametrize("shards", [1, 3])
def test_medians_of_windows(shards: int) -> None:
    windows = SlidingCountWindows.of(3)
    with WindowHarness(windows, {"m": "median(v)"}, shards=shards) as harness:
        out = harness.process([{"key": "a", "time_us": 0, "v": float(v)} for v in (5, 1, 9, 2)])
        assert [row["m"] for row in sorted(out.changes, key=lambda r: r["window_start"])] == [5.0, 3.0, 5.0, 2.0]
