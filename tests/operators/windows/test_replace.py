"""Replaced slices: whatever was wrong in the state, windows are in the end what all accepted events make of them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.control import WINDOW
from sessionlake.operators.windows.definition import HoppingWindows, SlidingWindows, TumblingWindows
from sessionlake.testing.windows import WindowHarness
from tests.operators.windows.damage import ROUNDS, Row, Slices, computed, contents, damage, on_grid, replacement
from tests.operators.windows.harnesses import given_rows, harness
from tests.operators.windows.streams import Batch, models, streams
from tests.oracle.windows import Event, WindowModel
from tests.support import examples


def replacements(stored: Slices, right: Slices) -> list[dict[str, Any]]:
    """Return what makes all slices the right ones, those that are so already too."""
    names = sorted({*stored, *right})
    new = [(right[at]["count"], right[at]["state"]) if at in right else None for at in names]
    return [replacement(i, *at, stored.get(at), put) for i, (at, put) in enumerate(zip(names, new, strict=True))]


@given(models(), streams(), st.integers(0, 11), ROUNDS, st.integers(0, 3), st.integers(1, 3), st.integers(0, 1))
@examples(15)
def test_damage_is_mended_at_any_time_whatever_is_sent_when(
    model: WindowModel, batches: list[Batch], at: int, how: list[tuple[str, int]], wait: int, shards: int, lost: int
) -> None:
    """One run is damaged, and mended some batches later by what another run has at that time."""
    # What `computed` tells knows no retention, neither by time nor by number.
    model = replace(model, retention=10**6, keep=None)
    step = 1 if model.kind == "sliding" else model.size if model.kind == "tumbling" else model.advance
    step = max(step, 1)
    accepted: list[Event] = []
    partly = 0
    last = max((time for batch in batches for _, time, _ in batch.events), default=0)
    with harness(model, shards) as run, harness(model, shards) as clean:
        for number, batch in enumerate(batches):
            for one in (run, clean):
                output = one.process(given_rows(batch.events), batch.clock)
            refused = [(row["key"], row["time_us"], row["v"]) for row in (*output.late, *output.dead)]
            accepted += [event for event in batch.events if event not in refused]
            partly += len(output.partly_late)
            if number == at % len(batches):
                wrong = [row for row in damage(run.slices(), how, step) if on_grid(model, row)]
                assert run.correct(wrong, batch.clock).counts.get("stale", 0) == 0
                clean.correct([], batch.clock)
                if lost:
                    run.lose_stores()
            if number == min(at % len(batches) + wait, len(batches) - 1):
                right = replacements(run.slices(), clean.slices())
                assert run.correct(right, batch.clock).counts.get("applied", 0) == len(right)
                clean.correct([], batch.clock)
        for one in (run, clean):
            one.advance(last + 2 * model.length + model.grace + 1, batches[-1].clock)
        plain = ("count", "state")
        assert states(run, plain) == states(clean, plain)
        if not partly:
            assert contents(run) == contents(clean)
        if lost:
            run.lose_stores()
        run.correct(replacements(run.slices(), run.slices()), batches[-1].clock)
        assert contents(run) == computed(model, accepted)


@pytest.mark.slow
@given(models(), streams(), st.integers(0, 11), ROUNDS, st.integers(0, 3), st.integers(1, 3), st.integers(0, 1))
@examples(400)
def test_damage_of_many_streams_is_mended(
    model: WindowModel, batches: list[Batch], at: int, how: list[tuple[str, int]], wait: int, shards: int, lost: int
) -> None:
    told = (model, batches, at, how, wait, shards, lost)
    test_damage_is_mended_at_any_time_whatever_is_sent_when.hypothesis.inner_test(*told)


def states(run: WindowHarness, names: tuple[str, ...]) -> dict[tuple[str, int], Row]:
    return {at: tuple(row[name] for name in names) for at, row in run.slices().items()}


WINDOWS = {
    "tumbling": TumblingWindows.of("4 us"),
    "hopping": HoppingWindows.of("4 us", "2 us"),
    "sliding": SlidingWindows.of("4 us"),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_replacement_is_stale_where_the_slice_is_another_since(kind: str) -> None:
    with WindowHarness(WINDOWS[kind].grace("4 us").until("40 us"), {"total": "sum(v)"}) as run:
        run.process(given_rows([("a", 0, 1), ("b", 0, 2), ("c", 30, 3)]))
        run.process(given_rows([("a", 30, 9)]))
        stored, sent = run.slices(), contents(run)
        put = (5, stored["b", 0]["state"])
        old = {"revision": 0}
        rows = [
            replacement(0, "a", 0, old, put, revision=0),
            replacement(1, "a", 30 if kind == "sliding" else 28 + 2 * (kind == "hopping"), old, put, revision=0),
            replacement(2, "a", 0, None, None, put=[], remove=[{"start_time": 8, "revision": WINDOW}], revision=9),
            replacement(3, "d", 0, old, put),
            replacement(4, "a", 0, old, put),
        ]
        output = run.correct(rows)
        assert sorted((row["reason"], row["correction_id"]) for row in output.dead) == []
        # 1 changed since; 2 names what the first has; 3 was there for its writer; 4 names what the first has, too.
        assert (output.counts["applied"], output.counts["stale"]) == (1, 4)
        assert [row for row in contents(run) if row[0] != "a"] == [row for row in sent if row[0] != "a"]
        assert run.slices()["a", 0]["count"] == 5


@pytest.mark.parametrize("late", ["batch", "close"])
def test_a_window_that_is_one_slice_is_replaced_when_the_store_has_it_no_more(late: str) -> None:
    """By its row in the tables; one that shares slices is refused."""
    emit = EmitSection(early="batch" if late == "batch" else "off", late=late)
    with WindowHarness(TumblingWindows.of("4 us").grace("4 us").until("8 us"), {"total": "sum(v)"}, emit=emit) as run:
        run.process(given_rows([("a", 0, 1), ("b", 0, 2), ("c", 900, 3)]))
        run.process(given_rows([("c", 950, 3)]))
        seven = (7, run.slices()["b", 0]["state"])
        old = {"revision": 0}
        rows = [
            replacement(0, "a", 0, old, seven),
            replacement(1, "b", 0, old, None),
            replacement(2, "d", 4, None, seven),
        ]
        rows.append(replacement(3, "e", 0, old, seven))
        output = run.correct(rows)
        assert (output.counts["applied"], output.counts["stale"]) == (3, 1)
        assert [row[:2] + row[3:] for row in contents(run) if row[0] != "c"] == [("a", 0, 7, 2), ("d", 4, 7, 2)]
        run.lose_stores()
        assert run.correct([replacement(0, "a", 0, old, seven, revision=0)]).counts["stale"] == 1
    with WindowHarness(HoppingWindows.of("4 us", "2 us").grace("4 us").until("8 us"), {"total": "sum(v)"}) as run:
        run.process(given_rows([("a", 0, 1), ("c", 900, 3)]))
        run.process(given_rows([("c", 950, 3)]))
        output = run.correct([replacement(0, "a", 0, old, (1, seven[1]))])
        assert (output.counts["expired"], output.counts.get("stale", 0)) == (1, 0)
