"""The store's lists of slices with changes that wait to be sent (docs/windows.md)."""

import numpy as np
import pyarrow as pa

from sessionlake.operators.shared.windowing.batch_times import WAITING, BatchTimes
from sessionlake.operators.shared.windowing.emission import FOREVER, UNSENT_EARLY, UNSENT_LATE
from sessionlake.operators.shared.windowing.policies import BATCH
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
    # A slice that changed since the last tick is in a list already.
    listed = {
        "early": old > before.early_batch,
        "late": (old > before.late_batch) & (reach >= first),
    }
    ended = {"early": after.full_us, "late": after.close_us}
    ticked = {"early": times.ticks.early, "late": times.ticks.late}
    tables = []
    for name, letter in sorted(WAITING.items(), key=lambda item: item[1]):
        until = FOREVER if ticked[name] else ended[name] - windows.span_us - 1
        deletes = store.ended_lists(letter, until)
        new = np.flatnonzero(waits[name] & ~listed[name])
        if deletes:
            tables.append(store.list_deletes(deletes))
        if len(new):
            named = keys.take(pa.array(merged.slices.codes[merged.changed][new]))
            tables.append(store.list_writes(letter, times.batch_id, start[new], named))
    return tables, {UNSENT_EARLY: int(waits["early"].sum()), UNSENT_LATE: int(waits["late"].sum())}
