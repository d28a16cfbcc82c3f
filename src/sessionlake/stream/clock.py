"""The driver's clock: checked against the last commit's, and batches without input when it makes something due.

A clock set back would make dead letters of all live events. A batch without input is a `tick` in the control input, so it is
planned, logged and rerun as any other.
"""

import time
from datetime import UTC, datetime

import pyarrow as pa

from sessionlake.errors import PipelineStateError
from sessionlake.stream.control import TICK
from sessionlake.stream.kind import Kind, State
from sessionlake.stream.planned_offsets import clock_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables

TOLERANCE_US = 60_000_000
"""How far a clock may be behind the last commit; the least that events may be ahead of it, if nothing else is set."""


def check_clock(last: BatchCommit | None) -> None:
    """Raise PipelineStateError if this machine's clock is behind the last commit: before a batch is planned by it."""
    _check(last, time.time_ns() // 1000, "this machine's", "set it right, then start again")


def check_batch_clock(offsets: str | None, last: BatchCommit | None, batch_id: int) -> None:
    """Raise PipelineStateError if the planned clock of a batch is behind the last commit, unless the batch is this commit.

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


class Ticks:
    """Asks for a run's ticks, once for each due time."""

    def __init__(self, tables: Tables, kind: Kind) -> None:
        self._tables, self._kind = tables, kind
        self._asked: int | None = None

    def wake(self, state: State) -> bool:
        """Ask for a batch if the kind has something due by now that is not asked for yet; say whether that is so.

        Call it if no batch runs: `state` is the last committed batch's.
        """
        due_us, now_us = self._kind.due_us(state), time.time_ns() // 1000
        if due_us is None or due_us > now_us or due_us == self._asked:
            return False
        row = {"correction_id": f"tick-{due_us}", "kind": TICK, "job": "ticks", "created_at": now_us}
        self._tables[schemas.CORRECTIONS].append_rows(pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA))
        self._asked = due_us
        return True
