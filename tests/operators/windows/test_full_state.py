"""Aggregates that keep every value, over overlapping windows and over sessions, stores lost in between."""

import json
import random
import statistics
from typing import Any

import numpy as np
import pytest

from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import HoppingWindows, SlidingWindows, TumblingWindows, WindowDefinition
from sessionlake.testing import SessionizerHarness
from sessionlake.testing.windows import WindowHarness

SPECS = {
    "n": "count()",
    "middle": "median(v)",
    "upper": "quantile(v, 0.9)",
    "path": "tests.aggregates.test_full:Everyone",
}


def batches(seed: int) -> list[list[dict[str, Any]]]:
    rng = random.Random(seed)
    return [
        [{"key": rng.choice("ab"), "time_us": rng.randrange(60), "x": rng.randrange(9), "v": rng.random()} for _ in range(20)]
        for _ in range(4)
    ]  # fmt: skip


def check(row: dict[str, Any], key: str, held: list[dict[str, Any]]) -> None:
    values = [event["v"] for event in held]
    assert row["n"] == len(values)
    assert row["middle"] == pytest.approx(statistics.median(values))
    assert row["upper"] == pytest.approx(np.quantile(values, 0.9))
    expected = sorted(held, key=lambda event: (event["time_us"], json.dumps({"x": event["x"]})))
    assert json.loads(row["path"]) == [key, *(event["x"] for event in expected)]


@pytest.mark.parametrize(
    "kind", [TumblingWindows.of("10 us"), HoppingWindows.of("40 us", "2 us"), SlidingWindows.of("30 us")]
)
def test_windows_of_any_overlap(kind: WindowDefinition) -> None:
    taken: list[dict[str, Any]] = []
    with WindowHarness(
        kind.grace("90 us").until("100 us"), SPECS, emit=EmitSection(early="batch", late="batch"), shards=2
    ) as harness:
        for rows in batches(3):
            harness.process(rows)
            harness.lose_stores()
            taken += rows
        shown = harness.windows()
    last = isinstance(kind, SlidingWindows)  # whose ends are inclusive
    assert len(shown) > 10
    for row in shown:
        low, high = row["window_start"], row["window_end"] + last
        held = [e for e in taken if e["key"] == row["window_key"] and low <= e["time_us"] < high]
        check(row, row["window_key"], held)


def test_sessions_that_merge() -> None:
    taken: list[dict[str, Any]] = []
    windows = SessionWindows.with_gap("1 us").grace("90 us").until("100 us")
    with SessionizerHarness(windows, SPECS, shards=2) as harness:
        for rows in batches(4):
            harness.process(rows)
            taken += rows
        shown = harness.sessions()
    assert len(shown) > 1
    for row in shown:
        held = [e for e in taken if e["key"] == row["key"] and row["start_us"] <= e["time_us"] <= row["end_us"]]
        check(row, row["key"], held)
