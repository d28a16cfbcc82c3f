"""Clocks that are wrong: set back they are told before anything is judged by them. No Spark."""

import json
import time
from dataclasses import replace

import pytest

from sessionlake.errors import PipelineStateError
from sessionlake.stream.clock import TOLERANCE_US, check_batch_clock, check_clock
from sessionlake.stream.planned_offsets import clock_of
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

NOW = time.time_ns() // 1000


def committed(at_us: int) -> BatchCommit:
    return BatchCommit("p", "id", 7, "c", {}, {}, (None,), "", Settings({}, {}, {}), None, at_us, at_us)


def planned(clock_us: int) -> str:
    return "v1\n" + json.dumps({"batchTimestampMs": clock_us // 1000}) + "\n-\n-"


def test_machine_behind_the_last_commit_is_refused() -> None:
    check_clock(None)
    check_clock(committed(NOW + TOLERANCE_US // 2))
    with pytest.raises(
        PipelineStateError, match=r"^clock: this machine's says .*, before the last commit at .*set it right"
    ):
        check_clock(committed(NOW + 3600_000_000))


def test_batch_planned_behind_the_last_commit_is_refused_unless_it_is_the_last_one() -> None:
    last = committed(NOW)
    check_batch_clock(planned(NOW - TOLERANCE_US // 2), last, 8)
    check_batch_clock(planned(0), None, 0)
    with pytest.raises(PipelineStateError, match=r"batch 8 was planned by says 1970.* --replan"):
        check_batch_clock(planned(0), last, 8)
    # Done already, and longer than the tolerance at it: nothing is judged again.
    check_batch_clock(planned(0), replace(last, batch_id=8), 8)


def test_a_batch_without_offsets_has_no_clock() -> None:
    assert clock_of(planned(NOW)) == NOW // 1000 * 1000
    with pytest.raises(PipelineStateError, match=r"^checkpoint: a planned batch's offsets can't be read"):
        clock_of(None)
