"""Rows of window_changelog and slice_changelog, of columns that a shard computed."""

import pyarrow as pa

from sessionlake.aggregates.partials import written_values
from sessionlake.operators.shared.windowing.batch_times import BatchTimes
from sessionlake.operators.shared.windowing.slices import Windows, states_of
from sessionlake.operators.windows.reading import have_events_at_end
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.store.slices import Slices
from sessionlake.warehouse.changelog import STATE
from sessionlake.warehouse.schemas import TIME


def window_rows(spec: WindowSpec, keys: pa.Array, slices: Slices, windows: Windows, times: BatchTimes) -> pa.Table:
    """Return the rows of windows that are sent, over the slices that they are made of."""
    table = spec.tables[-1]
    schema = spec.output_schema(table)
    if not len(windows):
        return schema.empty_table()
    count, states = states_of(spec.aggregates, slices, windows, keys)
    known = {
        "window_start": pa.array(windows.start).cast(TIME),
        "window_end": pa.array(windows.end - spec.inclusive_us).cast(TIME),
        "event_count": pa.array(count),
        "trigger": windows.trigger,
        **spec.named(written_values(spec.aggregates, states)),
    }
    if spec.is_sliding:
        known["at_event"] = have_events_at_end(slices, windows)
    if spec.rows_are_state:
        known[STATE] = slices.state.take(pa.array(windows.low))
    return table.changes(schema, "upsert", keys.take(pa.array(windows.codes)), known, times)


def slice_rows(spec: WindowSpec, keys: pa.Array, slices: Slices, op: str) -> pa.Table:
    """Return the rows of changes of slices."""
    table, start = spec.tables[0], slices["start"]
    numbers = ("revision", "reach", *(("born", "born_reach") if spec.is_sliding else ()))
    known = {
        "slice_start": pa.array(start).cast(TIME),
        "slice_end": pa.array(start + spec.windows.slice_us).cast(TIME),
        "event_count": pa.array(slices["count"]),
        STATE: slices.state,
        **{name: pa.array(slices[name]) for name in numbers},
    }
    return table.changes(spec.output_schema(table), op, keys.take(pa.array(slices.codes)), known, None)
