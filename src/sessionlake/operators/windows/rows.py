"""Rows of window_changelog and slice_changelog, of columns that a shard computed."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.partials import written_values
from sessionlake.operators.shared.windowing.slices import Pairs, Windows, states_of
from sessionlake.operators.shared.windowing.tombstones import SENT_SCHEMA
from sessionlake.operators.windows.spec import WindowSpec, slice_schema, window_schema
from sessionlake.store.slices import Slices
from sessionlake.warehouse.schemas import TIME


def window_rows(
    spec: WindowSpec, keys: pa.Array, slices: Slices, windows: Windows, batch_id: int, clock_us: int
) -> pa.Table:
    """Return the rows of windows that are sent, over the slices that they are made of."""
    n, schema = len(windows), window_schema(spec, {}, marks=False)
    if not n:
        return schema.empty_table()
    count, states = states_of(spec.aggregates, slices, windows, keys)
    # The end of a sliding window is shown as its last microsecond, which is in it.
    shown = windows.end - 1 if spec.is_sliding else windows.end
    columns: dict[str, pa.Array] = {
        "op": pa.repeat("upsert", n),
        "window_key": keys.take(pa.array(windows.codes)),
        "window_start": pa.array(windows.start).cast(TIME),
        "window_end": pa.array(shown).cast(TIME),
        "event_count": pa.array(count),
        "revision": pa.array(np.full(n, batch_id)),
        "trigger": windows.trigger,
        "emitted_at": pa.array(np.full(n, clock_us)).cast(TIME),
    }
    columns |= {
        a.name: values for a, values in zip(spec.aggregates, written_values(spec.aggregates, states), strict=True)
    }
    if spec.is_sliding:
        columns["at_event"] = pa.array(slices["start"][windows.high - 1] == windows.end - 1)
    if spec.rows_are_state:
        columns["state"] = slices.state.take(pa.array(windows.low))
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def slice_rows(spec: WindowSpec, keys: pa.Array, slices: Slices, op: str) -> pa.Table:
    """Return the rows of changes of slices."""
    start = slices["start"]
    columns: Mapping[str, pa.Array] = {
        "op": pa.repeat(op, len(slices)),
        "slice_key": keys.take(pa.array(slices.codes)),
        "slice_start": pa.array(start).cast(TIME),
        "slice_end": pa.array(start + spec.windows.slice_us).cast(TIME),
        "event_count": pa.array(slices["count"]),
        "state": slices.state,
        **{name: pa.array(slices[name]) for name in ("revision", "reach")},
        **({name: pa.array(slices[name]) for name in ("born", "born_reach")} if spec.is_sliding else {}),
    }
    schema = slice_schema(spec, marks=False)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def named_windows(spec: WindowSpec, keys: pa.Array, windows: Pairs) -> pa.Table:
    """Return windows (SENT_SCHEMA) whose rows are to be deleted; the revision is null."""
    n, end = len(windows), windows.time + spec.windows.span_us
    arrays = [keys.take(pa.array(windows.codes)), pa.array(windows.time), pa.array(end), pa.nulls(n, pa.int64())]
    return pa.Table.from_arrays(arrays, schema=SENT_SCHEMA)
