"""The driver's clock against the last commit's: a clock set back would make dead letters of all live events."""

import time
from datetime import UTC, datetime

from sessionlake.errors import PipelineStateError
from sessionlake.stream.planned_offsets import clock_of
from sessionlake.warehouse.batch_commit import BatchCommit

TOLERANCE_US = 60_000_000
"""How far a clock may be behind the last commit; the least that events may be ahead of it, if nothing else is set."""


def check_clock(last: BatchCommit | None) -> None:
    """Raise PipelineStateError if this machine's clock is behind the last commit: before a batch is planned by it."""
    _check(last, time.time_ns() // 1000, "this machine's", "set it right, then start again")


def check_batch_clock(offsets: str | None, last: BatchCommit | None, batch_id: int) -> None:
    """Raise PipelineStateError if the clock that a batch was planned by is behind the last commit, unless that is its own.

    `offsets` is the text of Spark's file of the batch, which holds that clock.
    """
    if last is None or batch_id <= last.batch_id:
        return
    if offsets is not None:
        whose = f"the one that batch {batch_id} was planned by"
        remedy = "set this machine's right, then start with `sessionlake run CONFIG --replan`"
        _check(last, clock_of(offsets), whose, remedy)


def _check(last: BatchCommit | None, clock_us: int, whose: str, remedy: str) -> None:
    if last is not None and clock_us < last.committed_us - TOLERANCE_US:
        now, then = (
            datetime.fromtimestamp(us / 1e6, UTC).isoformat(" ", "seconds") for us in (clock_us, last.committed_us)
        )
        raise PipelineStateError(
            f"clock: {whose} says {now}, before the last commit at {then}: live events would be too far in the future; {remedy}, "
            "or if the last commit's was ahead, start with --trust-clock"
        )
