"""Clocks that are wrong: set back they are told before anything is judged by them. No Spark."""

import json
import time

import pytest

from sessionlake.errors import PipelineStateError
from sessionlake.stream.clock import TOLERANCE_US, check_batch_clock, check_clock

NOW = time.time_ns() // 1000


def planned(clock_us: int) -> str:
    return "v1\n" + json.dumps({"batchTimestampMs": clock_us // 1000}) + "\n-\n-"


def test_machine_behind_the_last_commit_is_refused() -> None:
    check_clock(None)
    check_clock({"committed_us": NOW + TOLERANCE_US // 2})
    with pytest.raises(
        PipelineStateError, match=r"^clock: this machine's says .*, before the last commit at .*set it right"
    ):
        check_clock({"committed_us": NOW + 3600_000_000})


def test_batch_planned_behind_the_last_commit_is_refused_unless_it_is_the_last_one() -> None:
    last = {"batch_id": 7, "committed_us": NOW}
    check_batch_clock(planned(NOW - TOLERANCE_US // 2), last, 8)
    check_batch_clock(planned(0), None, 0)
    with pytest.raises(PipelineStateError, match=r"batch 8 was planned by says 1970.* --replan"):
        check_batch_clock(planned(0), last, 8)
    # Done already, and longer than the tolerance at it: nothing is judged again.
    check_batch_clock(planned(0), {**last, "batch_id": 8}, 8)
