"""Before the shuffle: events become parts of windows. A window's end is known from an event's time, and so what is late too."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Events
from sessionlake.aggregates.partials import Partials, merge_states
from sessionlake.columnar.arrays import Groups, Ints, sorted_codes
from sessionlake.columnar.groups import group_events
from sessionlake.engine.operator import Aside, Counted, Keyed, Split
from sessionlake.operators.windows.spec import Bounds, WindowSpec
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import event_table, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK

PARTS = "parts"
"""Kind of the rows that go to shards: one for each window that a task's events lie in."""


def split_events(spec: WindowSpec, bounds: Bounds, clock_us: int, rows: Rows) -> Split:
    """Yield the parts of windows, the late events, and what `Judged.asides` yields."""
    judged = judge(spec.events, rows, clock_us, bounds.expired_us)
    late = spec.windows.starts_of(judged.checked.time_us[judged.good]) + spec.windows.size_us <= bounds.close_us
    on_time, too_late = judged.good[~late], judged.good[late]
    parts, at = judged.computed(lambda at: _parts(spec, judged.events(at)), on_time)
    yield from judged.asides(lambda: judged.events(np.sort(np.concatenate([at, too_late]))))
    if len(too_late):
        table = event_table(spec.events, judged.events(too_late))
        close = pa.array(np.full(len(too_late), bounds.close_us))
        for name, column in (("raw", rows.raw(too_late)), ("source", rows.source(too_late)), ("close_us", close)):
            table = table.append_column(name, column)
        yield Aside(LATE, table)
    newest = int(judged.checked.time_us[at].max(initial=NO_WATERMARK))
    yield Counted({"accepted": len(at), "late": len(too_late), MAX_TIME: newest})
    yield Keyed(PARTS, parts.keys, parts.to_table())


def _parts(spec: WindowSpec, events: Events) -> Partials:
    """Merge events of a key and window."""
    start = spec.windows.starts_of(events.time_us)
    codes, keys = sorted_codes(events.keys)
    order, starts = group_events(codes, start, 0)
    groups = Groups(starts, len(order), lambda: keys.take(pa.array(codes[order][starts])))
    index = pa.array(order)
    states = [column.take(index) for aggregate in spec.aggregates for column in aggregate.lift(events)]
    first: Ints = start[order][starts]
    return Partials(
        groups.keys(),
        first,
        first + spec.windows.size_us - 1,
        groups.sizes,
        np.zeros(len(starts), np.int64),
        merge_states(spec.aggregates, states, groups),
    )
