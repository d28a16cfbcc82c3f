"""Before the shuffle: accepted events travel one by one, since only a shard knows their numbers."""

from functools import partial

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import lift
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.operators.windows.emission import Progress
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import EVENTS, judge, naming_rows
from sessionlake.stream.positions import CHUNK, ROW, accepted_rows, chunk_of
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK

MESSAGES = "messages"
"""Kind of the rows that go to shards: one for each accepted event."""


def split_rows(spec: CountSpec, context: BatchContext, table: pa.Table) -> Split:
    """Yield what becomes of rows of the source's stream."""
    decoded = spec.events.decoder.decode_in_order(table, context.files.get(EVENTS, {}), context.part)
    for number, rows in enumerate(decoded):
        yield from naming_rows(partial(split_events, spec, context, chunk_of(context, number)), rows)


def split_events(spec: CountSpec, context: BatchContext, chunk: int, rows: Rows) -> Split:
    """Yield the accepted events of a chunk, what tells of the chunk, and what `Judged.asides` yields. No event is late."""
    at = Progress.of(context.state)
    judged = judge(spec.events, rows, context.clock_us, at.expired_us)
    lifted, accepted = judged.computed(lambda some: lift(spec.aggregates, judged.events(some)), judged.good)
    yield from judged.asides(lambda: judged.events(accepted))
    newest = int(judged.checked.time_us[accepted].max(initial=NO_WATERMARK))
    yield Counted({"accepted": len(accepted), MAX_TIME: newest})
    yield from accepted_rows(EVENTS, rows, len(accepted), chunk)
    table = lifted.to_table().append_column(CHUNK, pa.array(np.full(len(accepted), chunk)))
    yield Keyed(MESSAGES, lifted.keys, table.append_column(ROW, pa.array(np.arange(len(accepted)))))
