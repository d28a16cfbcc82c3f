"""Late events merged into partials as rows of corrections."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.arrays import Groups
from sessionlake.jobs.sessionizer.mapper import events_of
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.schemas import TIME
from sessionlake.sessions.kernel import group_events, lift, merge_states
from sessionlake.sessions.partials import StateCodec
from sessionlake.warehouse.tables import spark_schema

PARTIALS_SCHEMA = pa.schema(
    [
        ("session_key", pa.string()),
        ("session_start", TIME),
        ("session_end", TIME),
        ("event_count", pa.int64()),
        ("state", pa.binary()),
    ]
)


def restated_partials(late: DataFrame, spec: SessionizerSpec, alone_before_us: int) -> DataFrame:
    """Return rows of late_events as partials that the sessionizer would merge in any case.

    The sessionizer judges a partial's expiry by its start. So events of a key travel together only if they lie in one
    cell of a grid as wide as the gap, and those before `alone_before_us` only with events of the same time: whatever
    the watermark does until then, an event that travels alone expires in its own time, another less than a gap early.
    """

    def partials(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in _whole_cells(batches, spec.windows.gap_us):
            yield from _merged(spec, alone_before_us, piece).to_batches()

    rows = late.select(
        F.col("session_key").alias("key"), F.unix_micros("event_time").alias("time_us"), "event_id", "event"
    )
    placed = rows.repartition("key").sortWithinPartitions("key", "time_us")
    return placed.mapInArrow(partials, spark_schema(PARTIALS_SCHEMA))


def _whole_cells(batches: Iterable[pa.RecordBatch], gap_us: int) -> Iterator[pa.Table]:
    """Cut sorted rows anew so that no cell of a key is divided; holds a batch and a cell in memory."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        cell = batch["time_us"].to_numpy() // gap_us
        last_key = batch["key"][-1]
        in_last = pc.equal(batch["key"], last_key).to_numpy(zero_copy_only=False) & (cell == cell[-1])
        cut = int(np.argmax(in_last))
        goes_on = held and held[-1]["key"][-1] == last_key and held[-1]["time_us"][-1].as_py() // gap_us == cell[-1]
        if cut or not goes_on:
            before = [*held, batch.slice(0, cut)]
            yield pa.Table.from_batches(before, batch.schema)
            held = []
        held.append(batch.slice(cut))
    if held:
        yield pa.Table.from_batches(held)


def _merged(spec: SessionizerSpec, alone_before_us: int, late: pa.Table) -> pa.Table:
    """Merge sorted late events as far as they may travel together."""
    if not late.num_rows:
        return PARTIALS_SCHEMA.empty_table()
    events = events_of(spec, late)
    codes = events.keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    order, starts = group_events(codes, events.time_us, spec.windows.gap_us)
    time = events.time_us[order]
    cell = time // spec.windows.gap_us
    breaks = np.zeros(len(order), bool)
    breaks[starts] = True
    breaks[1:] |= (cell[1:] != cell[:-1]) | ((time[:-1] < alone_before_us) & (time[1:] != time[:-1]))
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
    return pa.Table.from_arrays(arrays, schema=PARTIALS_SCHEMA)
