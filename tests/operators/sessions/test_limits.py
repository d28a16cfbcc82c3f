"""Boundaries of gaps of events' own, of cells and of quarantine (docs/rules.md, rules 160 to 162)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake import SessionWindows
from sessionlake.columnar.records import Records
from sessionlake.config.times import format_time
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions.quarantine import above, crossing
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.operators.sessions.thresholds import Quarantine, parse_rate, rate_sql
from sessionlake.operators.sessions.windows import Earlier
from sessionlake.testing import SessionizerHarness

CUT = 100
MINUTE = 60_000_000


@contextmanager
def opened(windows: SessionWindows, **kwargs: Any) -> Iterator[SessionizerHarness]:
    harness = SessionizerHarness(windows, {}, schema={"g": "long"}, **kwargs)
    try:
        yield harness
    finally:
        harness.close()


def cells() -> SessionWindows:
    return SessionWindows(10, 20, 60, max_length_us=CUT)


def own() -> SessionWindows:
    return SessionWindows(10, 30, 70, max_gap_us=40, gap_by="g * interval 1 microsecond")


def event(time: int, gap: int | None = None, key: str = "a") -> dict[str, Any]:
    return {"key": key, "time_us": time, "g": gap}


def spans(harness: SessionizerHarness) -> list[tuple[int, int]]:
    return [(row["start_us"], row["end_us"]) for row in harness.sessions()]


def test_what_late_sessions_are_open_until_lies_before_is_the_watermark_less_grace() -> None:
    """Of sessions that end a gap before they close it is their ends that are told of."""
    closes = [windows.bounds(1000).close_us for windows in (SessionWindows(10, 20), cells(), own())]
    assert closes == [1000 - 20 - 10, 1000 - 20, 1000 - 30]


def test_an_event_exactly_at_the_cut_begins_a_session() -> None:
    with opened(cells()) as harness:
        harness.process([event(95), event(CUT)])
        assert spans(harness) == [(95, 95), (CUT, CUT)]


def test_an_event_one_us_before_the_cut_joins() -> None:
    with opened(cells()) as harness:
        harness.process([event(95), event(CUT - 1), event(CUT)])
        assert spans(harness) == [(95, CUT - 1), (CUT, CUT)]


@pytest.mark.parametrize("batches", [[[90, 95], [105]], [[105], [90], [95]], [[90], [105, 95]]])
def test_a_stored_session_is_not_joined_over_the_cut(batches: list[list[int]]) -> None:
    with opened(cells()) as harness:
        for times in batches:
            harness.process([event(time) for time in times])
        assert spans(harness) == [(90, 95), (105, 105)]


def test_cells_begin_at_the_offset_and_before_1970() -> None:
    with opened(SessionWindows(10, 0, 1000, max_length_us=CUT, offset_us=30)) as harness:
        harness.process([event(time) for time in (-75, -70, -69, 28, 30)])
        assert spans(harness) == [(-75, -75), (-70, -69), (28, 28), (30, 30)]


@pytest.mark.parametrize(("watermark", "late"), [(CUT + 20 - 1, 0), (CUT + 20, 1)])
def test_a_cut_session_closes_with_its_cell(watermark: int, late: int) -> None:
    with opened(cells()) as harness:
        harness.process([event(watermark, key="z")])
        assert harness.process([event(CUT - 1)]).counts["late"] == late


def test_a_restate_that_crosses_a_cut_is_refused() -> None:
    with opened(cells()) as harness:
        out = harness.process(
            [
                {"kind": "restate", "key": "a", "start_us": 90, "end_us": CUT},
                {"kind": "restate", "key": "b", "start_us": 90, "end_us": CUT - 1},
                {"kind": "replace", "key": "c", "put": [{"start_us": 99, "end_us": 101}]},
            ]
        )
        assert [(row["key"], row["reason"]) for row in out.dead] == [(key, "crosses a cut") for key in "ac"]
        assert (out.counts["malformed"], out.counts["applied"], len(harness.sessions())) == (2, 1, 1)


@pytest.mark.parametrize(
    "batches", [[[50, 54, 99], [CUT, 110]], [[110, CUT, 99, 54, 50]], [[54], [99], [110], [50], [CUT]]]
)
def test_an_event_before_the_time_has_the_earlier_gap(batches: list[list[int]]) -> None:
    """It is 3 before the time, and 10 from it on."""
    with opened(SessionWindows(10, 200, 1000, before=(Earlier(CUT, 3),))) as harness:
        for times in batches:
            harness.process([event(time) for time in times])
        assert spans(harness) == [(50, 50), (54, 54), (99, 99), (CUT, 110)]


@pytest.mark.parametrize(("gap", "next_", "joined"), [(25, 25, True), (25, 26, False), (None, 10, True), (None, 11, False), (3, 4, False), (40, 40, True)])  # fmt: skip
def test_exactly_the_events_own_gap_joins(gap: int | None, next_: int, joined: bool) -> None:  # noqa: FBT001
    for rows in (
        [[event(0, gap)], [event(next_, 1)]],
        [[event(0, gap), event(next_, 1)]],
        [[event(next_, 1)], [event(0, gap)]],
    ):
        with opened(own()) as harness:
            for batch in rows:
                harness.process(batch)
            assert len(harness.sessions()) == (1 if joined else 2)


@pytest.mark.parametrize(("gap", "dead"), [(40, 0), (41, 1), (1, 0), (0, 1), (-1, 1)])
def test_a_gap_exactly_max_gap_is_taken_and_one_us_more_is_a_dead_letter(gap: int, dead: int) -> None:
    with opened(own()) as harness:
        out = harness.process([event(0, gap), event(5)])
        assert [row["reason"] for row in out.dead] == ["gap out of range"] * dead
        assert out.counts["accepted"] == 2 - dead


def test_an_earlier_event_keeps_a_session_open_beyond_its_end() -> None:
    with opened(own()) as harness:
        harness.process([event(0, 40)])
        harness.process([event(20, 1)])
        assert [row["open_until_us"] for row in harness.sessions()] == [40]
        harness.process([event(40, 1)])
        assert spans(harness) == [(0, 40)]


def test_a_session_is_warm_as_long_as_it_is_open_in_retention() -> None:
    with opened(own()) as harness:
        harness.process([event(0, 40), event(0, 1, key="b")])
        harness.process([event(110, key="z")])
        assert [row["key"] for row in harness.sessions()] == ["a", "z"]
        harness.process([event(111, key="z")])
        assert [row["key"] for row in harness.sessions()] == ["z"]


def test_a_put_without_open_until_is_open_for_the_gap() -> None:
    with opened(own()) as harness:
        put = [{"start_us": 0, "end_us": 5}, {"start_us": 50, "end_us": 55, "open_until_us": 90}]
        harness.process([{"kind": "replace", "key": "a", "put": put}])
        assert [row["open_until_us"] for row in harness.sessions()] == [15, 90]


def test_exactly_max_events_is_not_in_quarantine_and_crossing_is_counted_once() -> None:
    with opened(SessionWindows(10), quarantine=Quarantine(max_events=2)) as harness:
        counted = [harness.process([event(time)]).counts["quarantined"] for time in (0, 1, 2, 3)]
        assert counted == [0, 0, 1, 0]


def test_a_session_that_is_merged_of_one_in_quarantine_does_not_cross() -> None:
    with opened(SessionWindows(10, 0, 1000), quarantine=Quarantine(max_events=2)) as harness:
        first = harness.process([event(20), event(21), event(22), event(0), event(40, key="b")])
        assert first.counts["quarantined"] == 1
        assert harness.process([event(10)]).counts["quarantined"] == 0


Session = tuple[int, int, int, int]
"""The number of a key, start, end, events."""


@pytest.mark.parametrize(
    ("changed", "before", "crosses"),
    [
        ((0, 0, 9, 3), (0, 0, 5, 3), 0),
        ((0, 0, 9, 3), (0, 9, 9, 3), 0),
        ((0, 0, 9, 3), (0, 9, 9, 2), 1),
        ((0, 0, 8, 3), (0, 9, 9, 3), 1),
        ((0, 9, 9, 3), (0, 0, 8, 3), 1),
        ((0, 0, 9, 3), (1, 5, 5, 3), 1),
        ((1, 0, 9, 3), (0, 5, 5, 3), 1),
    ],
)
def test_only_a_session_that_holds_one_in_quarantine_does_not_cross(
    changed: Session, before: Session, crosses: int
) -> None:
    def records(row: Session) -> Records:
        columns = (np.array([value]) for value in (*row, 0))
        return Records(*columns, pa.nulls(1, pa.binary()))

    assert crossing(Quarantine(max_events=2), records(changed), records(before)) == crosses


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 3000), st.integers(0, 10**9), st.sampled_from([0, 1, MINUTE, MINUTE + 1, 2 * MINUTE])),
        min_size=1,
        max_size=20,
    ),
    events=st.none() | st.integers(1, 3000),
    rate=st.none() | st.sampled_from(["600 per minute", "1 per second", "3000 per hour"]),
    length=st.none() | st.sampled_from([0, 1, MINUTE]),
)
def test_the_rule_of_batches_is_the_views(
    rows: list[tuple[int, int, int]], events: int | None, rate: str | None, length: int | None
) -> None:
    limits = Quarantine(events, None if rate is None else parse_rate(rate), length)
    if limits == Quarantine():
        return
    count, start, long = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), np.int64)
    found = above(limits, Records(none, start, start + long, count, none, pa.nulls(len(rows), pa.binary())))
    table = pa.table({"event_count": count, "session_start": start, "session_end": start + long})
    sql = f"select {limits.rule_sql('{}')} is not null, {rate_sql('{}')} from rows"
    assert [row[0] for row in duckdb.connect().register("rows", table).sql(sql).fetchall()] == found.tolist()


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        ({"max_gap_us": 9}, "session.max_gap: '9us' is shorter than the gap; write '10 microseconds' or more"),
        ({"max_length_us": 9}, "session.max_length: '9us' is shorter than gap; write '10 microseconds' or more"),
        ({"max_gap_us": 20, "max_length_us": 19}, "session.max_length: '19us' is shorter than max_gap; write '20 microseconds' or more"),
        ({"max_gap_us": 20, "retention_us": 19}, "session.retention: '19us' is shorter than max_gap + grace = '20us'; write at least '20 microseconds'"),
    ],
)  # fmt: skip
def test_windows_that_do_not_go_together_are_refused(kwargs: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SessionWindows(10, **kwargs)
    assert str(raised.value) == told


@given(
    ends=st.lists(st.integers(-(10**6), 10**6) | st.integers(-1200, 1200), min_size=1, max_size=30),
    gap=st.integers(1, 50),
    longer=st.none() | st.integers(0, 100),
    offset=st.integers(0, 49),
    before=st.lists(
        st.tuples(st.integers(-1000, 1000), st.integers(1, 90), st.none() | st.integers(90, 200)),
        max_size=3,
        unique_by=lambda limits: limits[0],
    ),
)
def test_when_a_row_closes_is_the_same_in_sql(
    ends: list[int], gap: int, longer: int | None, offset: int, before: list[tuple[int, int, int | None]]
) -> None:
    limits = (
        {}
        if longer is None
        else {"max_length": f"{gap + longer} us", "max_length_offset": f"{offset % (gap + longer)} us"}
    )
    earlier = [
        {"until": format_time(until), "gap": f"{gap} us", **({} if length is None else {"max_length": f"{length} us"})}
        for until, gap, length in sorted(before)
    ]
    section = SessionSection(gap=f"{gap} us", before=earlier, **limits)
    windows = SessionWindows(
        gap,
        max_length_us=section.max_length_us,
        offset_us=section.offset_us,
        before=tuple(Earlier(*limits) for limits in sorted(before)),
    )
    until = windows.open_until(np.array(ends, np.int64))
    rows = duckdb.connect().register("rows", pa.table({"session_end": ends}))
    found = [row[0] for row in rows.sql(f"select {section.closing_sql('{}', 'session_end')} from rows").fetchall()]
    assert found == (until - section.base_us).tolist()


def test_without_a_grace_sessions_change_as_long_as_they_are_kept() -> None:
    """KIP-94; rule 269. The order of the calls does not matter."""
    kept = SessionWindows.with_gap("5 us").until("60 us")
    assert (kept.grace_us, SessionWindows.with_gap("5 us").grace_us) == (55, 0)
    assert kept.until("70 us").grace_us == 65
    assert kept.by("interval 1 microsecond", "20 us").grace_us == 40
    assert kept.max_length("1 minute").until("80 us").grace_us == 75
    written = SessionWindows.with_gap("5 us").grace("0 us").until("60 us")
    assert (kept.skew_us, written.skew_us) == (5, 0), "one early event must not make events of now late"
    assert written.grace_us == written.until("70 us").grace_us == kept.grace("0 us").grace_us == 0
    with opened(kept) as harness:
        harness.process([{"key": "b", "time_us": 150}])
        late = [harness.process([{"key": "a", "time_us": at}]).counts["accepted"] for at in (90, 89)]
    assert late == [1, 0]
