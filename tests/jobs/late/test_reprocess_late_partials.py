"""How late events are merged, without Spark: any cut of the rows gives the same partials, and the same sessions."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.jobs.again.restate import _whole_cells
from sessionlake.jobs.late.spans import Span, widest
from sessionlake.operators.sessions.restate import merged_late
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.stream.capabilities import RESTATES_SCHEMA
from sessionlake.stream.ingest import EventSpec
from tests.oracle.sql import SqlOracle

GAP = 5
TYPES = {"key": pa.string(), "time": pa.int64(), "id": pa.string(), "v": pa.int64()}
AGGREGATES = build_aggregates({"total": "sum(v)", "latest": "last(v)"}, TYPES, with_id=True)
SPEC = SessionizerSpec(
    EventSpec(TableDecoder(EventColumns("key", "time", "us", "id", ("v",), TYPES), None)),
    AGGREGATES,
    SessionWindows(GAP, 0, 60),
)
ROWS = pa.schema(
    [
        ("key", pa.string()),
        ("time_us", pa.int64()),
        ("event_id", pa.string()),
        ("event", pa.struct([("v", pa.int64())])),
    ]
)
ORACLE = SqlOracle()

Event = tuple[str, int, int]
lists = st.lists(st.tuples(st.sampled_from("abü"), st.integers(-40, 40), st.integers(0, 9)), max_size=40)


def rows_of(events: Sequence[Event]) -> pa.RecordBatch:
    rows = [
        {"key": key, "time_us": time, "event_id": f"e{i}", "event": {"v": v}}
        for i, (key, time, v) in enumerate(sorted(events))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROWS)


TOGETHER = st.tuples(st.integers(-45, 45), st.integers(-45, 45) | st.just(1 << 40))
"""The times, both inclusive, whose events may travel together."""


def partials_of(rows: pa.RecordBatch, cuts: Sequence[int], together_us: tuple[int, int]) -> pa.Table:
    edges = [0, *sorted(c % (rows.num_rows + 1) for c in cuts), rows.num_rows]
    batches = [rows.slice(a, b - a) for a, b in pairwise(edges)]
    pieces = [merged_late(SPEC, together_us, piece) for piece in _whole_cells(batches, lambda time: time // GAP)]
    return pa.concat_tables([RESTATES_SCHEMA.empty_table(), *pieces])


def spans_of(partials: pa.Table) -> list[tuple[str, int, int]]:
    start, end = (partials[name].cast(pa.int64()).to_pylist() for name in ("start_time", "end_time"))
    return list(zip(partials["key"].to_pylist(), start, end, strict=True))


@given(lists, st.lists(st.integers(0, 100), max_size=5), TOGETHER)
def test_partials_do_not_depend_on_how_rows_arrive_in_batches(
    events: list[Event], cuts: list[int], together: tuple[int, int]
) -> None:
    rows = rows_of(events)
    whole, cut = (
        sorted(p.to_pylist(), key=repr) for p in (partials_of(rows, [], together), partials_of(rows, cuts, together))
    )
    assert cut == whole
    spans = spans_of(partials_of(rows, cuts, together))
    assert len({(key, start) for key, start, _ in spans}) == len(spans)


@given(lists, TOGETHER)
def test_no_partial_spans_a_gap_and_events_outside_of_a_time_travel_alone(
    events: list[Event], together: tuple[int, int]
) -> None:
    for _, start, end in spans_of(partials_of(rows_of(events), [], together)):
        assert end - start < GAP
        assert start == end or together[0] <= start < end <= together[1]


@given(lists, TOGETHER)
def test_partials_merge_into_the_sessions_of_their_events(events: list[Event], together: tuple[int, int]) -> None:
    partials = partials_of(rows_of(events), [], together)
    total, *_ = StateCodec(AGGREGATES).decode(partials["state"].combine_chunks())
    as_events = [{"key": k, "time_us": t, "v": float(v), "id": ""} for k, t, v in events]
    wanted = ORACLE.sessionize_events(as_events, GAP)
    columns = zip(spans_of(partials), partials["event_count"].to_pylist(), total.to_pylist(), strict=True)
    as_partials = [
        {"key": k, "start_us": a, "end_us": b, "event_count": n, "v": float(v), "batch_id": 0}
        for (k, a, b), n, v in columns
    ]
    names = ("key", "start_us", "end_us", "event_count", "total")
    found = ORACLE.sessionize_partials(as_partials, [], GAP)
    assert [[row[n] for n in names] for row in found] == [[row[n] for n in names] for row in wanted]


spans = st.builds(Span, st.integers(0, 4), st.integers(0, 6), st.integers(0, 6))


@given(st.lists(spans, max_size=12))
def test_the_widest_spans_hold_what_all_hold(given_spans: list[Span]) -> None:
    def held(some: list[Span]) -> set[tuple[int, int]]:
        points = [(b, t) for b in range(5) for t in range(7)]
        return {(b, t) for b, t in points for s in some if b <= s.batch_id and s.from_us <= t < s.to_us}

    assert held(widest(given_spans)) == held(given_spans)
    assert len(widest(given_spans * 2)) <= len(given_spans)


def test_a_key_whose_events_fill_many_batches_is_held_together() -> None:
    rows = rows_of([("a", 1, 1)] * 50 + [("b", 1, 1)])
    found = partials_of(rows, list(range(0, 50, 5)), (-100, 100))
    assert np.array_equal(found["event_count"].to_numpy(), [50, 1])
