"""What `status` says of the lag in words."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sessionlake.cli.status_text import rendered, status_lines, status_object
from sessionlake.config.durations import rough_duration
from sessionlake.jobs.followers.positions import FollowerState
from tests.cli.statuses import DAY, HOUR, MINUTE, NOW, STATUS
from tests.support import make_config


@pytest.mark.parametrize(
    ("lag", "age", "told"),
    [
        (MINUTE, MINUTE, "event time lags 1 min behind the clock"),
        (-MINUTE, -MINUTE, "event time is 1 min ahead of the clock"),
        (92 * DAY + 22 * HOUR, 92 * DAY, "event time lags 92 days behind the clock; the newest events were 92 days old when they were read"),
        (3 * DAY, MINUTE, "event time lags 3 days behind the clock, since no newer events have come in"),
    ],
)  # fmt: skip
def test_a_lag_says_why(tmp_path: Path, lag: int, age: int, told: str) -> None:
    status = replace(STATUS, watermark_us=NOW - lag, committed_us=NOW - lag + age)
    lines = dict(status_lines(make_config(tmp_path), status, NOW))
    assert lines["watermark"].endswith(f" UTC: {told}")


def test_what_never_happened_is_not_told(tmp_path: Path) -> None:
    counts = {**STATUS.counts, "input": 3, "accepted": 2, "dropped": 1}
    lines = dict(status_lines(make_config(tmp_path), replace(STATUS, counts=counts), NOW))
    assert lines["events"] == "3 = 2 accepted + 0 late + 0 dead + 1 dropped"
    assert not {"rows", "expiry", "evicted", "config"} & lines.keys()


@pytest.mark.parametrize(
    ("since", "told"),
    [
        ({"events": 12}, "each event counts once since batch 12"),
        (
            {"left": 0, "right": 4},
            "each event of left counts once since batch 0, each event of right counts once since batch 4",
        ),
    ],
)
def test_since_when_events_count_once(tmp_path: Path, since: dict[str, int], told: str) -> None:
    status = replace(STATUS, unique_since=since)
    assert dict(status_lines(make_config(tmp_path), status, NOW))["unique"] == told
    assert status_object(make_config(tmp_path), status, NOW)["unique_since"] == since
    assert "unique" not in dict(status_lines(make_config(tmp_path), STATUS, NOW))


@pytest.mark.parametrize(
    ("follower", "told"),
    [
        (FollowerState("days", "pipeline", 1_200, 0, None), "days is at batch 1,200"),
        (FollowerState("days", "pipeline", 2, 3, NOW - MINUTE), "days is at batch 2, 3 behind for 1 min"),
        (FollowerState("sink.delta", "sink", None, 3, NOW - HOUR), "sink.delta has no batch yet, 3 behind for 1 h"),
        (FollowerState("sink.kafka", "sink", None, None, None, "gone"), "sink.kafka NOT READABLE: gone"),
    ],
)
def test_how_far_a_follower_is(tmp_path: Path, follower: FollowerState, told: str) -> None:
    status = replace(STATUS, followers=[follower, follower])
    assert dict(status_lines(make_config(tmp_path), status, NOW))["followers"] == f"{told}; {told}"
    assert "followers" not in dict(status_lines(make_config(tmp_path), STATUS, NOW))


def test_values_keep_to_their_column_on_a_terminal(tmp_path: Path) -> None:
    refused = "session.gap: changed from 1800000000 to 1200000000 on existing sessions; restore the old value"
    console = Console(width=60, record=True, file=StringIO())
    console.print(rendered(make_config(tmp_path), replace(STATUS, refused=refused), NOW, 60))
    lines = console.export_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("config"))
    assert lines[at].startswith("config       a run would be refused: session.gap:")
    assert lines[at + 1].startswith(" " * 13)
    assert all(len(line) <= 60 for line in lines)


@pytest.mark.parametrize(
    ("micros", "told"),
    [
        (999_999, "0 s"),
        (59_999_999, "59 s"),
        (MINUTE + 639_000, "1 min"),
        (HOUR, "1 h"),
        (3 * HOUR + 20 * MINUTE, "3 h 20 min"),
        (47 * HOUR, "47 h"),
        (2 * DAY, "2 days"),
        (-MINUTE, "1 min"),
    ],
)
def test_rough_durations(micros: int, told: str) -> None:
    assert rough_duration(micros) == told
