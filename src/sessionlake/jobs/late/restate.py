"""Events that the stream refused before, merged into partials as rows of corrections: what reprocess_late and redeem share."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import lift, merge_states
from sessionlake.columnar.arrays import Groups
from sessionlake.columnar.groups import group_events
from sessionlake.config.load import Config
from sessionlake.jobs.run import JobRun
from sessionlake.operators.sessions.setup import check_settings
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.ingest import events_of
from sessionlake.stream.watermark import watermark_of
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.schemas import TIME
from sessionlake.warehouse.tables import Tables, spark_schema

PARTIALS_SCHEMA = pa.schema(
    [
        ("session_key", pa.string()),
        ("session_start", TIME),
        ("session_end", TIME),
        ("event_count", pa.int64()),
        ("state", pa.binary()),
    ]
)


def last_batch_pins(config: Config, tables: Tables) -> dict[str, Any]:
    """Return what a run pins of the last batch: its id, its watermark, and the time before which events are beyond retention."""
    last = last_batch(tables)
    check_settings(config, last)
    watermark = watermark_of(last.state)
    windows = SessionWindows.of(config)
    return {
        "batch_id": last.batch_id,
        "watermark_us": watermark,
        "expired_us": windows.bounds(watermark).expired_us,
    }


def restatements(run: JobRun, config: Config, events: DataFrame, spec: SessionizerSpec) -> DataFrame:
    """Return the corrections with which a run that pinned `last_batch_pins` restates events (rows as late_events has them)."""
    partials = restated_partials(events, spec, run.pinned["watermark_us"] - config.retention_us // 2)
    # Of one run no two partials share key and start.
    identity = F.md5(F.concat_ws("\x00", F.unix_micros("session_start").cast("string"), F.col("session_key")))
    correction_id = F.concat(F.lit(f"{run.app_id}/"), identity)
    return run.corrections(partials, correction_id=correction_id, kind=F.lit("restate"))


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
    events = events_of(spec.events, late)
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
