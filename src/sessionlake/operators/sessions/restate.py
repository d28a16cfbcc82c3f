"""Late events as restates of sessions: partials that the sessionizer would merge in any case."""

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import lift, merge_states
from sessionlake.columnar.arrays import Groups
from sessionlake.columnar.groups import group_intervals
from sessionlake.operators.sessions.gaps import open_until
from sessionlake.operators.sessions.kernel import group_points
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.stream.capabilities import RESTATES_SCHEMA
from sessionlake.stream.ingest import events_of
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME


def restates_schema(spec: SessionizerSpec) -> pa.Schema:
    """Return the columns of restates: with `open_until` if that is kept."""
    return RESTATES_SCHEMA.append(pa.field(OPEN_UNTIL, TIME)) if spec.windows.keeps_until else RESTATES_SCHEMA


def merged_late(
    spec: SessionizerSpec, together_us: tuple[int, int], late: pa.Table, *, alone: bool = False
) -> pa.Table:
    """Merge sorted late events as far as they may travel together; none if each is to be `alone`.

    The sessionizer judges a partial's expiry by its start. So events of a key travel together only if they lie in one
    cell of a grid as wide as the gap, and those outside of `together_us`, both inclusive, only with events of the same time.
    Whatever the watermark does until then, an event that travels alone expires in its own time, another less than a gap early.
    Events after the watermark travel alone because another gap may hold for their times by then (docs/rules.md, rule 244).
    """
    if not late.num_rows:
        return restates_schema(spec).empty_table()
    events = events_of(spec.events, late)
    codes = np.arange(late.num_rows)
    if not alone:
        codes = events.keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    until = open_until(spec, events)
    if until is None:
        order, starts = group_points(codes, events.time_us, spec.windows)
    else:
        order, starts = group_intervals(codes, events.time_us, until, 0)
    time = events.time_us[order]
    cell = time // spec.windows.gap_us
    together = (time[:-1] >= together_us[0]) & (time[1:] <= together_us[1])
    breaks = np.zeros(len(order), bool)
    breaks[starts] = True
    breaks[1:] |= (cell[1:] != cell[:-1]) | (~together & (time[1:] != time[:-1]))
    starts = np.flatnonzero(breaks)
    sizes = np.diff(starts, append=len(order))
    rows = pa.array(order)
    keys = events.keys.take(pa.array(order[starts]))
    states = [column.take(rows) for column in lift(spec.aggregates, events).states]
    merged = merge_states(spec.aggregates, states, Groups(starts, len(order), lambda: keys))
    arrays = [
        keys,
        pa.array(time[starts]).cast(TIME),
        pa.array(time[starts + sizes - 1]).cast(TIME),
        pa.array(sizes),
        StateCodec(spec.aggregates).encode(merged, len(starts)),
    ]
    if until is not None:
        arrays.append(pa.array(np.maximum.reduceat(until[order], starts)).cast(TIME))
    return pa.Table.from_arrays(arrays, schema=restates_schema(spec))
