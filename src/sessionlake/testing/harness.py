"""Test windows and aggregates in milliseconds: the sessionizer's shard operator and store without Spark.

What it can't do: read sources, write Delta tables, crash. Proven equal to the Spark engine by tests/stream/test_sessionizer.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.config.quarantine import Quarantine
from sessionlake.config.ttl import SessionTtlSection
from sessionlake.engine.operator import Aside, BatchContext, Piece, ShardResult
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions.control import kinds_of, limits_of
from sessionlake.operators.sessions.gap_by import parsed_gap, source_columns, typed_gap
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.shard import COLD_SCHEMA
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import next_state
from sessionlake.operators.sessions.ttl_rule import session_ttl
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.stream.control import split_corrections
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, DROP, EMIT, EventSpec
from sessionlake.stream.outputs import LATE
from sessionlake.testing.local import Harness, aggregated_columns, declared_types, skew_of
from sessionlake.testing.rows import Row, correction_table, event_rows
from sessionlake.warehouse.batch_commit import WATERMARK
from sessionlake.warehouse.schemas import COUNTS, OPEN_UNTIL, QUARANTINED, STALE, TIME

OPEN_UNTIL_US = "open_until_us"


@dataclass(frozen=True)
class Output:
    """What one micro-batch gave."""

    changes: list[dict[str, Any]]
    """op (upsert, delete, emit), key, start_us, end_us, event_count, revision, each aggregate by name, and open_until_us where
    events have gaps of their own."""
    late: list[dict[str, Any]]
    """The input rows that were late."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    stale: list[dict[str, Any]]
    """The replacements that were ignored because a session they name is gone or at another revision."""
    counts: dict[str, int]


class SessionizerHarness(Harness[SegmentedSessionStore]):
    """Run micro-batches of plain rows through the sessionizer.

    Rows are dicts: events have `key`, `time_us` and the columns the aggregates read; corrections have `kind` restate
    (key, start_us, end_us, event_count, columns as of one event), replace (key, remove = [(start_us, revision), ...],
    put = [partials]) or tombstone (key, start_us, revision). Column types are those of the first batch's first
    value, or `schema` = {"column": "long" | "double" | "string" | "boolean" | "timestamp" |
    "date"}. `ttl` is the section [ttl] of a config: {"pattern": "scan", "ttl": "30 minutes"}; corrections of kind "tick" do
    nothing but make a batch.
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
    ) -> None:
        if beyond_retention not in (DEAD_LETTER, DROP, EMIT):
            raise ConfigError(f"beyond_retention: {beyond_retention!r} is unknown; write dead_letter, drop or emit")
        if (max_future_skew is None) != (clock is None):
            raise ConfigError("max_future_skew: needs a clock, and a clock needs it; give both or neither")
        self.windows, self._specs, self._quarantine = windows, dict(aggregates), quarantine
        self._policy, self._clock, self._event_id = beyond_retention, clock, event_id
        self._ttl = None if ttl is None else SessionTtlSection.model_validate(ttl)
        self._skew = skew_of(max_future_skew)
        self._declared = declared_types(schema)
        super().__init__(shards)
        self._operator: Sessionizer | None = None
        self._state: dict[str, Any] = {}
        self._batch_id = 0
        self._live: dict[tuple[str, int], dict[str, Any]] = {}

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the last batch; None before the first accepted event."""
        return self._state.get(WATERMARK)

    @property
    def state(self) -> dict[str, Any]:
        """The state after the last batch: watermark_us, and with [ttl] what the last cleanup tells."""
        return self._state

    def due_us(self) -> int | None:
        """Return when a pipeline without input would make a batch, for a cleanup; None for never."""
        ttl = None if self._operator is None else self._operator.spec.ttl
        return None if ttl is None else ttl.due_us(self._state)

    def process(self, rows: Sequence[Row], *, clock_us: int | None = None) -> Output:
        """Run one micro-batch, at a time of the clock where one is given."""
        operator = self._operator or self._make_operator(rows)
        if clock_us is None:
            clock_us = self._clock() if self._clock else 0
        context = BatchContext(self._batch_id, f"c{self._batch_id}", dict(self._state), clock_us)
        bounds = operator.bounds(context)
        events = [(i, row) for i, row in enumerate(rows) if "kind" not in row]
        corrections = [(i, row) for i, row in enumerate(rows) if "kind" in row]
        split: list[Piece] = [] if operator.spec.ttl is None else list(operator.spec.ttl.schedule.split(context))
        if events:
            split += split_events(operator.spec, bounds, context.clock_us, event_rows(operator.spec.columns, events))
        if corrections:
            limits = limits_of(operator.spec, bounds, context.clock_us)
            table = correction_table(operator.spec, corrections)
            split += split_corrections(kinds_of(operator.spec), limits, table)
        results, told = self._shards.run(operator, split, context, partial(self._cold, operator, context))
        stats = {**dict.fromkeys((*COUNTS, QUARANTINED), 0), **told}
        self._state = next_state(self._state, stats)
        self._batch_id += 1
        quarantined = [] if self._quarantine is None else [QUARANTINED]
        changes = [change for result in results for change in self._change_rows(result.changes)]
        asides = [aside.rows for aside in split if isinstance(aside, Aside) and aside.kind == DEAD]
        late, refused = self._side(results, LATE, rows), self._side(results, DEAD, rows, asides)
        dead = [row for row in refused if row["reason"] != STALE]
        stale = [{k: v for k, v in row.items() if k != "reason"} for row in refused if row["reason"] == STALE]
        counted = (*COUNTS, *quarantined, *(() if self._ttl is None else ("deleted_by_ttl", "scanned", "decoded")))
        return Output(changes, late, dead, stale, {name: stats.get(name, 0) for name in counted})

    def lose_stores(self) -> None:
        """Restore every store from the changelog, as after the loss of its disk."""
        if self._operator is None:
            return
        context = BatchContext(self._batch_id, "", dict(self._state))
        self._shards.restore(self._operator, self._stored(self._operator), context)

    def sessions(self) -> list[dict[str, Any]]:
        """Return the live store's warm sessions, ordered by key and start."""
        if self._operator is None:
            return []
        bounds = self._operator.bounds(BatchContext(0, "", self._state))
        rows = []
        for shard in range(self._shards.shards):
            keys, found = self._shards.store(self._operator, shard).scan(bounds.oldest_end_us)
            found = found.take(np.flatnonzero(until_of(self.windows, found) >= bounds.expired_us))
            states = StateCodec(self._operator.spec.aggregates).decode(found.state)
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
        aggregates, columns = aggregated_columns(
            self._specs, self._declared, rows, event_id=self._event_id, more=source_columns(sql)
        )
        events = EventSpec(TableDecoder(columns, None), self._policy, self._skew)
        gap_by = typed_gap(sql, columns.types)
        spec = SessionizerSpec(self.windows, aggregates, events, gap_by, self._quarantine)
        self._operator = Sessionizer(replace(spec, ttl=session_ttl(spec, self._ttl)))
        return self._operator

    def _stored(self, operator: Sessionizer) -> pa.Table:
        """Return what the changelog has of stores, as the driver hands it to shards that lost theirs."""
        oldest_us = operator.bounds(BatchContext(0, "", self._state)).oldest_end_us
        return self._engine_rows(operator, [row for row in self._live.values() if row["end_us"] >= oldest_us])

    def _cold(self, operator: Sessionizer, context: BatchContext, needs: pa.Table) -> pa.Table:
        """Look up cold sessions among all that were ever forwarded, as the driver does in sessions_live."""
        bounds, windows = operator.bounds(context), operator.spec.windows
        wanted = needs.select(COLD_SCHEMA.names).to_pylist()
        rows = [
            row
            for row in self._live.values()
            if row.get(OPEN_UNTIL_US, int(windows.open_until(np.array([row["end_us"]]))[0])) < bounds.expired_us
            and any(
                n["key"] == row["key"] and row["end_us"] >= n["from_us"] and row["start_us"] <= n["to_us"]
                for n in wanted
            )
        ]
        return self._engine_rows(operator, rows)

    @staticmethod
    def _engine_rows(operator: Sessionizer, rows: Sequence[Row]) -> pa.Table:
        """Return changes as the driver hands sessions to shards."""
        types = {"key": pa.string(), "state": pa.binary()}
        until = ("until_us",) if operator.spec.windows.keeps_until else ()
        names = ("key", "start_us", "end_us", "event_count", "revision", "state", *until)
        rows = [{**row, "until_us": row.get(OPEN_UNTIL_US)} for row in rows]
        return pa.Table.from_pylist(rows, schema=pa.schema([(name, types.get(name, pa.int64())) for name in names]))

    def _change_rows(self, table: pa.Table) -> list[dict[str, Any]]:
        rows = []
        for row in table.to_pylist():
            change = {"op": row["op"], "key": row["session_key"]}
            change |= {f"{edge}_us": _micros(row[f"session_{edge}"]) for edge in ("start", "end")}
            if OPEN_UNTIL in row and row[OPEN_UNTIL] is not None:
                change[OPEN_UNTIL_US] = _micros(row[OPEN_UNTIL])
            change |= {name: row[name] for name in ("event_count", "revision", *self._specs)}
            identity = (change["key"], change["start_us"])
            if row["op"] == "upsert":
                self._live[identity] = {**change, "state": row["state"]}
            elif row["op"] == "delete":
                self._live.pop(identity, None)
            rows.append(change)
        return rows

    def _side(
        self, results: Sequence[ShardResult], name: str, rows: Sequence[Row], asides: Sequence[pa.Table] = ()
    ) -> list[dict[str, Any]]:
        found: list[tuple[int, dict[str, Any]]] = []
        for table in (*asides, *(result.side[name] for result in results if name in result.side)):
            for item in table.to_pylist():
                index = int(item["source"])
                found.append((index, {**rows[index], **({"reason": item["reason"]} if name == DEAD else {})}))
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def _micros(time: Any) -> int:
    return int(pa.scalar(time, TIME).cast(pa.int64()).as_py())
