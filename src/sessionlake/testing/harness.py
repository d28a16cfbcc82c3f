"""Test windows and aggregates in milliseconds: the sessionizer's shard operator and store without Spark.

It can't read sources, write Delta tables or crash. tests/stream/test_sessionizer.py proves it equal to the Spark engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate, Events
from sessionlake.aggregates.codec import StateCodec
from sessionlake.errors import ConfigError
from sessionlake.local.rows import Row, event_rows
from sessionlake.operators.sessions.gap_by import parsed_gap, source_columns, typed_gap
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.local_tables import SessionTables
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.section import session_ttl_section
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.thresholds import Quarantine
from sessionlake.operators.sessions.ttl_rule import session_ttl
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, DROP, EMIT, EVENTS
from sessionlake.stream.outputs import LATE
from sessionlake.testing.local import OperatorHarness, aggregated_columns, placed
from sessionlake.warehouse.schemas import COUNTS, OPEN_UNTIL, QUARANTINED, STALE
from sessionlake.warehouse.schemas import corrections as corrections_schema

OPEN_UNTIL_US = "open_until_us"


@dataclass(frozen=True)
class Output:
    """The outputs of one micro-batch of sessions; see `SessionizerHarness`."""

    changes: list[dict[str, Any]]
    """op (upsert, delete, emit), key, start_us, end_us, event_count, revision, each aggregate by name, and open_until_us if
    events have gaps of their own; of sessions that are sent by policy also trigger and emitted_at."""
    late: list[dict[str, Any]]
    """The input rows that were late."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    stale: list[dict[str, Any]]
    """The replacements that were ignored because a session they name is gone or at another revision."""
    counts: dict[str, int]


class SessionizerHarness(OperatorHarness[Sessionizer, SessionTables]):
    """Run micro-batches of plain rows through the sessionizer.

    Rows are dicts: events have `key`, `time_us` and the columns the aggregates read; corrections have `kind` restate
    (key, start_us, end_us, event_count, columns as of one event), replace (key, remove = [(start_us, revision), ...],
    put = [partials]) or tombstone (key, start_us, revision). Column types are those of the first batch's first
    value, or `schema` = {"column": "long" | "double" | "string" | "boolean" | "timestamp" |
    "date"}. `ttl` is the section [ttl] of a config: {"pattern": "scan", "ttl": "30 minutes"}; corrections of kind "tick" do
    nothing but make a batch. `emit` says when sessions are sent; then a correction of kind "flush" sends what waits for a
    period, and one of kind "advance" moves the watermark to its `time_us`.

    >>> from sessionlake import SessionWindows
    >>> harness = SessionizerHarness(SessionWindows.with_gap("30 seconds"), {"clicks": "count()"})
    >>> output = harness.process([{"key": "ann", "time_us": 0}, {"key": "ann", "time_us": 20_000_000}])
    >>> [(row["key"], row["start_us"], row["end_us"], row["clicks"]) for row in output.changes]
    [('ann', 0, 20000000, 2)]
    """

    def __init__(
        self,
        windows: SessionWindows,
        aggregates: Mapping[str, str],
        *,
        shards: int = 1,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        clock: Callable[[], int] | None = None,
        event_id: str | None = None,
        schema: Mapping[str, str] | None = None,
        quarantine: Quarantine | None = None,
        ttl: Mapping[str, Any] | None = None,
        emit: EmitSection | None = None,
        retention_count: int | None = None,
    ) -> None:
        if beyond_retention not in (DEAD_LETTER, DROP, EMIT):
            raise ConfigError(f"beyond_retention: {beyond_retention!r} is unknown; write dead_letter, drop or emit")
        if (max_future_skew is None) != (clock is None):
            raise ConfigError("max_future_skew: needs a clock, and a clock needs it; give both or neither")
        self.windows, self._specs, self._quarantine = windows, dict(aggregates), quarantine
        self._clock, self._event_id = clock, event_id
        self._emit, self._retention_count = (None if emit is None else emit.policies), retention_count
        self._ttl = None if ttl is None else session_ttl_section(ttl)
        super().__init__(
            SessionTables(), shards, beyond_retention=beyond_retention, max_future_skew=max_future_skew, schema=schema
        )
        self._live = self._tables.live

    def due_us(self) -> int | None:
        """Return when a pipeline without input would make a batch, for a cleanup; None for never."""
        ttl = None if self._operator is None else self._operator.spec.ttl
        return None if ttl is None else ttl.due_us(self._state)

    def process(self, rows: Sequence[Row], *, clock_us: int | None = None) -> Output:
        """Run one micro-batch, at a time of the clock if one is given."""
        spec = self._build(rows).spec
        if clock_us is None:
            clock_us = self._clock() if self._clock else 0
        events = [(i, row) for i, row in enumerate(rows) if "kind" not in row]
        corrections = [(i, row) for i, row in enumerate(rows) if "kind" in row]
        given = [(EVENTS, event_rows(spec.columns, events))] if events else []
        batch = self._batch(clock_us, given, corrections=_correction_table(spec, corrections) if corrections else None)
        names = (
            "op",
            "key",
            "start_us",
            "end_us",
            OPEN_UNTIL_US,
            "event_count",
            "revision",
            "trigger",
            "emitted_at",
            *self._specs,
        )
        changes = [
            {name: row[name] for name in names if name in row and (name != OPEN_UNTIL_US or row[name] is not None)}
            for row in batch.changes
        ]
        refused = [{**rows[at], "reason": row["reason"]} for at, row in placed(batch.tables(DEAD))]
        stale = [{k: v for k, v in row.items() if k != "reason"} for row in refused if row["reason"] == STALE]
        counted = (
            *COUNTS,
            *(() if self._quarantine is None else (QUARANTINED,)),
            *(() if self._ttl is None else ("deleted_by_ttl", "scanned", "decoded")),
        )
        return Output(
            changes,
            [dict(rows[at]) for at, _ in placed(batch.tables(LATE))],
            [row for row in refused if row["reason"] != STALE],
            stale,
            {name: batch.stats.get(name, 0) for name in counted},
        )

    def change_emit(self, emit: EmitSection) -> None:
        """Go on under other policies, as after a change of the section [emit]; stores are restored, as a run does then."""
        if self._emit is None:
            raise ConfigError("emit: to send by policy from now on is a rebuild; use a new harness")
        self._emit = emit.policies
        if self._operator is not None:
            self._operator = Sessionizer(replace(self._operator.spec, emit=self._emit))
            self.lose_stores()

    def sent(self) -> list[dict[str, Any]]:
        """Return the last row sent of each session, ordered by key and start, if sessions are sent by policy."""
        return self._tables.sent.sorted_rows()

    def sessions(self) -> list[dict[str, Any]]:
        """Return the live store's warm sessions, ordered by key and start."""
        if self._operator is None:
            return []
        bounds = self._operator.spec.bounds(self._state)
        rows = []
        for store in self.stores(self._operator):
            keys, found = store.scan(bounds.oldest_end_us)
            found = found.take(np.flatnonzero(until_of(self.windows, found) >= bounds.expired_us))
            states = self._operator.spec.stored_codec.decode(found.state)
            columns = {
                "key": [keys[i].decode() for i in found.codes.tolist()],
                "start_us": found.start.tolist(),
                "end_us": found.end.tolist(),
                "event_count": found.count.tolist(),
                "revision": found.revision.tolist(),
                **({OPEN_UNTIL_US: found.until.tolist()} if found.until is not None else {}),
            }
            for aggregate in self._operator.spec.aggregates:
                columns[aggregate.name] = aggregate.value(states[: len(aggregate.state)]).to_pylist()
                states = states[len(aggregate.state) :]
            rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return sorted(rows, key=lambda row: (row["key"], row["start_us"]))

    def _make_operator(self, rows: Sequence[Row]) -> Sessionizer:
        sql = parsed_gap(self.windows.gap_by)
        aggregates, columns, shape = aggregated_columns(
            self._specs, self._declared, rows, event_id=self._event_id, more=source_columns(sql)
        )
        gap_by = typed_gap(sql, columns.types)
        spec = SessionizerSpec(
            self._events(columns, shape),
            aggregates,
            self.windows,
            gap_by,
            self._quarantine,
            emit=self._emit,
            retention_count=self._retention_count,
        )
        return Sessionizer(replace(spec, ttl=session_ttl(spec, self._ttl)))


def _correction_table(spec: SessionizerSpec, corrections: list[tuple[int, Row]]) -> pa.Table:
    """Return plain corrections as rows of the table corrections; their id is their index among the batch's rows."""
    rows = []
    for index, row in corrections:
        one: dict[str, Any] = {
            "correction_id": f"{index:012d}",
            "kind": row["kind"],
            "key": row.get("key"),
            "start_time": row.get("start_us", row.get("time_us")),
            "end_time": row.get("end_us", row.get("time_us")),
            "revision": row.get("revision"),
            "event_count": row.get("event_count", 1),
            "state": _packed(spec, row) if row["kind"] == "restate" else None,
            OPEN_UNTIL: row.get("open_until_us"),
        }
        if row["kind"] == "replace":
            one["remove"] = [{"start_time": start, "revision": revision} for start, revision in row.get("remove", ())]
            one["put"] = [
                {
                    "start_time": p["start_us"],
                    "end_time": p["end_us"],
                    "event_count": p.get("event_count", 1),
                    "state": _packed(spec, {**p, "key": row.get("key")}),
                    OPEN_UNTIL: p.get("open_until_us"),
                }
                for p in row.get("put", ())
            ]
        rows.append(one)
    return pa.Table.from_pylist(rows, schema=corrections_schema(until=spec.windows.keeps_until))


def _packed(spec: SessionizerSpec, row: Row) -> bytes:
    """Return the packed state of a partial given by its columns, as of one event at its start, or by aggregates' values."""
    start = np.array([row.get("start_us", row.get("time_us", 0))], np.int64)
    states: list[pa.Array] = []
    columns = {name: pa.array([row.get(name)], spec.columns.types[name]) for name in spec.columns.inputs}
    event_id = None if spec.columns.id is None else pa.array([row.get(spec.columns.id)], pa.string())
    events = Events(pa.array([row.get("key")], pa.string()), start, columns, event_id)
    for aggregate in spec.aggregates:
        states += _state(aggregate, row, events, start)
    return StateCodec(spec.aggregates).encode(states, 1)[0].as_py()


def _state(aggregate: Aggregate, row: Row, events: Events, start: Any) -> list[pa.Array]:
    if aggregate.name in row and not any(name in row for name in aggregate.inputs):
        states = aggregate.from_value(pa.array([row[aggregate.name]], aggregate.value_type), start)
        if states is not None:
            return states
    if not aggregate.inputs and aggregate.value_type == pa.int64() and "event_count" in row:
        return [pa.array([row["event_count"]])]  # count(): the number of events of the partial
    return aggregate.lift(events)
