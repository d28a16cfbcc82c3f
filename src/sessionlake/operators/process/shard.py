"""One shard's part of a batch of a processor: rows and due timers by key, then tables of the results."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import TICK, BatchContext, Inputs, ShardResult
from sessionlake.operators.process.api import Row, Timer
from sessionlake.operators.process.control import RESET, TOMBSTONE
from sessionlake.operators.process.key_run import FailedTimer, Limits, Sent, ShardRun
from sessionlake.operators.process.mapper import ROWS
from sessionlake.operators.process.spec import (
    CLOCK_LIMIT,
    EVENT_LIMIT,
    MAX_CLOCK,
    MAX_NEXT,
    ProcessSpec,
    event_limit_us,
)
from sessionlake.operators.process.state import KeyState
from sessionlake.operators.process.store import CLOCK, EVENT, Change, StateStore, index_entries, writes_of
from sessionlake.operators.process.table import OUTPUTS, STATES
from sessionlake.operators.process.tables import KeyedRows, TableRun
from sessionlake.stream.causes import counted_causes
from sessionlake.stream.control import MAX_ADVANCE
from sessionlake.stream.ingest import DEAD, DEAD_SCHEMA, EVENTS
from sessionlake.stream.positions import CHUNK, ROW, Numbering
from sessionlake.stream.watermark import MAX_TIME, NO_WATERMARK, advanced
from sessionlake.warehouse.schemas import TIME

TIMER_LETTER = "timer"
"""The kind of dead letters of timers."""
_RESTORED_AT_A_TIME = 100_000


@dataclass(frozen=True)
class Due:
    """The times of a batch: timers from `*_low_us`, inclusive, may be pending; those before `event_us` and up to `clock_us` are due."""

    event_low_us: int
    event_us: int
    clock_low_us: int
    clock_us: int

    @classmethod
    def of(cls, spec: ProcessSpec, inputs: Inputs, context: BatchContext) -> "Due":
        """Return those of a batch, from the state before it and the numbers of its map tasks."""
        numbers = inputs.get(TICK, pa.table({}))
        found = {
            name: pc.max(numbers[name]).as_py() for name in (MAX_TIME, MAX_ADVANCE) if name in numbers.column_names
        }
        after = advanced(context.state, {name: value for name, value in found.items() if value is not None})
        event_low, clock_low = context.state.get(EVENT_LIMIT), context.state.get(CLOCK_LIMIT)
        clock_low = NO_WATERMARK if clock_low is None else int(clock_low)
        return cls(
            NO_WATERMARK if event_low is None else int(event_low),
            event_limit_us(spec.grace_us, context.state, after),
            clock_low,
            max(clock_low, context.clock_us),
        )


@dataclass(frozen=True)
class Arrived:
    """The rows of a shard in a batch, by key and then by arrival; `starts` has one more than there are keys."""

    keys: list[bytes]
    starts: list[int]
    position: list[int]
    time_us: list[int]
    table: pa.Table
    """Of each row the key, time_us, and the columns of the source."""
    letters: pa.Table
    """Of each row key, time_us, raw and source."""

    @cached_property
    def values(self) -> list[Row]:
        """Each row as a dict."""
        found: list[Row] = self.table.drop_columns(["key"]).to_pylist()
        return found

    def of(self, group: int) -> Iterator[tuple[int, int, int, Row]]:
        """Yield the rows of a key: number, position, time, values."""
        for at in range(self.starts[group], self.starts[group + 1]):
            yield at, self.position[at], self.time_us[at], self.values[at]


@dataclass(frozen=True)
class ProcessShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: ProcessSpec

    def computed(self, inputs: Inputs, store: StateStore, context: BatchContext) -> ShardResult:
        """Return the result of a shard: the rows that its processor sends for rows and due timers, and the keys' states."""
        due, arrived = Due.of(self.spec, inputs, context), self._arrived(inputs, context)
        reset = {key.encode() for key in inputs[RESET]["key"].to_pylist()} if RESET in inputs else set()
        groups = {key: group for group, key in enumerate(arrived.keys)}
        fires = [
            *store.due(EVENT, due.event_low_us, due.event_us),
            *store.due(CLOCK, due.clock_low_us, due.clock_us + 1),
        ]
        keys = sorted({*groups, *fires, *reset})
        limits = Limits(due.event_us, due.clock_us, self.spec.retention_us, self.spec.max_state_bytes)
        processor, context_of_class = self.spec.opened()
        run = ShardRun(processor, context_of_class, self.spec.output, limits, self.spec.path)
        changes: dict[bytes, Change] = {}
        stored = dict(zip(keys, store.states(keys), strict=True))
        states = {key: KeyState() if packed is None else KeyState.unpacked(packed) for key, packed in stored.items()}
        entries = {
            key: [] if stored[key] is None else index_entries(key, state, self.spec.retention_us)
            for key, state in states.items()
        }
        states |= {key: KeyState() for key in reset}
        if processor.vectorised:
            firsts = zip(arrived.keys, arrived.starts, strict=False)
            states |= {key: run.before(key.decode(), states[key], arrived.time_us[at]) for key, at in firsts}
            of_rows = [states[key] for key in arrived.keys]
            TableRun(run, KeyedRows(arrived.table, np.array(arrived.starts), np.array(arrived.position), of_rows)).run()
            groups = {}
        for key in keys:
            state = run.run(key.decode(), states[key], arrived.of(groups[key]) if key in groups else ())
            after = None if state.is_empty else state
            if (None if after is None else after.packed()) != stored[key]:
                changes[key] = Change(entries[key], after)
        sent = self._sent(run.sent, run.tables, context)
        deleted = self._deleted(inputs.get(TOMBSTONE), context)
        side = {STATES.output: _state_rows(changes, context)} if changes else {}
        if run.failed_rows or run.failed_timers:
            side[DEAD] = pa.concat_tables([_row_letters(arrived.letters, run), _timer_letters(run.failed_timers)])
        failed = len(run.failed_rows)
        numbers = {"accepted": -failed, "dead": failed} if failed else {}
        if failed:
            numbers |= counted_causes([pa.array([row.reason for row in run.failed_rows], pa.string())]).stats
        numbers |= {"timers": run.fired, "timers_failed": len(run.failed_timers), MAX_CLOCK: due.clock_us}
        next_clock = self._next_clock(store, changes, due)
        if next_clock is not None:
            numbers[MAX_NEXT] = -next_clock
        writes = writes_of(changes, self.spec.retention_us) if changes else None
        counts = {"upserts": len(sent), "deletes": len(deleted), **numbers}
        return ShardResult(pa.concat_tables([sent, deleted]), writes, side, counts)

    def restored(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the writes of states (`STATES.restored_schema`), of a bounded number of keys each."""
        for first in range(0, len(rows), _RESTORED_AT_A_TIME):
            some = rows.slice(first, _RESTORED_AT_A_TIME).to_pylist()
            changes = {row["key"].encode(): Change([], _restored_state(row)) for row in some}
            yield writes_of(changes, self.spec.retention_us)

    def _arrived(self, inputs: Inputs, context: BatchContext) -> Arrived:
        if ROWS not in inputs:
            return Arrived([], [0], [], [], pa.table({}), pa.table({}))
        table = inputs[ROWS]
        numbering = Numbering.of(inputs, context.state, EVENTS)
        chunk, row = (combined(table[name]).to_numpy() for name in (CHUNK, ROW))
        codes, keys = sorted_codes(table["key"])
        order = np.lexsort((numbering.arrivals(chunk, row), codes))
        rows = table.take(pa.array(order))
        names = {f"column_{i}": name for i, name in enumerate(self.spec.types)}
        # A column of the source that is called `time_us` is the time itself.
        names = {column: name for column, name in names.items() if name != "time_us"}
        return Arrived(
            [key.encode() for key in keys.to_pylist()],
            np.searchsorted(codes[order], np.arange(len(keys) + 1)).tolist(),
            numbering.positions(chunk, row)[order].tolist(),
            rows["time_us"].to_pylist(),
            rows.select(["key", "time_us", *names]).rename_columns(["key", "time_us", *names.values()]),
            rows.select(["key", "time_us", "raw", "source"]),
        )

    def _next_clock(self, store: StateStore, changes: Mapping[bytes, Change], due: Due) -> int | None:
        """Return the time of the first clock timer that is pending after the batch."""
        changed = (change.after.clock_us for change in changes.values() if change.after is not None)
        times = [*changed, store.first(CLOCK, due.clock_low_us, changes)]
        return min((time_us for time_us in times if time_us is not None), default=None)

    def _sent(self, sent: list[Sent], tables: list[pa.Table], context: BatchContext) -> pa.Table:
        """Return the rows that were sent, one by one and as tables."""
        names = {
            "output_key": [row.key for row in sent],
            "output_time": [row.time_us for row in sent],
            "position": [row.position for row in sent],
            "ordinal": [row.ordinal for row in sent],
            **self.spec.output.columns([row.values for row in sent]),
        }
        whole = (self._rows("upsert", {n: combined(table[n]) for n in table.column_names}, context) for table in tables)
        return pa.concat_tables([self._rows("upsert", names, context), *whole])

    def _deleted(self, tombstones: pa.Table | None, context: BatchContext) -> pa.Table:
        """Return the rows that delete those which tombstones name, each once."""
        if tombstones is None:
            return self._schema.empty_table()
        rows = {(row["key"], row["position"], row["ordinal"]): row["time_us"] for row in tombstones.to_pylist()}
        named = sorted(rows)
        keys, position, ordinal = zip(*named, strict=True)
        names = {"output_key": keys, "output_time": [rows[n] for n in named], "position": position, "ordinal": ordinal}
        return self._rows("delete", names, context)

    def _rows(self, op: str, named: Mapping[str, Any], context: BatchContext) -> pa.Table:
        schema = self._schema
        known = {name: pa.array(values, schema.field(name).type) for name, values in named.items()}
        return OUTPUTS.changes(schema, op, known["output_key"], known, context)

    @cached_property
    def _schema(self) -> pa.Schema:
        return OUTPUTS.changes_schema(self.spec.fields(OUTPUTS, {}), marks=False)


def _state_rows(changes: Mapping[bytes, Change], context: BatchContext) -> pa.Table:
    return pa.Table.from_pylist(
        [_state_row(key.decode(), change.after, context.batch_id) for key, change in changes.items()],
        schema=STATES.changes_schema([], marks=False),
    )


def _state_row(key: str, state: KeyState | None, batch_id: int) -> dict[str, Any]:
    if state is None:
        return {"op": "delete", STATES.changelog.key: key, "revision": batch_id}
    return {
        "op": "upsert",
        STATES.changelog.key: key,
        "touched_at": state.touched_us,
        "position": state.position,
        "ordinal": state.ordinal,
        "entries": [
            {"store": store, "name": name, "value": value}
            for store, entries in sorted(state.entries.items())
            for name, value in sorted(entries.items())
        ],
        "timers": [{"name": t.name, "at": t.at_us, "clock": t.clock} for _, t in sorted(state.timers.items())],
        "revision": batch_id,
    }


def _restored_state(row: Mapping[str, Any]) -> KeyState:
    entries: dict[str, dict[str, str]] = {}
    for entry in row["entries"] or ():
        entries.setdefault(entry["store"], {})[entry["name"]] = entry["value"]
    timers = {t["name"]: Timer(t["at"], t["name"], t["clock"]) for t in row["timers"] or ()}
    return KeyState(row["position"], row["ordinal"], row["touched_us"], entries, timers)


def _row_letters(letters: pa.Table, run: ShardRun) -> pa.Table:
    at = pa.array([failed.row for failed in run.failed_rows], pa.int64())
    n = len(at)
    if not n:
        return DEAD_SCHEMA.empty_table()
    rows = letters.take(at)
    arrays = [
        pa.array([failed.reason for failed in run.failed_rows], pa.string()),
        pa.array(["event"] * n),
        combined(rows["key"]),
        combined(rows["time_us"]).cast(TIME),
        combined(rows["raw"]),
        combined(rows["source"]),
    ]
    return pa.Table.from_arrays(arrays, schema=DEAD_SCHEMA)


def _timer_letters(failed: list[FailedTimer]) -> pa.Table:
    rows = [
        {
            "reason": one.reason,
            "kind": TIMER_LETTER,
            "key": one.key,
            "event_time": one.timer.at_us,
            "raw": json.dumps({"name": one.timer.name, "at_us": one.timer.at_us, "clock": one.timer.clock}),
            "source": "timer",
        }
        for one in failed
    ]
    return pa.Table.from_pylist(rows, schema=DEAD_SCHEMA)
