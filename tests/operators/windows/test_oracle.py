"""The oracles of windows by time agree with one another, and with what the seed and Kafka Streams are known to give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.windows.streams import FOREVER, SECOND, Batch, at, models, streams
from tests.oracle.windows import Event, KafkaSliding, Result, WindowModel, final_windows, kafka_sliding
from tests.support import examples

ACCEPTED = pa.schema(
    [("batch", pa.int64()), ("key", pa.string()), ("time", pa.int64()), ("value", pa.int64()), ("close", pa.int64())]
)


def play(model: WindowModel, batches: list[Batch]) -> Iterator[tuple[Batch, tuple[Event, ...], Result]]:
    """Yield each batch with what it restated (all events late until then) and its result; close everything at the end."""
    waiting: tuple[Event, ...] = ()
    for batch in batches:
        restated = waiting if batch.restate else ()
        result = model.batch(batch.events, batch.clock, restated=restated)
        waiting = tuple(result.late) if batch.restate else (*waiting, *result.late)
        yield batch, restated, result
    last = Batch(batches[-1].clock, (), restate=False)
    yield last, (), model.batch((), last.clock, advance=FOREVER)


def accepted_table(results: list[Result]) -> pa.Table:
    rows = [
        {"batch": batch, "key": key, "time": time, "value": value, "close": result.close}
        for batch, result in enumerate(results)
        for key, time, value in result.accepted
    ]
    return pa.Table.from_pylist(rows, schema=ACCEPTED)


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@given(models(), streams())
@examples(100)
def test_last_rows_equal_duckdb(con: Any, model: WindowModel, batches: list[Batch]) -> None:
    results = [result for _, _, result in play(model, batches)]
    con.register("accepted", accepted_table(results))
    sent = {row[:2]: row[:5] for result in results for row in result.rows}
    expected = final_windows(con, model.kind, model.size, advance=model.advance, offset=model.offset, exits=model.exits)
    assert sorted(sent.values()) == expected


@given(models(), streams(restates=True))
@examples(100)
def test_every_event_is_accounted_for_once(model: WindowModel, batches: list[Batch]) -> None:
    for batch, restated, result in play(model, batches):
        assert sorted(result.accepted + result.late + result.dead + result.dropped) == sorted(batch.events)
        assert set(result.partly_late) <= set(result.accepted)
        assert not (result.dropped if model.beyond_retention == "dead_letter" else result.dead)
        assert set(result.expired) <= set(restated)


def content(model: WindowModel, taken: list[tuple[Event, int | None]], key: str, start: int) -> list[int]:
    """Return the values of a window by invariant (a), from all events so far with their closes."""
    end = start + model.length
    return sorted(
        value
        for (k, time, value), close in taken
        if k == key and start <= time < end and (close is None or end > close)
    )


@given(models(), streams())
@examples(100)
def test_a_window_goes_out_iff_it_has_unsent_changes_and_at_the_latest_by_its_closing(
    model: WindowModel, batches: list[Batch]
) -> None:
    taken: list[tuple[Event, int | None]] = []
    sent: dict[tuple[str, int], list[int]] = {}
    for _, _, result in play(model, batches):
        taken += [(event, result.close) for event in result.accepted]
        names = [row[:2] for row in result.rows]
        assert len(set(names)) == len(names)
        for row in result.rows:
            held = content(model, taken, row.key, row.start)
            assert (row.count, row.sum) == (len(held), sum(held))
            # A window only ever gains events, so that one without changes is one with the content it was sent with.
            assert row.trigger == "full" or sent.get(row[:2]) != held
            sent[row[:2]] = held
        for key, start in candidates(model, taken):
            if start + model.length <= model.close():
                assert sent.get((key, start)) == content(model, taken, key, start)


def grid_starts(model: WindowModel, time: int) -> set[int]:
    return {start for start in range(time - model.size + 1, time + 1) if (start - model.offset) % model.advance == 0}


def candidates(model: WindowModel, taken: list[tuple[Event, int | None]]) -> set[tuple[str, int]]:
    """Return the windows that must have been sent when closed: those that an event, or what it left, made while open."""
    found = set()
    for (key, time, _), close in taken:
        if model.kind == "sliding":
            starts = {time - model.size} | ({time + 1} if model.exits else set())
        else:
            starts = grid_starts(model, time)
        open_ones = {start for start in starts if close is None or start + model.length > close}
        found |= {(key, start) for start in open_ones if content(model, taken, key, start)}
    return found


@given(models(), streams(restates=True))
@examples(100)
def test_triggers_follow_the_frontier(model: WindowModel, batches: list[Batch]) -> None:
    seen: dict[tuple[str, int], list[str]] = {}
    for _, _, result in play(model, batches):
        for row in result.rows:
            seen.setdefault(row[:2], []).append(row.trigger)
    for triggers in seen.values():
        assert triggers == sorted(triggers, key=["early", "full", "late", "restate"].index)
        assert triggers.count("full") <= 1
        assert model.early != "off" or "early" not in triggers
        assert model.full != "close" or "late" not in triggers


@given(models(), streams(restates=True))
@examples(100)
def test_a_restated_event_sends_its_closed_windows_whole(model: WindowModel, batches: list[Batch]) -> None:
    model.keep = None  # The horizon that is told from the close below is one of time.
    taken: list[Event] = []
    for _, restated, result in play(model, batches):
        applied = [event for event in restated if event not in result.expired]
        taken += result.accepted + applied
        sent = {row[:2]: row for row in result.rows if row.trigger == "restate"}
        for row in sent.values():
            end = row.start + model.length
            held = [value for key, time, value in taken if key == row.key and row.start <= time < end]
            assert (row.count, row.sum) == (len(held), sum(held))
            # The window that an event leaves behind begins right after it.
            first = row.start - (model.kind == "sliding" and model.exits)
            assert any(key == row.key and first <= time < end for key, time, _ in applied)
        for key, time, _ in applied:
            starts = {time - model.size} if model.kind == "sliding" else grid_starts(model, time)
            horizon = result.close + model.grace - model.retention - model.length
            assert {(key, start) for start in starts if start >= horizon} <= set(sent)


def test_a_restate_counts_the_partly_late_that_wait() -> None:
    model = WindowModel("hopping", 10, advance=5, retention=100)
    model.batch([("a", 1, 1), ("a", 20, 2)], 0)
    # W = 20: [10, 20) is closed, at the bound itself, and [15, 25) is not.
    assert model.batch([("a", 16, 4)], 1).partly_late == [("a", 16, 4)]
    assert [entry.event for entry in model.windows["a", 10].waiting] == [("a", 16, 4)]
    assert model.batch([("a", 11, 8)], 2).late == [("a", 11, 8)]
    rows = model.batch([], 3, restated=[("a", 11, 8)]).rows
    assert rows == [("a", 5, 15, 1, 8, "restate"), ("a", 10, 20, 2, 12, "restate")]


def test_a_restated_event_makes_the_closed_window_that_it_leaves_behind() -> None:
    model = WindowModel("sliding", 5, retention=100)
    model.batch([("a", 10, 1), ("a", 40, 2)], 0)
    rows = model.batch([], 1, restated=[("a", 8, 4)]).rows
    assert rows == [("a", 3, 8, 1, 4, "restate"), ("a", 5, 10, 2, 5, "restate"), ("a", 9, 14, 1, 1, "restate")]
    assert model.batch([], 2, restated=[("a", 8, 8)]).rows == [
        ("a", 3, 8, 2, 12, "restate"),
        ("a", 5, 10, 3, 13, "restate"),
    ]


def test_a_restated_event_leaves_alone_the_window_behind_it_that_was_there_before() -> None:
    model = WindowModel("sliding", 5, retention=100)
    model.batch([("a", 14, 1), ("a", 40, 2)], 0)
    assert model.batch([], 1, restated=[("a", 8, 4)]).rows == [("a", 3, 8, 1, 4, "restate")]


def test_a_restate_does_not_send_windows_that_begin_below_the_horizon() -> None:
    model = WindowModel("hopping", 10, advance=5, retention=20)
    model.batch([("a", 12, 1), ("a", 17, 2), ("a", 50, 4)], 0)
    # The horizon is 50 - 20 - 10 = 20: what [15, 25) held of 17 is gone from the slices.
    result = model.batch([], 1, restated=[("a", 20, 8), ("a", 19, 16)])
    assert result.rows == [("a", 20, 30, 1, 8, "restate")]
    assert result.expired == [("a", 19, 16)]


def test_the_first_batch_has_no_tick_of_a_period() -> None:
    model = WindowModel("tumbling", 10, retention=100, early=5)
    assert [model.batch(events, clock).rows for events, clock in [([("a", 1, 1)], 104), ([], 104), ([], 105)]] == [
        [],
        [],
        [("a", 0, 10, 1, 1, "early")],
    ]


def test_a_window_is_sent_once_where_it_gets_full_and_closes_in_one_batch() -> None:
    model = WindowModel("tumbling", 10, retention=100, early="batch", late="batch")
    rows = model.batch([("a", 1, 1), ("a", 30, 2)], 0).rows
    assert rows == [("a", 0, 10, 1, 1, "full"), ("a", 30, 40, 1, 2, "early")]


def test_end_equal_frontier_is_full_and_end_equal_close_is_closed() -> None:
    model = WindowModel("tumbling", 10, grace=5, retention=100, late="close")
    assert model.batch([("a", 1, 1)], 0).rows == []
    assert model.batch([("b", 10, 1)], 1).rows == [("a", 0, 10, 1, 1, "full")]
    assert model.batch([("a", 2, 1), ("b", 15, 1)], 2).rows == [("a", 0, 10, 2, 2, "late")]
    assert model.batch([("a", 3, 1)], 3).late == [("a", 3, 1)]


def test_time_equal_retention_is_not_beyond_it_and_beyond_is_not_late() -> None:
    model = WindowModel("tumbling", 10, retention=20)
    model.batch([("a", 40, 1)], 0)
    result = model.batch([("a", 20, 1), ("a", 19, 1)], 1)
    assert (result.late, result.dead) == ([("a", 20, 1)], [("a", 19, 1)])


def test_full_at_close_does_not_go_with_update_mode() -> None:
    with pytest.raises(ValueError, match='full = "close"'):
        WindowModel("tumbling", 10, full="close", late="batch")


@given(models(), streams())
@examples(50)
def test_without_exits_sliding_windows_are_sql_frames(con: Any, model: WindowModel, batches: list[Batch]) -> None:
    times = [{"batch": 0, "key": k, "time": t, "value": v, "close": None} for b in batches for k, t, v in b.events]
    con.register("accepted", pa.Table.from_pylist(times, schema=ACCEPTED))
    frames = con.execute(
        'SELECT DISTINCT key, time - $size AS start, time AS "end", count(*) OVER w AS count, sum(value) OVER w AS sum '
        "FROM accepted WINDOW w AS (PARTITION BY key ORDER BY time RANGE BETWEEN $size PRECEDING AND CURRENT ROW) "
        "ORDER BY key, start",
        {"size": model.size},
    ).fetchall()
    assert final_windows(con, "sliding", model.size, exits=False) == frames


def update_mode(kind: str, size: int, grace: int) -> WindowModel:
    return WindowModel(kind=kind, size=size, grace=grace, retention=FOREVER, early="batch", late="batch")


DISORDERED = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.integers(0, 12)), min_size=1, max_size=20)


@given(st.integers(1, 12), st.integers(0, 12), DISORDERED)
@examples(200)
def test_sliding_updates_equal_kafka_while_grace_covers_the_disorder(
    size: int, grace: int, drafted: list[tuple[str, int, int]]
) -> None:
    newest, kafka, model = 100, KafkaSliding(size, grace), update_mode("sliding", size, grace)
    for clock, (key, ahead, back) in enumerate(drafted):
        event = (key, newest + ahead - min(back, grace + ahead), clock + 1)
        newest = max(newest, event[1])
        rows = model.batch([event], clock).rows
        # Kafka forwards a window twice, with one value, where it begins right after an event and ends at the next.
        assert sorted(row[:5] for row in rows) == sorted(set(kafka.process(event)))


def test_kafka_forwards_twice_what_begins_right_after_an_event_and_ends_at_the_next() -> None:
    forwarded = list(kafka_sliding([("a", 100, 1), ("a", 99, 2), ("a", 106, 4)], 5, 1))
    assert forwarded[2] == [("a", 101, 106, 1, 4), ("a", 101, 106, 1, 4)]


def test_beyond_grace_kafka_loses_an_event_that_the_definition_keeps() -> None:
    events = [("b", 112, 1), ("a", 110, 2), ("a", 112, 4)]
    model = update_mode("sliding", 9, 0)
    ours = [[row[:5] for row in model.batch([event], clock).rows] for clock, event in enumerate(events)]
    kafka = list(kafka_sliding(events, 9, 0))
    assert ours == [[("b", 103, 112, 1, 1)], [], [("a", 103, 112, 2, 6), ("a", 111, 120, 1, 4)]]
    # [101, 110] was closed when a: 110 came. Kafka had no other window to put it in, and so no memory of it.
    assert kafka == [[("b", 103, 112, 1, 1)], [], [("a", 103, 112, 1, 4)]]


def test_beyond_grace_late_records_are_the_same() -> None:
    model, events = update_mode("sliding", 9, 0), [("b", 112, 1), ("a", 103, 1), ("a", 102, 1)]
    results = [model.batch([event], clock) for clock, event in enumerate(events)]
    assert [result.late for result in results] == [[], [], [("a", 102, 1)]]
    assert list(kafka_sliding(events, 9, 0))[1:] == [[], None]


def test_case_1_of_the_seed_by_time() -> None:
    minute = 60 * SECOND
    model = WindowModel("tumbling", minute, grace=60 * minute, retention=1440 * minute, early=minute, late=10 * SECOND)
    lines = [
        ("9:00:00", [("", at("8:59:10"), 0)]),
        ("9:00:59", [("", at("9:00:01"), 5)]),
        ("9:01:00", []),
        ("9:02:00", []),
        ("9:02:01", [("", at("8:59:30"), 9)]),
        ("9:02:10", []),
    ]
    sent = [model.batch(events, at(clock)).rows for clock, events in lines]
    first, second = ("", at("8:59:00"), at("9:00:00")), ("", at("9:00:00"), at("9:01:00"))
    # The model sums; the seed's maximum is 0, 5 and 9 too.
    assert sent == [
        [],
        [(*first, 1, 0, "full")],
        [(*second, 1, 5, "early")],
        [],
        [],
        [(*first, 2, 9, "late")],
    ]
