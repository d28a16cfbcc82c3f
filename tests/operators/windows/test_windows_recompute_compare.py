"""Slices and windows of a bucket compared with what events say: applied, the differences make all right, and nothing is left."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.aggregates.partials import lift
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.windows.mapper import PARTS
from sessionlake.operators.windows.recompute_compare import SENT, SliceScope, compare_slices
from sessionlake.stream.comparison import Difference
from sessionlake.stream.recompute import LATE, REMOVED, STORED
from sessionlake.testing.windows import WindowHarness
from tests.operators.windows.damage import ROUNDS, Row, computed, contents, damage, on_grid
from tests.operators.windows.harnesses import definition, given_rows, harness
from tests.operators.windows.streams import Batch, models, streams
from tests.oracle.windows import Event, WindowModel
from tests.support import examples

AGGREGATES = build_aggregates({"total": "sum(v)"}, {"v": pa.int64()}, with_id=False)
EVER = 10**7
Of = tuple[int, Event]
"""An event and its batch."""


def parts(model: WindowModel, events: Sequence[Of]) -> pa.Table:
    keys, times, values = (
        (list(column) for column in zip(*(event for _, event in events), strict=True)) if events else ([],) * 3
    )
    found = lift(
        AGGREGATES, Events(pa.array(keys, pa.string()), np.array(times, np.int64), {"v": pa.array(values, pa.int64())})
    )
    start = definition(model).windows.slices_of(found.start)
    return replace(found, start=start, revision=np.array([batch for batch, _ in events], np.int64)).to_table()


def table(schema: dict[str, pa.DataType], rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema, row, strict=True)) for row in rows], schema=pa.schema(schema.items()))


def compared(
    run: WindowHarness, model: WindowModel, accepted: Sequence[Of], late: Sequence[Of], *, low: int = -EVER, high: int = EVER,
    removed: Sequence[tuple[str, int, int]] = (), forgotten: dict[str, int] | None = None,
) -> Difference:  # fmt: skip
    """Compare what is stored and sent with events, late ones among them."""
    long, name = pa.int64(), {"key": pa.string()}
    stored = [(k, s, s, row["count"], row["revision"], row["state"]) for (k, s), row in run.slices().items()]
    sent = [(row["window_key"], row["window_start"], row["event_count"], row["total"]) for row in run.windows()]
    length = definition(model).windows.slice_us - 1
    stored = [(k, s, s + length, n, r, state) for k, s, _, n, r, state in stored]
    fields = {"start_us": long, "end_us": long, "event_count": long, "revision": long, "state": pa.binary()}
    lates = parts(model, late)
    inputs = {
        PARTS: parts(model, accepted),
        LATE: lates.append_column("included", pa.array([True] * len(lates), pa.bool_())),
        STORED: table(name | fields, stored),
        SENT: table(name | {"start_us": long, "event_count": long, "v0": long}, sent),
        REMOVED: table(name | {"start_us": long, "batch_id": long}, removed),
    }
    updates = model.kind == "tumbling" and model.early == model.late == "batch"
    close = Progress.of(run._state).close_us
    scope = SliceScope(definition(model).windows, low, high, close, 10**6, updates, forgotten or {})
    return compare_slices(AGGREGATES, scope, {kind: rows for kind, rows in inputs.items() if len(rows)})


def apply(run: WindowHarness, found: Difference) -> dict[str, int]:
    rows = found.corrections.drop_columns(["group_start"]).to_pylist()
    given = [{**row, "correction_id": f"{i:05d}", "kind": "replace"} for i, row in enumerate(rows)]
    return run.correct(given).counts


def played(run: WindowHarness, batches: list[Batch]) -> tuple[list[Of], list[Of]]:
    """Return the accepted and the late events with their batches."""
    found: tuple[list[Of], list[Of]] = [], []
    for number, batch in enumerate(batches):
        output = run.process(given_rows(batch.events), batch.clock)
        late = [(row["key"], row["time_us"], row["v"]) for row in output.late]
        left = list(late)
        for event in batch.events:
            found[event in left].append((number, event))
            if event in left:
                left.remove(event)
    return found


@given(models(), streams(), ROUNDS, st.integers(0, 3), st.integers(-30, 30), st.integers(1, 60))
@examples(40)
def test_what_differs_is_made_right_and_nothing_else(
    model: WindowModel, batches: list[Batch], how: list[tuple[str, int]], rows: int, low: int, width: int
) -> None:
    """In a range first, then everywhere: slices, and the rows of closed windows that were changed or are gone."""
    # What `contents` is held against knows no retention, neither by time nor by number.
    model = replace(model, retention=10**6, keep=None)
    step = 1 if model.kind == "sliding" else model.advance
    last = max((time for batch in batches for _, time, _ in batch.events), default=0)
    with harness(model, 1) as run:
        accepted, late = played(run, batches)
        run.correct([row for row in damage(run.slices(), how, step) if on_grid(model, row)], batches[-1].clock)
        updates = model.kind == "tumbling" and model.early == model.late == "batch"
        closed = [at for at in sorted(run._tables.sent) if at[1] + model.length <= Progress.of(run._state).close_us]
        for number, at in enumerate(closed[: 0 if updates else rows]):
            run._tables.sent[at] = run._tables.sent[at] | {"total": 99}
            if number % 2:
                del run._tables.sent[at]
        before = run.slices()
        first = low + (model.offset - low) % step if model.kind != "sliding" else low
        apply(run, compared(run, model, accepted, late, low=first, high=first + width * step))
        outside = [at for at in before if not first <= at[1] < first + width * step]
        after = run.slices()
        assert all(
            (after[at]["count"], after[at]["state"]) == (before[at]["count"], before[at]["state"]) for at in outside
        )
        found = compared(run, model, accepted, late)
        assert apply(run, found).get("applied", 0) == found.stats["corrections"]
        left = compared(run, model, accepted, late)
        assert left.corrections.num_rows == 0
        assert left.stats["unchanged"] == left.stats["slices"] == len(run.slices())
        run.advance(last + 2 * model.length + model.grace + 1, batches[-1].clock)
        apply(run, compared(run, model, accepted, late))
        assert contents(run) == computed(model, [event for _, event in (*accepted, *late)])


def closed_run(kind: str) -> tuple[WindowModel, list[Of]]:
    model = WindowModel(kind=kind, size=4, advance=2, grace=4, retention=10**6, early="off", late="close")  # type: ignore[arg-type]
    return model, [(0, ("a", 0, 1)), (0, ("a", 5, 2)), (0, ("b", 1, 3)), (0, ("b", 40, 4))]


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "sliding"])
def test_what_a_tombstone_deleted_and_erased_keys_stay_away(kind: str) -> None:
    model, events = closed_run(kind)
    with harness(model, 1) as run:
        run.process(given_rows([event for _, event in events]))
        run.tick(1)
        until = 1 if kind == "tumbling" else 0
        gone = [row for row in run.windows() if row["window_key"] == "a" and row["window_start"] < until]
        assert gone
        assert run.tombstone(gone).counts["deletes"] == len(gone)
        removed = [("a", row["window_start"], 2) for row in gone]
        kept = contents(run)
        assert compared(run, model, events, [], removed=removed).corrections.num_rows == 0
        if kind != "tumbling":
            # A slice that they share with others is wrong: these are sent again, and they are not.
            at = next(at for at in run.slices() if at[0] == "a" and at[1] > -4)
            row = run.slices()[at]
            wrong = {"start_time": at[1], "end_time": at[1], "event_count": 9, "state": row["state"]}
            named = [{"start_time": at[1], "revision": row["revision"]}]
            named += [{"start_time": start, "revision": -1} for _, start, _ in removed]
            run.correct(
                [
                    {
                        "correction_id": "0",
                        "kind": "replace",
                        "key": "a",
                        "start_time": at[1],
                        "revision": 99,
                        "remove": named,
                        "put": [wrong],
                    }
                ]
            )
            assert len(contents(run)) == len(kept)
            assert contents(run) != kept or kind == "sliding"
            assert apply(run, compared(run, model, events, [], removed=removed))["applied"] > 0
            assert contents(run) == kept
        erased = {hashlib.sha256(b"b").hexdigest(): 0}
        found = compared(run, model, events, [], removed=removed, forgotten=erased)
        assert set(found.corrections["key"].to_pylist()) == {"b"}
        assert found.stats["withheld"] >= 2


def test_windows_of_which_no_row_is_left_are_sent_again() -> None:
    model, events = closed_run("hopping")
    with harness(model, 1) as run:
        run.process(given_rows([event for _, event in events]))
        run.tick(1)
        sent = contents(run)
        run._tables.sent.clear()
        found = compared(run, model, events, [])
        assert found.stats["sent_again"] == found.stats["corrections"] > 0
        apply(run, found)
        assert contents(run) == sent


@pytest.mark.parametrize(("low", "high", "named"), [(4, 8, [4]), (0, 4, [0]), (5, 8, []), (4, 9, [4, 8])])
def test_range_has_the_slice_at_its_begin_and_not_that_at_its_end(low: int, high: int, named: list[int]) -> None:
    model, _ = closed_run("tumbling")
    with harness(model, 1) as run:
        events = [(0, ("a", time, 1)) for time in (0, 4, 8)]
        run.process(given_rows([event for _, event in events]))
        twice = [(0, ("a", time, 2)) for time in (0, 4, 8)]
        found = compared(run, model, twice, [], low=low, high=high).corrections["start_time"].cast(pa.int64())
        assert found.to_pylist() == named


@pytest.mark.parametrize(("batch", "removed_by", "put"), [(1, [2], 0), (1, [2, 0], 0), (2, [2], 1), (3, [2], 1)])
def test_only_what_came_before_the_batch_of_a_tombstone_stays_out(batch: int, removed_by: list[int], put: int) -> None:
    model, _ = closed_run("tumbling")
    with harness(model, 1) as run:
        removed = [("a", 0, number) for number in removed_by]
        found = compared(run, model, [(batch, ("a", 1, 1))], [], removed=removed)
        assert (found.stats["put"], found.stats["withheld"]) == (put, 1 - put)
