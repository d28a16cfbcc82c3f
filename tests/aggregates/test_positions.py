"""first_position() and last_position(): the least and the greatest place in a topic, whatever was merged, flushed or restored."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from sessionlake import HoppingWindows, SessionWindows, TumblingWindows
from sessionlake.aggregates import AggregateSpec, build_aggregates
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError
from sessionlake.sources.record_columns import META, OFFSET, PARTITION
from sessionlake.standalone import WindowedAggregator
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.positions import PARTITION as OFFSETS
from sessionlake.testing import SessionizerHarness, WindowHarness

SPECS = {"first": "first_position()", "last": "last_position()"}
MINUTE = 60_000_000


def placed() -> list[dict[str, Any]]:
    """Events in three partitions, in which offsets count up, while times go to and fro."""
    ends = [7, 0, OFFSETS - 20]
    rows = []
    for number in range(40):
        partition, key, minute = number % 3, "ab"[number % 2], number * 17 % 61
        rows.append({"key": key, "time_us": minute * MINUTE, PARTITION: partition, OFFSET: ends[partition]})
        ends[partition] += 1
    return rows


def edges(rows: list[dict[str, Any]]) -> tuple[int, int]:
    found = [row[PARTITION] * OFFSETS + row[OFFSET] for row in rows]
    return min(found), max(found)


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_sessions_have_those_of_their_events_after_merges_and_restores(
    batches: int,
) -> None:
    rows = placed()
    windows = SessionWindows.with_gap("5 minutes").grace("2 hours").until("3 hours")
    with SessionizerHarness(windows, SPECS, schema={PARTITION: "long", OFFSET: "long"}) as harness:
        for number in range(batches):
            harness.process(rows[number::batches])
            harness.lose_stores()
        for session in harness.sessions():
            inside = [
                row
                for row in rows
                if row["key"] == session["key"] and session["start_us"] <= row["time_us"] <= session["end_us"]
            ]
            assert (session["first"], session["last"]) == edges(inside)


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_windows_have_those_of_their_slices_events(batches: int) -> None:
    rows = placed()
    windows = HoppingWindows.of("12 minutes", "5 minutes").until("1 day")
    with WindowHarness(windows, SPECS, schema={PARTITION: "long", OFFSET: "long"}) as harness:
        for number in range(batches):
            harness.process(rows[number::batches])
            harness.lose_stores()
        harness.tick(0, flush=True)
        for window in harness.windows():
            start, end = window["window_start"], window["window_end"]
            inside = [row for row in rows if row["key"] == window["window_key"] and start <= row["time_us"] < end]
            assert (window["first"], window["last"]) == edges(inside)


@pytest.mark.parametrize("batch", [1, 100])
def test_without_spark_positions_are_those_that_are_given(tmp_path: Path, batch: int) -> None:
    windows = TumblingWindows.of("1 minute").until("1 hour")

    def opened() -> WindowedAggregator:
        return WindowedAggregator(tmp_path / "run", windows, SPECS, key="key", batch=batch)

    def told(run: WindowedAggregator) -> list[tuple[Any, ...]]:
        return [(row["window_key"], row["first"], row["last"]) for row in run.get_windows(0, MINUTE)]

    with opened() as run:
        run.add_message({"key": "a", "time_us": 3}, position=8, partition=1)
        run.add_message({"key": "a", "time_us": 2}, position=5)
        run.add_message({"key": "b", "time_us": 1})  # without a position
        assert told(run) == [("a", 5, OFFSETS + 8), ("b", None, None)]
        assert run.get_result() == []
        run.flush()
    with opened() as run:
        table = pa.table({"key": ["a", "b"], "time_us": [4, 5]})
        run.add_messages(table, positions=[4, 9], partitions=[2, 2])
        assert told(run) == [("a", 5, 2 * OFFSETS + 4), ("b", 2 * OFFSETS + 9, 2 * OFFSETS + 9)]
        run.add_message({"key": "", "time_us": 1}, position=10)
        assert run.dead() == [{"message": {"key": "", "time_us": 1}, "reason": "empty key"}]


def test_an_event_without_a_place_counts_as_null() -> None:
    first, last = build_aggregates(SPECS, dict(META))
    assert (first.inputs, last.value_type) == ((PARTITION, OFFSET), pa.int64())


def test_what_is_no_position_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^aggregates.x: 'first_position\(a\)' takes no column; write 'first_position\(\)'$"
    ):
        AggregateSpec.parse("x", "first_position(a)")
    config = parse_config(
        {
            "pipeline": {"name": "p", "warehouse": "lake"},
            "source": {"kind": "files", "path": "events", "format": "json"},
            "event": {"key": "key", "time": "time_us", "time_unit": "us"},
            "session": {"gap": "5 minutes"},
            "aggregates": SPECS,
        },
        tmp_path,
    )
    with pytest.raises(
        ConfigError,
        match=r"^aggregates.first: first_position\(\) is of topics, and source.kind is 'files'; write min\(column\)",
    ):
        aggregated_events(config, cast(Any, None), None)
