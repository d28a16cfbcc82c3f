"""The store's lists of slices with changes that wait to be sent, and of those whose windows are not full (docs/windows.md)."""

import numpy as np
import pyarrow as pa

from sessionlake.operators.shared.windowing.batch_times import BatchTimes
from sessionlake.operators.shared.windowing.emission import CURRENT, FOREVER, UNSENT_EARLY, UNSENT_LATE, WAITING
from sessionlake.operators.shared.windowing.policies import BATCH, OFF
from sessionlake.operators.windows.rules import Merged
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.store.slices import SliceStore


def list_writes(
    spec: WindowSpec, store: SliceStore, keys: pa.Array, merged: Merged, times: BatchTimes
) -> tuple[list[pa.Table], dict[str, int]]:
    """Return the writes that keep the lists, and how many changes wait to be sent."""
    emit, windows, after, before = spec.emit, spec.windows, times.after, times.before
    if emit.updates:
        return [], {}
    start = merged.slices["start"][merged.changed]
    old, reach = merged.before["revision"], merged.before["reach"]
    first, done = windows.first_end(start), windows.done_at(start)
    waits = {
        "early": (emit.early != BATCH and not times.ticks.early) & (done > after.full_us),
        "late": (emit.late != BATCH and not times.ticks.late) & (first <= before.full_us) & (done > after.close_us),
    }
    # A slice that changed since the last tick is in a list already. Without early ticks nothing waits for one.
    new = {
        "early": waits["early"] & (emit.early != OFF) & (old <= before.early_batch),
        "late": waits["late"] & ((old <= before.late_batch) | (reach < first)),
    }
    # One that a batch has changed since these lists are kept is in one until its last window is full.
    is_current = (old < before.lists_from_in(times.batch_id)) & (done > after.full_us)
    ended = windows.span_us + 1
    tables = []
    for letter, listed, until in (
        (WAITING["early"], new["early"], FOREVER if times.ticks.early else after.full_us - ended),
        (CURRENT, is_current, after.full_us - ended),
        (WAITING["late"], new["late"], FOREVER if times.ticks.late else after.close_us - ended),
    ):
        deletes, rows = store.ended_lists(letter, until), np.flatnonzero(listed)
        if deletes:
            tables.append(store.list_deletes(deletes))
        if len(rows):
            named = keys.take(pa.array(merged.slices.codes[merged.changed][rows]))
            tables.append(store.list_writes(letter, times.batch_id, start[rows], named))
    return tables, {UNSENT_EARLY: int(waits["early"].sum()), UNSENT_LATE: int(waits["late"].sum())}
