"""A batch of an operator that sends by policy, apart from its rows: how far the pipeline was and is, and which policies fire."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import TICK, BatchContext, Inputs
from sessionlake.operators.shared.windowing.emission import Progress, Ticks, after_batch, ticks_of
from sessionlake.operators.shared.windowing.policies import Policies
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK


@dataclass(frozen=True)
class BatchTimes:
    """The times that decide what a batch sends."""

    batch_id: int
    clock_us: int
    before: Progress
    after: Progress
    ticks: Ticks


def batch_times(emit: Policies, grace_us: int, retention_us: int, inputs: Inputs, context: BatchContext) -> BatchTimes:
    """Return the times of a batch. Of each number of the map tasks the greatest counts."""
    before, numbers = Progress.of(context.state), inputs.get(TICK, pa.table({}))
    frontier = max(_greatest(numbers, MAX_TIME), _greatest(numbers, MAX_ADVANCE))
    after = after_batch(emit, grace_us, retention_us, before, frontier, context.clock_us)
    flush = _greatest(numbers, MAX_FLUSH) > NO_WATERMARK
    ticks = ticks_of(emit, before, context.clock_us, flush=flush)
    return BatchTimes(context.batch_id, context.clock_us, before, after, ticks)


def _greatest(numbers: pa.Table, name: str) -> int:
    """Return the greatest of a number of map tasks; NO_WATERMARK if none of them has it."""
    found = pc.max(numbers[name]).as_py() if name in numbers.column_names else None
    return NO_WATERMARK if found is None else int(found)
