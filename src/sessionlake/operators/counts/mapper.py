"""Before the shuffle: accepted events travel one by one, since only a shard knows their numbers."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import lift
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import EVENTS, judge
from sessionlake.stream.positions import CHUNK, ROW, accepted_rows
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK

MESSAGES = "messages"
"""Kind of the rows that go to shards: one for each accepted event."""


def split_events(spec: CountSpec, context: BatchContext, chunk: int, rows: Rows) -> Split:
    """Yield the accepted events of a chunk, the row that describes the chunk, and the tables of `Judged.asides`. No event is late."""
    at = Progress.of(context.state)
    judged = judge(spec.events, rows, context.clock_us, at.expired_us)
    lifted, accepted = judged.computed(lambda some: lift(spec.aggregates, judged.events(some)), judged.good)
    yield from judged.asides(lambda: judged.events(accepted))
    newest = int(judged.checked.time_us[accepted].max(initial=NO_WATERMARK))
    yield Counted({"accepted": len(accepted), MAX_TIME: newest})
    yield from accepted_rows(EVENTS, rows, len(accepted), chunk)
    table = lifted.to_table().append_column(CHUNK, pa.array(np.full(len(accepted), chunk)))
    yield Keyed(MESSAGES, lifted.keys, table.append_column(ROW, pa.array(judged.rows.numbers(accepted))))
