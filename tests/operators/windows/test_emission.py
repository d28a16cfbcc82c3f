"""What windows send, batch by batch: equal to a machine per window that knows no slices, for all kinds and policies."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionlake.operators.shared.windowing.emission import Progress, next_progress
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.shared.windowing.policies import Policies
from sessionlake.operators.windows.definition import HoppingWindows, TumblingWindows
from sessionlake.store.lists import Listed
from sessionlake.store.slices import SliceStore
from sessionlake.testing.windows import WindowHarness, WindowOutput
from tests.operators.windows.harnesses import emit, events, given_rows, harness, rows
from tests.operators.windows.streams import FOREVER, POLICIES, Batch, at, models, streams
from tests.oracle.windows import Result, WindowModel
from tests.support import examples


def expected(model: WindowModel, result: Result) -> list[tuple[Any, ...]]:
    # Where every change goes out with its batch, nobody waits to learn how far the batch's other events are.
    updates = model.early == model.late == "batch"
    told = [r._replace(trigger="early") if updates and r.trigger == "full" else r for r in result.rows]
    return sorted(tuple(row) for row in told)


def outputs(run: WindowHarness, batches: list[Batch], lost: set[int]) -> Iterator[tuple[Batch, WindowOutput]]:
    """Play batches, losing all stores before some; close everything at the end."""
    for number, batch in enumerate(batches):
        if number in lost:
            run.lose_stores()
        yield batch, run.process(given_rows(batch.events), batch.clock)
    clock = batches[-1].clock
    yield Batch(clock, (), restate=False), run.advance(FOREVER, clock)


@given(models(), streams(), st.integers(1, 3), st.sets(st.integers(1, 11), max_size=2))
@examples(40)
def test_every_batch_sends_what_the_machines_send(
    model: WindowModel, batches: list[Batch], shards: int, lost: set[int]
) -> None:
    with harness(model, shards) as run:
        for number, (batch, output) in enumerate(outputs(run, batches, lost)):
            advance = FOREVER if number == len(batches) else None
            result = model.batch(batch.events, batch.clock, advance=advance)
            assert rows(output) == expected(model, result)
            assert events(output.late) == result.late
            assert events(output.partly_late) == result.partly_late
            assert events(output.dead) == result.dead
            assert output.counts.get("dropped", 0) == len(result.dropped)


@pytest.mark.slow
@given(models(), streams(), st.integers(1, 3), st.sets(st.integers(1, 11), max_size=2))
@examples(600)
def test_every_batch_of_many_streams(model: WindowModel, batches: list[Batch], shards: int, lost: set[int]) -> None:
    test_every_batch_sends_what_the_machines_send.hypothesis.inner_test(model, batches, shards, lost)


@given(models(), streams(), st.integers(1, 3), st.integers(0, 10))
@examples(40)
def test_restated_events_are_in_all_their_windows(
    model: WindowModel, batches: list[Batch], shards: int, at_batch: int
) -> None:
    """Late events are handed in again once, those that are still in retention; the model has the rest."""
    with harness(model, shards) as run:
        late: list[Any] = []
        for number, (batch, output) in enumerate(outputs(run, batches, set())):
            result = model.batch(batch.events, batch.clock, advance=FOREVER if number == len(batches) else None)
            late += result.late
            assert rows(output) == expected(model, result)
            if number == min(at_batch, len(batches) - 1):
                kept = [event for event in late if model.slice_start(event) >= model.expired]
                again = run.restate(given_rows(kept), batch.clock)
                told = model.batch([], batch.clock, restated=kept)
                assert rows(again) == expected(model, told)
                assert not again.dead


@given(models(), streams(), st.sampled_from(POLICIES), st.integers(1, 3), st.integers(1, 11))
@examples(20)
def test_a_change_of_policies_loses_no_change(
    model: WindowModel, batches: list[Batch], policies: tuple[Any, Any, Any], shards: int, changed: int
) -> None:
    """Whatever was waiting under the policies before, each window's last row is the one that the model has last."""
    updates = [(early, late) == ("batch", "batch") for early, _, late in ((model.early, "", model.late), policies)]
    assume(updates[0] == updates[1])
    last: dict[tuple[str, int], tuple[Any, ...]] = {}
    early, full, late = policies
    with harness(model, shards) as run:
        for number, batch in enumerate(batches):
            if number == changed:
                run.change_emit(emit(replace(model, early=early, full=full, late=late)))
            run.process(given_rows(batch.events), batch.clock)
        run.advance(FOREVER, batches[-1].clock)
        for number, batch in enumerate((*batches, Batch(batches[-1].clock, (), restate=False))):
            result = model.batch(batch.events, batch.clock, advance=FOREVER if number == len(batches) else None)
            last |= {row[:2]: row[:5] for row in result.rows}
        names = ("window_key", "window_start", "window_end", "event_count", "total")
        assert [tuple(row[name] for name in names) for row in run.windows()] == sorted(last.values())


@given(models(), streams(), st.sets(st.integers(0, 5)), st.integers(1, 3))
@examples(20)
def test_what_a_tombstone_has_deleted_stays_so_where_stores_are_restored(
    model: WindowModel, batches: list[Batch], which: set[int], shards: int
) -> None:
    """Events that are handed in later meet the same slices, and of windows that are one slice none that was deleted."""
    model, clock = replace(model, retention=10**6), batches[-1].clock
    told: list[list[tuple[Any, ...]]] = []
    newest = max((time for batch in batches for _, time, _ in batch.events), default=0)
    for some, lost in (({*which}, False), ({*which}, True), (set[int](), False)):
        with harness(model, shards) as run:
            for batch in batches:
                run.process(given_rows(batch.events), batch.clock)
            run.advance(newest + 2 * model.length + model.grace + 1, clock)
            sent = run.windows()
            deleted = [row for number, row in enumerate(sent) if number in some]
            output = run.tombstone(deleted, clock)
            assert output.counts.get("deletes", 0) == len(deleted)
            assert run.windows() == [row for row in sent if row not in deleted]
            if lost:
                run.lose_stores()
            again = run.restate(given_rows([(row["window_key"], row["window_start"], 1) for row in sent]), clock)
            told.append(rows(again))
            if model.kind == "tumbling":
                identities = [(row["window_key"], row["window_start"]) for row in deleted]
                assert all(row[3:5] == (1, 1) for row in rows(again) if row[:2] in identities)
    assert told[0] == told[1]
    # Slices that windows share stay.
    if model.kind == "sliding" or (model.kind == "hopping" and model.advance < model.size):
        assert told[0] == told[2]


def test_lists_are_read_where_a_window_ends_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], SliceStore.lists

    def lists(store: SliceStore, kind: str, low: int, high: int) -> Listed:
        reads.append((kind, low, high))
        return read(store, kind, low, high)

    monkeypatch.setattr(SliceStore, "lists", lists)
    windows = HoppingWindows.of("10 us", "5 us").until("100 us")
    with WindowHarness(windows, {"total": "sum(v)"}, emit=EmitSection(late="close")) as run:
        run.process(given_rows([("a", 1, 1)]))
        reads.clear()
        for time in (2, 3, 4):
            assert not run.process(given_rows([("a", time, 1)])).changes
        assert not reads
        assert len(run.process(given_rows([("b", 7, 1)])).changes) == 1
        assert reads == [("F", -5, 5), ("E", -5, 5)]


def test_a_restate_without_events_sends_the_closed_windows_with_its_slice() -> None:
    windows = HoppingWindows.of("4 us", "2 us").grace("4 us").until("20 us")
    with WindowHarness(windows, {"total": "sum(v)"}, emit=EmitSection(early="off", late="batch")) as run:
        run.process(given_rows([("a", 1, 1), ("a", 9, 2)]))
        output = run.process(
            given_rows([("a", 3, 4)])
        )  # in [0, 4), which is closed, and in [2, 6), which is open: 9 - 4 < 6
        assert output.late == []
        assert events(output.partly_late) == [("a", 3, 4)]
        assert [row["window_start"] for row in output.changes] == [2]
        again = run.restate([], again=given_rows([("a", 3, 4)]))
        assert [(row["window_start"], row["total"], row["trigger"]) for row in again.changes] == [(0, 5, "restate")]
        assert run.restate([], again=given_rows([("b", 3, 4)])).changes == []


def test_case_1_of_the_seed_by_time() -> None:
    windows = TumblingWindows.of("1 minute").grace("1 hour").until("1 day")
    emit = EmitSection(early="1 minute", late="10 seconds")
    lines = [
        ("9:00:00", [(at("8:59:10"), 0)], []),
        ("9:00:59", [(at("9:00:01"), 5)], [("8:59:00", 1, 0, "full")]),
        ("9:01:00", [], [("9:00:00", 1, 5, "early")]),
        ("9:02:00", [], []),
        ("9:02:01", [(at("8:59:30"), 9)], []),
        ("9:02:10", [], [("8:59:00", 2, 9, "late")]),
        ("9:02:11", [(at("9:02:11"), 1)], [("9:00:00", 1, 5, "full")]),
    ]
    with WindowHarness(windows, {"hottest": "max(celsius)"}, emit=emit, keyed=False, schema={"celsius": "long"}) as run:
        for clock, given_events, sent in lines:
            output = run.process([{"time_us": t, "celsius": v} for t, v in given_events], at(clock))
            found = [(r["window_start"], r["event_count"], r["hottest"], r["trigger"]) for r in output.changes]
            assert found == [(at(start), *rest) for start, *rest in sent]


def test_a_batch_in_which_no_shard_ran_forgets_neither_what_waits_nor_a_change_of_policies() -> None:
    before = Progress(clock_us=5, early_batch=2, unsent_early=3, unsent_late=1, emit=("off", "end", 10, 0))
    for policies in (Policies(), Policies("batch", "end", "batch")):
        assert next_progress(policies, 0, 0, before, {}) == before
