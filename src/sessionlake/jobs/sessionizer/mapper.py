"""Before the shuffle: rules 1 and 3 on events, and as much merging as can't change what is late."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.engine.operator import by_shard, shard_of
from sessionlake.jobs.sessionizer.spec import DEAD_LETTER, DROP, SessionizerSpec
from sessionlake.schemas import TIME
from sessionlake.sessions.aggregates import Events
from sessionlake.sessions.arrays import Bools, Ints, combined
from sessionlake.sessions.kernel import lift, premerge
from sessionlake.sessions.windows import Bounds
from sessionlake.sources.contract import Checked, check

Texts = Callable[[Ints], pa.Array]
Split = Iterator[tuple[int, str, pa.Table]]

ARCHIVED, TOMBSTONES = "archived", "archived_tombstones"
"""Kinds of rows that go to the archive as they are: events that were not refused, and a topic's tombstones."""
FUTURE = "too far in the future"
"""Reason of what is further ahead of the batch's clock than `max_future_skew`."""
DEAD_SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("kind", pa.string()),
        ("session_key", pa.string()),
        ("event_time", TIME),
        ("raw", pa.string()),
        ("source", pa.string()),
    ]
)


@dataclass(frozen=True)
class Rows:
    """Events as a source gives them; `raw` and `source` fetch text and position of some rows only."""

    table: pa.Table
    error: pa.Array | None
    raw: Texts
    source: Texts


def split_events(spec: SessionizerSpec, bounds: Bounds, clock_us: int, rows: Rows) -> Split:
    """Yield (shard, kind, rows) of the kinds merged, alone, archived, emit, dead and tally."""
    checked = check(rows.table, rows.error, spec.columns)
    n = rows.table.num_rows
    good = np.ones(n, bool)
    tally = {"input": n}
    refused: list[tuple[Bools, pa.Array]] = []
    if checked.reason is not None:
        good = pc.is_null(checked.reason).to_numpy(zero_copy_only=False)
        refused.append((~good, checked.reason.filter(pa.array(~good))))
    if spec.max_future_skew_us is not None:
        future = good & (checked.time_us > clock_us + spec.max_future_skew_us)
        refused.append((future, _reason(future, FUTURE)))
        good &= ~future
    expired = good & (checked.time_us < bounds.expired_us)
    good &= ~expired
    if spec.beyond_retention == DEAD_LETTER:
        refused.append((expired, _reason(expired, "beyond retention")))
    elif spec.beyond_retention == DROP:
        tally["dropped"] = int(expired.sum())

    for mask, reason in refused:
        if mask.any():
            at = np.flatnonzero(mask)
            index = pa.array(at)
            columns = [
                reason,
                pa.array(["event"] * len(at)),
                checked.key.take(index),
                pa.array(checked.time_us[at], mask=checked.no_time[at]).cast(TIME),
                rows.raw(at),
                rows.source(at),
            ]
            yield 0, "dead", pa.Table.from_arrays(columns, schema=DEAD_SCHEMA)
    if expired.any() and spec.beyond_retention not in (DEAD_LETTER, DROP):
        emitted = lift(spec.aggregates, _events(spec, rows.table, checked, np.flatnonzero(expired))).to_table()
        yield from by_shard("emit", emitted, shard_of(combined(emitted["key"]), spec.shards))
    yield from _accepted(spec, bounds, rows, checked, np.flatnonzero(good))
    yield 0, "tally", pa.table({"name": list(tally), "value": pa.array(tally.values(), pa.int64())})


def _accepted(spec: SessionizerSpec, bounds: Bounds, rows: Rows, checked: Checked, at: Ints) -> Split:
    events = _events(spec, rows.table, checked, at)
    if spec.archive:
        yield from by_shard(ARCHIVED, event_table(spec, events), shard_of(events.keys, spec.shards))
    merged, alone = premerge(spec.aggregates, events, spec.windows.gap_us, bounds.close_us)
    yield from by_shard("merged", merged.to_table(), shard_of(merged.keys, spec.shards))
    if alone.any():
        old = np.flatnonzero(alone)
        table = event_table(spec, events).take(pa.array(old))
        table = table.append_column("raw", rows.raw(at[old])).append_column("source", rows.source(at[old]))
        yield from by_shard("alone", table, shard_of(combined(table["key"]), spec.shards))


def event_table(spec: SessionizerSpec, events: Events) -> pa.Table:
    """Return events with the columns key, time_us, event_id, and the struct `event` of what aggregates read."""
    n = len(events.keys)
    columns = {
        "key": events.keys,
        "time_us": events.time_us,
        "event_id": pa.nulls(n, pa.string()) if events.event_id is None else events.event_id,
        "event": event_struct([events.columns[name] for name in spec.columns.inputs], spec, n),
    }
    return pa.table(columns)


def events_of(spec: SessionizerSpec, table: pa.Table) -> Events:
    """Return the events of a table with the columns of `event_table`."""
    event = combined(table["event"])
    columns = {name: pc.struct_field(event, name).cast(spec.columns.types[name]) for name in spec.columns.inputs}
    event_id = None if spec.columns.id is None else combined(table["event_id"])
    return Events(combined(table["key"]), combined(table["time_us"]).to_numpy(), columns, event_id)


def event_struct(inputs: list[pa.Array], spec: SessionizerSpec, rows: int) -> pa.Array:
    """Return the columns that aggregates read as one struct column; a struct needs one field at least."""
    if not inputs:
        return pa.StructArray.from_arrays([pa.nulls(rows, pa.bool_())], names=["none"])
    return pa.StructArray.from_arrays(inputs, names=list(spec.columns.inputs))


def _events(spec: SessionizerSpec, table: pa.Table, checked: Checked, at: Ints) -> Events:
    columns = {name: combined(table[name]) for name in spec.columns.inputs}
    if len(at) == table.num_rows:
        return Events(checked.key, checked.time_us, columns, checked.event_id)
    index = pa.array(at)
    return Events(
        checked.key.take(index),
        checked.time_us[at],
        {name: column.take(index) for name, column in columns.items()},
        None if checked.event_id is None else checked.event_id.take(index),
    )


def _reason(mask: Bools, text: str) -> pa.Array:
    return pa.array([text] * int(mask.sum()), pa.string())
