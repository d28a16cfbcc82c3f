"""Before the shuffle: events become parts of slices. The time of an event decides in which windows it lies, and whether it is late."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.base import Events
from sessionlake.aggregates.partials import Partials, merge_states
from sessionlake.columnar.arrays import Groups, Ints, picked
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import Aside, Counted, Keyed, Split
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.ingest import Judged, event_table, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK
from sessionlake.warehouse.schemas import PARTLY

PARTS = "parts"
"""Kind of the rows that go to shards: one for each slice that a task's events lie in."""


def split_events(spec: WindowSpec, at: Progress, clock_us: int, rows: Rows) -> Split:
    """Yield the parts of slices, the late events, and the tables of `Judged.asides`.

    An event is late if all windows that can have it are closed. If only some are, it is accepted, and among the late
    events as well: a restate can add it to the closed windows.
    """
    judged = judge(spec.events, rows, clock_us, at.expired_us)
    slices = spec.windows.slices_of(judged.checked.time_us[judged.good])
    late = spec.windows.last_end(slices) <= at.close_us
    partly = judged.good[~late & (spec.windows.first_end(slices) <= at.close_us)]
    parts, accepted = judged.computed(lambda rows: parts_of(spec, judged.events(rows)), judged.good[~late])
    late_rows, partly = judged.good[late], np.intersect1d(partly, accepted, assume_unique=True)
    yield from judged.asides(lambda: judged.events(np.sort(np.concatenate([accepted, late_rows]))))
    yield from _late(spec, judged, np.concatenate([late_rows, partly]), len(partly), at.close_us)
    newest = int(judged.checked.time_us[accepted].max(initial=NO_WATERMARK))
    yield Counted({"accepted": len(accepted), "late": len(late_rows), "partly_late": len(partly), MAX_TIME: newest})
    if spec.keeping is not None:
        yield Counted(spec.keeping.counted(judged.checked.time_us[accepted]))
    yield Keyed(PARTS, parts.keys, parts.to_table())


def _late(spec: WindowSpec, judged: Judged, at: Ints, partly: int, close_us: int) -> Split:
    """Yield rows of the table of late events; the last of them are partly late."""
    if len(at):
        table = event_table(spec.events, judged.events(at))
        is_partly = np.arange(len(at)) >= len(at) - partly
        close = np.full(len(at), close_us)
        columns = (("raw", judged.rows.raw(at)), ("source", judged.rows.source(at)), ("close_us", pa.array(close)))
        for name, column in (*columns, (PARTLY, pa.array(is_partly))):
            table = table.append_column(name, column)
        yield Aside(LATE, table)


def parts_of(spec: WindowSpec, events: Events) -> Partials:
    """Merge events of a key and slice."""
    start = spec.windows.slices_of(events.time_us)
    codes, keys = sorted_codes(events.keys)
    order, starts = group_events(codes, start, 0)
    groups = Groups(starts, len(order), lambda: keys.take(pa.array(codes[order][starts])))
    index = pa.array(order)
    states = [picked(column, index) for aggregate in spec.aggregates for column in aggregate.lift(events)]
    first: Ints = start[order][starts]
    return Partials(
        groups.keys(),
        first,
        first + spec.windows.slice_us - 1,
        groups.sizes,
        np.zeros(len(starts), np.int64),
        merge_states(spec.aggregates, states, groups),
    )
