"""Test windows and aggregates in milliseconds: the sessionizer's shard operator and store without Spark.

What it can't do: read sources, write Delta tables, crash. Proven equal to the Spark engine by tests/stream/test_sessionizer.py.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from sessionlake.aggregates import AggregateSpec, build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.custom import Custom
from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.config.durations import parse_duration
from sessionlake.engine.operator import LOOKUP, Aside, BatchContext, Counted, Keyed, ShardResult, add_stats
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions.control import kinds_of, limits_of
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.shard import COLD_SCHEMA
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.stream.control import split_corrections
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, DROP, EMIT, EventSpec
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import advanced
from sessionlake.testing.rows import Row, correction_table, event_rows, type_of
from sessionlake.warehouse.batch_commit import WATERMARK
from sessionlake.warehouse.schemas import COLUMN_TYPES, COUNTS, STALE, TIME


@dataclass(frozen=True)
class Output:
    """What one micro-batch gave."""

    changes: list[dict[str, Any]]
    """op (upsert, delete, emit), key, start_us, end_us, event_count, revision and each aggregate by name."""
    late: list[dict[str, Any]]
    """The input rows that were late."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    stale: list[dict[str, Any]]
    """The replacements that were ignored because a session they name is gone or at another revision."""
    counts: dict[str, int]


class SessionizerHarness:
    """Run micro-batches of plain rows through the sessionizer.

    Rows are dicts: events have `key`, `time_us` and the columns the aggregates read; corrections have `kind` restate
    (key, start_us, end_us, event_count, columns as of one event), replace (key, remove = [(start_us, revision), ...],
    put = [partials]) or tombstone (key, start_us, revision). Column types are those of the first batch's first
    value, or `schema` = {"column": "long" | "double" | "string" | "boolean" | "timestamp" |
    "date"}.
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
    ) -> None:
        if beyond_retention not in (DEAD_LETTER, DROP, EMIT):
            raise ConfigError(f"beyond_retention: {beyond_retention!r} is unknown; write dead_letter, drop or emit")
        if (max_future_skew is None) != (clock is None):
            raise ConfigError("max_future_skew: needs a clock, and a clock needs it; give both or neither")
        self.windows, self._specs, self._shards = windows, dict(aggregates), shards
        self._policy, self._clock, self._event_id = beyond_retention, clock, event_id
        self._skew = None if max_future_skew is None else parse_duration(max_future_skew, "max_future_skew")
        unknown = [f"{name}: {type_!r}" for name, type_ in (schema or {}).items() if type_ not in COLUMN_TYPES]
        if unknown:
            raise ConfigError(f"schema: {unknown[0]} is unknown; write {', '.join(COLUMN_TYPES)}")
        self._schema = {name: COLUMN_TYPES[type_] for name, type_ in (schema or {}).items()}
        parsed = [AggregateSpec.parse(name, text) for name, text in aggregates.items()]
        self._inputs = tuple(dict.fromkeys(c for spec in parsed for c in spec.inputs))
        self._operator: Sessionizer | None = None
        self._state: dict[str, Any] = {}
        self._batch_id = 0
        self._live: dict[tuple[str, int], dict[str, Any]] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="sessionlake-")
        self._stores: dict[int, SegmentedSessionStore] = {}

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the last batch; None before the first accepted event."""
        return self._state.get(WATERMARK)

    def process(self, rows: Sequence[Row]) -> Output:
        """Run one micro-batch."""
        operator = self._operator or self._make_operator(rows)
        context = BatchContext(
            self._batch_id, f"c{self._batch_id}", dict(self._state), self._clock() if self._clock else 0
        )
        bounds = operator.bounds(context)
        events = [(i, row) for i, row in enumerate(rows) if "kind" not in row]
        corrections = [(i, row) for i, row in enumerate(rows) if "kind" in row]
        split: list[Keyed | Aside | Counted] = []
        if events:
            split += split_events(operator.spec, bounds, context.clock_us, event_rows(operator.spec.columns, events))
        if corrections:
            limits = limits_of(operator.spec, bounds, context.clock_us)
            table = correction_table(operator.spec, corrections)
            split += split_corrections(kinds_of(operator.spec), limits, table)
        pieces = [
            piece
            for keyed in split
            if isinstance(keyed, Keyed)
            for piece in by_shard(keyed.kind, keyed.rows, shard_of(keyed.keys, self._shards))
        ]
        results = self._apply(operator, pieces, context)
        stats = dict.fromkeys(COUNTS, 0)
        for counted in split:
            if isinstance(counted, Counted):
                add_stats(stats, counted.stats)
        for result in results.values():
            add_stats(stats, result.stats)
        for shard, result in results.items():
            if result.writes is not None:
                operator.commit(
                    self._store(operator, shard), result.writes, {"commit_id": context.commit_id.encode()}, context
                )
        self._state = advanced(self._state, stats)
        self._batch_id += 1
        changes = [change for result in results.values() for change in self._change_rows(result.changes)]
        asides = [aside.rows for aside in split if isinstance(aside, Aside) and aside.kind == DEAD]
        late, refused = self._side(results, LATE, rows), self._side(results, DEAD, rows, asides)
        dead = [row for row in refused if row["reason"] != STALE]
        stale = [{k: v for k, v in row.items() if k != "reason"} for row in refused if row["reason"] == STALE]
        return Output(changes, late, dead, stale, {name: stats[name] for name in COUNTS})

    def sessions(self) -> list[dict[str, Any]]:
        """Return the live store's warm sessions, ordered by key and start."""
        if self._operator is None:
            return []
        bounds = self._operator.bounds(BatchContext(0, "", self._state))
        rows = []
        for shard in range(self._shards):
            keys, found = self._store(self._operator, shard).scan(bounds.horizon_us)
            states = StateCodec(self._operator.spec.aggregates).decode(found.state)
            columns = {
                "key": [keys[i].decode() for i in found.codes.tolist()],
                "start_us": found.start.tolist(),
                "end_us": found.end.tolist(),
                "event_count": found.count.tolist(),
                "revision": found.revision.tolist(),
            }
            for aggregate in self._operator.spec.aggregates:
                columns[aggregate.name] = aggregate.value(states[: len(aggregate.state)]).to_pylist()
                states = states[len(aggregate.state) :]
            rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return sorted(rows, key=lambda row: (row["key"], row["start_us"]))

    def close(self) -> None:
        """Release the stores and their directory."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_operator(self, rows: Sequence[Row]) -> Sessionizer:
        types = {name: self._schema.get(name) or type_of(name, rows) for name in self._inputs}
        types |= {"key": pa.string(), "time_us": pa.int64()}
        if self._event_id:
            types.setdefault(self._event_id, pa.string())
        aggregates = build_aggregates(self._specs, types, with_id=self._event_id is not None)
        # A user's class names the columns it reads only once it is loaded; one that names none reads all.
        named = [column for aggregate in aggregates for column in aggregate.inputs]
        if any(isinstance(aggregate, Custom) and not aggregate.inputs for aggregate in aggregates):
            named += [name for row in rows for name in row if name not in ("key", "time_us", "kind", self._event_id)]
        inputs = tuple(dict.fromkeys((*self._inputs, *named)))
        types |= {name: self._schema.get(name) or type_of(name, rows) for name in inputs if name not in types}
        columns = EventColumns("key", "time_us", "us", self._event_id, inputs, types)
        self._operator = Sessionizer(
            SessionizerSpec(self.windows, aggregates, EventSpec(TableDecoder(columns, None), self._policy, self._skew))
        )
        return self._operator

    def _store(self, operator: Sessionizer, shard: int) -> SegmentedSessionStore:
        if shard not in self._stores:
            self._stores[shard] = operator.open_store(Path(self._directory.name) / str(shard))
        return self._stores[shard]

    def _apply(
        self, operator: Sessionizer, pieces: list[tuple[int, str, pa.Table]], context: BatchContext
    ) -> dict[int, ShardResult]:
        results = {
            shard: self._apply_shard(operator, shard, pieces, context) for shard in sorted({s for s, _, _ in pieces})
        }
        needs = [result.needs for result in results.values() if result.needs is not None]
        if not needs:
            return results
        cold = self._cold(operator, pa.concat_tables(needs), context)
        again = BatchContext(context.batch_id, context.commit_id, context.state, context.clock_us, handed_in=True)
        return self._apply(operator, pieces + cold, again)

    def _apply_shard(
        self, operator: Sessionizer, shard: int, pieces: list[tuple[int, str, pa.Table]], context: BatchContext
    ) -> ShardResult:
        inputs: dict[str, list[pa.Table]] = {}
        for s, kind, table in pieces:
            if s == shard:
                inputs.setdefault(kind, []).append(table)
        tables = {kind: pa.concat_tables(parts) for kind, parts in inputs.items()}
        return operator.apply(tables, self._store(operator, shard), context)

    def _cold(self, operator: Sessionizer, needs: pa.Table, context: BatchContext) -> list[tuple[int, str, pa.Table]]:
        """Look up cold sessions among all that were ever forwarded, as the driver does in sessions_live."""
        horizon = operator.bounds(context).horizon_us
        wanted = needs.select(COLD_SCHEMA.names).to_pylist()
        rows = [
            row
            for row in self._live.values()
            if row["end_us"] < horizon
            and any(
                n["key"] == row["key"] and row["end_us"] >= n["from_us"] and row["start_us"] <= n["to_us"]
                for n in wanted
            )
        ]
        if not rows:
            return []
        names = ("key", "start_us", "end_us", "event_count", "revision", "state")
        table = pa.Table.from_pylist([{n: row[n] for n in names} for row in rows])
        return list(by_shard(LOOKUP, table, shard_of(table["key"].combine_chunks(), self._shards)))

    def _change_rows(self, table: pa.Table) -> list[dict[str, Any]]:
        rows = []
        for row in table.to_pylist():
            change = {"op": row["op"], "key": row["session_key"]}
            change |= {f"{edge}_us": _micros(row[f"session_{edge}"]) for edge in ("start", "end")}
            change |= {name: row[name] for name in ("event_count", "revision", *self._specs)}
            identity = (change["key"], change["start_us"])
            if row["op"] == "upsert":
                self._live[identity] = {**change, "state": row["state"]}
            elif row["op"] == "delete":
                self._live.pop(identity, None)
            rows.append(change)
        return rows

    def _side(
        self, results: dict[int, ShardResult], name: str, rows: Sequence[Row], asides: Sequence[pa.Table] = ()
    ) -> list[dict[str, Any]]:
        found: list[tuple[int, dict[str, Any]]] = []
        for table in (*asides, *(result.side[name] for result in results.values() if name in result.side)):
            for item in table.to_pylist():
                index = int(item["source"])
                found.append((index, {**rows[index], **({"reason": item["reason"]} if name == DEAD else {})}))
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def _micros(time: Any) -> int:
    return int(pa.scalar(time, TIME).cast(pa.int64()).as_py())
