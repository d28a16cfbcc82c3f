"""Before the shuffle: rules 1 and 3 on events, and as much merging as can't change what is late."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates import Events
from sessionlake.columnar.arrays import Bools, Ints, combined, plain_text
from sessionlake.engine.operator import by_shard, shard_of
from sessionlake.errors import BadEventsError
from sessionlake.jobs.sessionizer.spec import DEAD_LETTER, DROP, SessionizerSpec
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.schemas import TIME
from sessionlake.sessions.kernel import lift, premerge
from sessionlake.sessions.partials import Partials
from sessionlake.sources.contract import Checked, check

Texts = Callable[[Ints], pa.Array]
Split = Iterator[tuple[int, str, pa.Table]]
_T = TypeVar("_T")
_PIECE_ROWS = 1024

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
    checked = check(rows.table, rows.error, spec.columns, spec.max_key_bytes)
    n = rows.table.num_rows
    good = np.ones(n, bool)
    tally = {"input": n}
    refused: list[tuple[Ints, pa.Array]] = []
    if checked.reason is not None:
        good = pc.is_null(checked.reason).to_numpy(zero_copy_only=False)
        refused.append((np.flatnonzero(~good), checked.reason.filter(pa.array(~good))))
    if spec.max_future_skew_us is not None:
        future = good & (checked.time_us > clock_us + spec.max_future_skew_us)
        refused.append(_told(future, FUTURE))
        good &= ~future
    expired = good & (checked.time_us < bounds.expired_us)
    good &= ~expired
    if spec.beyond_retention == DEAD_LETTER:
        refused.append(_told(expired, "beyond retention"))
    elif spec.beyond_retention == DROP:
        tally["dropped"] = int(expired.sum())

    emitted = None
    if expired.any() and spec.beyond_retention not in (DEAD_LETTER, DROP):
        emitted, _ = without_raising(
            lambda at: lift(spec.aggregates, checked_events(spec, rows.table, checked, at)),
            np.flatnonzero(expired),
            refused,
        )
    accepted = _accepted(spec, bounds, rows, checked, np.flatnonzero(good), refused)
    for at, reason in refused:
        yield from _dead_letters(spec, rows, checked, at, reason)
    if emitted is not None:
        yield from by_shard("emit", emitted.to_table(), shard_of(emitted.keys, spec.shards))
    yield from accepted
    yield 0, "tally", pa.table({"name": list(tally), "value": pa.array(tally.values(), pa.int64())})


def _dead_letters(spec: SessionizerSpec, rows: Rows, checked: Checked, refused: Ints, reasons: pa.Array) -> Split:
    """Yield dead letters in pieces of bounded size, each to a shard that hangs on its first row: no task gets all of them."""
    for first in range(0, len(refused), _PIECE_ROWS):
        at = refused[first : first + _PIECE_ROWS]
        index = pa.array(at)
        raw, source = rows.raw(at), rows.source(at)
        columns = [
            reasons.slice(first, len(at)),
            pa.array(["event"] * len(at)),
            plain_text(checked.key.take(index)),
            pa.array(checked.time_us[at], mask=checked.no_time[at]).cast(TIME),
            raw,
            source,
        ]
        place = f"{source[0].as_py()} {raw[0].as_py()}".encode()
        yield zlib.crc32(place) % spec.shards, "dead", pa.Table.from_arrays(columns, schema=DEAD_SCHEMA)


def without_raising(compute: Callable[[Ints], _T], at: Ints, refused: list[tuple[Ints, pa.Array]]) -> tuple[_T, Ints]:
    """Compute over the rows at which no user's aggregate raises, and return them too; the others are added to `refused`."""
    while True:
        try:
            return compute(at), at
        except BadEventsError as error:
            if not error.reasons:
                raise
            bad = np.fromiter(error.reasons, np.int64)
            refused.append((at[bad], pa.array(error.reasons.values(), pa.string())))
            at = np.delete(at, bad)


def _accepted(
    spec: SessionizerSpec,
    bounds: Bounds,
    rows: Rows,
    checked: Checked,
    good: Ints,
    refused: list[tuple[Ints, pa.Array]],
) -> Split:
    """Merge the good rows at once, and return an iterator of what comes of them."""

    def merge(at: Ints) -> tuple[Events, Partials, Bools]:
        events = checked_events(spec, rows.table, checked, at)
        return events, *premerge(spec.aggregates, events, spec.windows.gap_us, bounds.close_us)

    (events, merged, alone), at = without_raising(merge, good, refused)
    return _merged(spec, rows, at, events, merged, alone)


def _merged(spec: SessionizerSpec, rows: Rows, at: Ints, events: Events, merged: Partials, alone: Bools) -> Split:
    if spec.archive:
        yield from by_shard(ARCHIVED, event_table(spec, events), shard_of(events.keys, spec.shards))
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
        "key": plain_text(events.keys),
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


def checked_events(spec: SessionizerSpec, table: pa.Table, checked: Checked, at: Ints) -> Events:
    """Return the rows at some places of a table, as it came from the source, as events."""
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


def _told(mask: Bools, text: str) -> tuple[Ints, pa.Array]:
    at = np.flatnonzero(mask)
    return at, pa.array([text] * len(at), pa.string())
