"""Late events as restates of windows: parts of slices, and slices that partly late events are in already."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import lift, merge_states
from sessionlake.columnar.arrays import Groups, combined
from sessionlake.columnar.groups import group_events
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.stream.capabilities import RESTATES_SCHEMA
from sessionlake.stream.ingest import events_of
from sessionlake.warehouse.schemas import PARTLY, TIME


def merged_late(spec: WindowSpec, late: pa.Table, *, alone: bool = False) -> pa.Table:
    """Merge late events into one restate a key and slice; into one for each event if they are to be `alone`.

    Partly late events are in their slices: of a slice that has no others the restate holds no event, and asks only that
    the closed windows with it are sent again.
    """
    events = events_of(spec.events, late)
    start = spec.windows.slices_of(events.time_us)
    codes = np.arange(late.num_rows)
    if not alone:
        codes = events.keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    order, starts = group_events(codes, start, 0)
    first = order[starts]
    whole = ~combined(late[PARTLY]).to_numpy(zero_copy_only=False)[order]
    sizes = np.add.reduceat(whole, starts, dtype=np.int64) if len(starts) else np.zeros(0, np.int64)
    some = sizes > 0
    rows, counts = pa.array(order[whole]), sizes[some]
    keys = events.keys.take(pa.array(first))
    states = [column.take(rows) for column in lift(spec.aggregates, events).states]
    groups = Groups(np.cumsum(counts) - counts, len(rows), lambda: keys.filter(pa.array(some)))
    packed = StateCodec(spec.aggregates).encode(merge_states(spec.aggregates, states, groups), len(counts))
    place = pa.array(np.cumsum(some) - 1, mask=~some)
    arrays = [
        keys,
        pa.array(start[first]).cast(TIME),
        pc.add(pa.array(start[first]), spec.windows.slice_us - 1).cast(TIME),
        pa.array(sizes),
        packed.take(place),
    ]
    return pa.Table.from_arrays(arrays, schema=RESTATES_SCHEMA)
