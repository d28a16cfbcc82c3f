"""The comparison alone, on random streams through the harness: what is right stays, what is wrong becomes what SQL says."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.aggregates.codec import StateCodec, states_equal
from sessionlake.aggregates.partials import lift, values_of
from sessionlake.jobs.backfill.events import at_batch
from sessionlake.operators.sessions.mapper import ALONE
from sessionlake.operators.sessions.recompute_compare import Scope, compare
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.recompute import LATE, REMOVED, RESTATE, STORED, Window
from sessionlake.testing import SessionizerHarness
from tests.oracle.sql import SqlOracle
from tests.support import examples

Row = dict[str, Any]
GAP = 10
WINDOWS = SessionWindows(GAP, 15, 60)
SPECS = {"total": "sum(v)", "least": "min(v)", "most": "max(v)"}
AGGREGATES = build_aggregates(SPECS, {"v": pa.int64()})
EVERYTHING = Window(-(1 << 60), 1 << 60)
SQL = SqlOracle()

event = st.fixed_dictionaries({"key": st.sampled_from("ab"), "time_us": st.integers(0, 160), "v": st.integers(-5, 5)})
batch = st.tuples(
    st.lists(event, max_size=6),
    st.lists(st.integers(0, 30), max_size=2),
    st.lists(st.tuples(event, st.integers(0, 8)), max_size=1),
)
streams = st.lists(batch, min_size=1, max_size=7)
ranges = st.tuples(st.integers(-5, 165), st.integers(1, 60)).map(lambda r: (r[0], r[0] + r[1]))


class Stream:
    """A random stream run by the harness, and what a backfill is given of it."""

    def __init__(self, batches: list[Any]) -> None:
        self.accepted: list[Row] = []
        self.late: list[Row] = []
        self.restated: list[Row] = []
        self.removed: list[Row] = []
        with SessionizerHarness(WINDOWS, SPECS, schema={"v": "long"}) as harness:
            self.live = harness._live
            for number, (events, tombstones, restates) in enumerate(batches):
                self._run(harness, number, events, tombstones, restates)

    def _run(self, harness: SessionizerHarness, number: int, events: Any, tombstones: Any, restates: Any) -> None:
        there = list(self.live.values())
        gone = [there[i] for i in sorted(set(tombstones)) if i < len(there)]
        rows: list[Row] = [dict(row) for row in events]
        rows += [{"kind": "tombstone", **{k: s[k] for k in ("key", "start_us", "revision")}} for s in gone]
        watermark = harness.watermark_us
        fresh = [r for r in restates if watermark is None or r[0]["time_us"] >= watermark - WINDOWS.kept_us]
        for row, length in fresh:
            partial = {"key": row["key"], "start_us": row["time_us"], "end_us": row["time_us"] + length}
            rows.append({"kind": "restate", "event_count": 2, "v": row["v"], **partial})
            self.restated.append({**partial, "event_count": 2, "v": row["v"], "batch_id": number})
        if not rows:
            rows = [{"key": "z", "time_us": 0, "v": 0}]
        out = harness.process(rows)
        assert not out.stale
        self.removed += [
            {"key": s["key"], "start_us": s["start_us"], "end_us": s["end_us"], "batch_id": number} for s in gone
        ]
        refused = [*out.late, *({k: v for k, v in row.items() if k != "reason"} for row in out.dead)]
        self.late += [{**row, "batch_id": number} for row in out.late]
        for row in (r for r in rows if "kind" not in r):
            if row in refused:
                refused.remove(row)
            else:
                self.accepted.append({**row, "batch_id": number})

    def inputs(self, *, included: tuple[int, int] = (0, 0), known_ends: bool = True) -> dict[str, pa.Table]:
        """Return a bucket's inputs; waiting late events within `included` are taken in."""
        tables = {
            ALONE: _partials([*self.accepted, *self.late]),
            LATE: _partials(self.late).append_column(
                "included", pa.array([_within(r, included) for r in self.late], pa.bool_())
            ),
            RESTATE: _partials(self.restated),
            REMOVED: pa.table(
                {
                    "key": pa.array([r["key"] for r in self.removed], pa.string()),
                    "start_us": pa.array([r["start_us"] for r in self.removed], pa.int64()),
                    "end_us": pa.array([r["end_us"] if known_ends else None for r in self.removed], pa.int64()),
                    "batch_id": pa.array([r["batch_id"] for r in self.removed], pa.int64()),
                }
            ),
            STORED: _stored(self.live.values()),
        }
        return {kind: table for kind, table in tables.items() if table.num_rows}

    def expected(self, included: tuple[int, int]) -> list[Row]:
        """Return the right sessions by SQL."""
        rows = [*self.accepted, *(row for row in self.late if _within(row, included))]
        events = [{**row, "start_us": row["time_us"], "end_us": row["time_us"], "event_count": 1} for row in rows]
        return SQL.sessionize_partials([*events, *self.restated], self.removed, GAP)


def _within(row: Row, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= row["time_us"] < bounds[1]


def _partials(rows: list[Row]) -> pa.Table:
    start = np.array([r.get("start_us", r.get("time_us")) for r in rows], np.int64)
    events = Events(
        pa.array([r["key"] for r in rows], pa.string()), start, {"v": pa.array([r["v"] for r in rows], pa.int64())}
    )
    table = at_batch(lift(AGGREGATES, events), np.array([r["batch_id"] for r in rows], np.int64)).to_table()
    for name, missing in (("end_us", None), ("event_count", 1)):
        column = [r.get(name, r.get("time_us") if missing is None else missing) for r in rows]
        table = table.set_column(table.column_names.index(name), name, pa.array(column, pa.int64()))
    return table


def _stored(rows: Any) -> pa.Table:
    names = ("key", "start_us", "end_us", "event_count", "revision", "state")
    types = (pa.string(), *[pa.int64()] * 4, pa.binary())
    return pa.table({n: pa.array([r[n] for r in rows], t) for n, t in zip(names, types, strict=True)})


def _scope(bounds: tuple[int, int], window: Window = EVERYTHING) -> Scope:
    return Scope(WINDOWS, *bounds, window)


def _applied(stored: pa.Table, corrections: pa.Table) -> list[Row]:
    """Return the sessions after the corrections, as rows of `_stored`."""
    live = {(r["key"], r["start_us"]): r for r in stored.to_pylist()}
    for row in corrections.to_pylist():
        key = row["key"]
        for gone in row["remove"]:
            assert live.pop((key, _us(gone["start_time"])))["revision"] == gone["revision"]
        for put in row["put"]:
            session = {
                "key": key,
                "start_us": _us(put["start_time"]),
                "end_us": _us(put["end_time"]),
                "revision": 99,
            }
            live[key, session["start_us"]] = {**session, **{n: put[n] for n in ("event_count", "state")}}
    return list(live.values())


def _us(time: Any) -> int:
    return int(pa.scalar(time, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())


def _readable(rows: list[Row]) -> list[Row]:
    states = StateCodec(AGGREGATES).decode(pa.array([r["state"] for r in rows], pa.binary()))
    values = [column.to_pylist() for column in values_of(AGGREGATES, states)]
    names = ("key", "start_us", "end_us", "event_count")
    found = [
        {**{n: r[n] for n in names}, **{name: values[i][at] for i, name in enumerate(SPECS)}}
        for at, r in enumerate(rows)
    ]
    return sorted(found, key=lambda r: (r["key"], r["start_us"]))


@examples(50)
@given(streams, ranges)
def test_right_sessions_stay_whatever_was_late_restated_or_removed(batches: list[Any], bounds: tuple[int, int]) -> None:
    stream = Stream(batches)
    found = compare(AGGREGATES, _scope(bounds), stream.inputs())
    assert found.corrections.num_rows == 0
    assert found.stats["sessions"] == found.stats["unchanged"]


@examples(50)
@given(
    streams,
    ranges,
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["lost", "count", "longer", "extra"])), max_size=3),
)
def test_wrong_sessions_and_waiting_late_events_become_what_sql_says(
    batches: list[Any], bounds: tuple[int, int], damage: list[tuple[int, str]]
) -> None:
    stream = Stream(batches)
    inputs = stream.inputs(included=bounds)
    inputs[STORED] = _stored(_damaged(list(stream.live.values()), damage))
    found = compare(AGGREGATES, _scope(bounds), inputs)
    inputs[STORED] = _stored(_applied(inputs[STORED], found.corrections))
    expected = [r for r in stream.expected(bounds) if r["end_us"] >= bounds[0] and r["start_us"] < bounds[1]]
    now = [r for r in _readable(inputs[STORED].to_pylist()) if r["end_us"] >= bounds[0] and r["start_us"] < bounds[1]]
    assert now == expected
    assert compare(AGGREGATES, _scope(bounds), inputs).corrections.num_rows == 0


def _damaged(live: list[Row], damage: list[tuple[int, str]]) -> list[Row]:
    rows = {i: dict(row) for i, row in enumerate(live)}
    for at, how in damage:
        row = rows.get(at)
        if row is None:
            continue
        if how == "lost":
            del rows[at]
        elif how == "count":
            row["event_count"] += 1
        elif how == "longer":
            row["end_us"] += 3
        else:
            rows[1000 + at] = {**row, "start_us": row["start_us"] - 1000, "end_us": row["start_us"] - 999}
    return list(rows.values())


@examples(40)
@given(streams, ranges)
def test_a_removed_session_stays_out_even_where_its_end_is_not_known(
    batches: list[Any], bounds: tuple[int, int]
) -> None:
    stream = Stream(batches)
    found = compare(AGGREGATES, _scope(bounds), stream.inputs(known_ends=False))
    now = _applied(_stored(stream.live.values()), found.corrections)
    right = {(r["key"], r["start_us"]): r["event_count"] for r in stream.expected((0, 0))}
    # Rather less than what was removed: no session holds more events than it should.
    assert sum(r["event_count"] for r in now) <= sum(right.values())


@examples(40)
@given(streams, ranges, st.integers(0, 40), st.integers(0, 40))
def test_a_window_without_open_edges_gives_what_all_times_give(
    batches: list[Any], bounds: tuple[int, int], before: int, after: int
) -> None:
    stream = Stream(batches)
    window = Window(bounds[0] - before, bounds[1] + after)
    inputs = stream.inputs(included=bounds)
    whole = compare(AGGREGATES, _scope(bounds), inputs)
    partly = dict(inputs)
    for kind in (ALONE, LATE, RESTATE, REMOVED):
        if kind in inputs:
            table = inputs[kind]
            ends = table["end_us"].to_numpy()
            partly[kind] = table.filter(pa.array(window.meets(table["start_us"].to_numpy(), ends)))
    if STORED in inputs:
        table, wide = inputs[STORED], Window(window.low - GAP, window.high + GAP)
        partly[STORED] = table.filter(pa.array(wide.meets(table["start_us"].to_numpy(), table["end_us"].to_numpy())))
    found = compare(AGGREGATES, _scope(bounds, window), partly)
    if not found.stats["open_low"] and not found.stats["open_high"]:
        assert found.corrections.sort_by("group_start").equals(whole.corrections.sort_by("group_start"))


def test_groups_are_as_small_as_they_can_be() -> None:
    stream = Stream([([{"key": "a", "time_us": t, "v": 1} for t in (0, 5, 40, 90)], [], [])])
    inputs = stream.inputs()
    inputs[STORED] = _stored(_damaged(list(stream.live.values()), [(0, "count"), (1, "longer")]))
    found = compare(AGGREGATES, _scope((0, 100)), inputs)
    assert [(len(r["remove"]), len(r["put"])) for r in found.corrections.to_pylist()] == [(1, 1), (1, 1)]
    assert found.stats["unchanged"] == 1


FLOATS = [
    ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], True),
    ([0.1, 0.2, 0.3], [0.3, 0.2, 0.2], False),
    ([float("nan")], [float("nan")], True),
]


@pytest.mark.parametrize(("left", "right", "same"), FLOATS)
def test_sums_of_floats_are_equal_within_tolerance(left: list[float], right: list[float], same: bool) -> None:  # noqa: FBT001
    aggregates = build_aggregates({"s": "sum(v)", "m": "avg(v)"}, {"v": pa.float64()})
    packed = []
    for values in (left, right):
        total = float(np.add.reduce(np.array(values)[::-1])) if values is left else sum(values)
        states = [pa.array([total]), pa.array([total]), pa.array([len(values)])]
        packed.append(StateCodec(aggregates).encode(states, 1))
    assert states_equal(aggregates, *packed).tolist() == [same]


def test_an_erased_key_stays_out_up_to_the_batch_that_erased_it() -> None:
    stream = Stream([([{"key": k, "time_us": t, "v": 1} for k in "ab"], [], []) for t in (0, 40, 80)])
    inputs = stream.inputs()
    inputs[STORED] = inputs[STORED].filter(
        pa.array([r["key"] == "b" or r["start_us"] == 80 for r in inputs[STORED].to_pylist()])
    )
    hashed = hashlib.sha256(b"a").hexdigest()
    assert compare(AGGREGATES, Scope(WINDOWS, 0, 100, EVERYTHING, {hashed: 1}), inputs).corrections.num_rows == 0
    assert compare(AGGREGATES, _scope((0, 100)), inputs).corrections.num_rows == 2
