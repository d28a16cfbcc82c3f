"""Before the shuffle: rows are judged, and accepted ones go to the shards of their keys with the numbers of their order."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Events
from sessionlake.columnar.arrays import combined, plain_text
from sessionlake.engine.operator import BatchContext, Counted, Keyed, Split
from sessionlake.operators.process.output import outside_of_years
from sessionlake.operators.process.spec import ProcessSpec, expired_us
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import EVENTS, Judged, judge
from sessionlake.stream.positions import CHUNK, ROW, accepted_rows, chunk_of
from sessionlake.stream.watermark import MAX_TIME

ROWS = "rows"
"""Kind of the rows that go to shards."""


def row_schema(spec: ProcessSpec) -> pa.Schema:
    """Return the schema of rows on their way to a shard; `raw` and `source` are the columns of a dead letter."""
    return pa.schema(
        [
            ("key", pa.string()),
            ("time_us", pa.int64()),
            (CHUNK, pa.int64()),
            (ROW, pa.int64()),
            ("raw", pa.string()),
            ("source", pa.string()),
            *((f"column_{i}", type_) for i, type_ in enumerate(spec.types.values())),
        ]
    )


def split_rows(spec: ProcessSpec, context: BatchContext, number: int, rows: Rows) -> Split:
    """Yield the accepted rows, and the pieces of `Judged.asides`; `number` is the place of the rows among those of their table."""
    judged = judge(spec.events, rows, context.clock_us, expired_us(spec.retention_us, context.state))
    events, chunk = _with_dates(spec, judged), chunk_of(context, number)
    yield from judged.asides(lambda: events)
    yield from accepted_rows(EVENTS, rows, len(judged.good), chunk)
    yield Counted({"accepted": len(judged.good)})
    if not len(judged.good):
        return
    yield Counted({MAX_TIME: int(events.time_us.max())})
    keys, places = plain_text(events.keys), judged.good
    arrays = [
        keys,
        pa.array(events.time_us),
        pa.repeat(chunk, len(keys)),
        pa.array(judged.rows.numbers(judged.good)),
        judged.rows.raw(places),
        judged.rows.source(places),
        *(combined(events.columns[name]) for name in spec.columns),
    ]
    yield Keyed(ROWS, keys, pa.Table.from_arrays(arrays, schema=row_schema(spec)))


def _with_dates(spec: ProcessSpec, judged: Judged) -> Events:
    """Return the good rows' events; refuse rows with a time that Python has no value for: a class is called with `datetime` and `date`."""
    events, good = judged.events(judged.good), judged.good
    wrong = np.zeros(len(good), bool)
    for name in spec.columns:
        outside = outside_of_years(combined(events.columns[name])) & ~wrong
        if outside.any():
            reasons = pa.repeat(f"column {name!r} lies outside of the years 1 to 9999", int(outside.sum()))
            judged.refused.append((good[outside], reasons))
            wrong |= outside
    if not wrong.any():
        return events
    judged.good = good[~wrong]
    return judged.events(judged.good)
