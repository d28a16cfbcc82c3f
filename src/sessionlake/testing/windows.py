"""Test windows in milliseconds: the windows' operator and store without Spark. Equal to the Spark engine by tests/operators/windows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.engine.operator import (
    Aside,
    BatchContext,
    Counted,
    Piece,
    ShardResult,
)
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.definition import CountDefinition
from sessionlake.operators.windows.control import SENT_SCHEMA, kinds_of
from sessionlake.operators.windows.definition import WindowDefinition
from sessionlake.operators.windows.emission import Progress
from sessionlake.operators.windows.mapper import split_events
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.restate import merged_late
from sessionlake.operators.windows.section import EmitSection
from sessionlake.operators.windows.shard import STATE
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.slices import SliceStore
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH, Limits, split_corrections
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EventSpec, event_table, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.testing.counts import CountHarness
from sessionlake.testing.local import Harness, aggregated_columns, declared_types, skew_of
from sessionlake.testing.outputs import WindowOutput
from sessionlake.testing.rows import Row, event_rows
from sessionlake.warehouse.batch_commit import WATERMARK
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, PARTLY

_STORED = {"key": pa.string(), "state": pa.binary()}


class WindowHarness(Harness[SliceStore]):
    """Run micro-batches of plain rows, dicts of `key`, `time_us` and the columns that aggregates read, through windows.

    `emit` are the keys of the section [emit]. Where it is not `keyed`, all rows have one key, the empty text. Column types
    are those of the first batch's first value, or `schema` = {"column": "long" | "double" | "string" | "boolean" |
    "timestamp" | "date"}.
    """

    def __new__(cls, windows: WindowDefinition | CountDefinition, *given: Any, **options: Any) -> Any:
        """Return a harness; of windows by count it is a `CountHarness`."""
        if isinstance(windows, CountDefinition):
            return CountHarness(windows, *given, **options)
        return super().__new__(cls)

    def __init__(
        self,
        windows: WindowDefinition | CountDefinition,
        aggregates: Mapping[str, str],
        *,
        emit: EmitSection | None = None,
        shards: int = 1,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        keyed: bool = True,
        schema: Mapping[str, str] | None = None,
    ) -> None:
        assert isinstance(windows, WindowDefinition)  # noqa: S101 (`__new__` makes no other)
        self._windows, self._specs, self._keyed = windows, dict(aggregates), keyed
        self._emit, self._policy = (emit or EmitSection()).policies, beyond_retention
        self._declared, self._skew = declared_types(schema), skew_of(max_future_skew)
        super().__init__(shards)
        self._operator: Windower | None = None
        self._state: dict[str, Any] = {}
        self._batch_id = 0
        self._slices: dict[tuple[str, int], dict[str, Any]] = {}
        self._sent: dict[tuple[str, int], dict[str, Any]] = {}

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the last batch; None before the first accepted event."""
        return self._state.get(WATERMARK)

    def process(self, rows: Sequence[Row], clock_us: int = 0) -> WindowOutput:
        """Run one micro-batch at a time of the clock."""
        operator = self._operator or self._make_operator(rows)
        at = Progress.of(self._state)
        events = event_rows(operator.spec.events.decoder.columns, list(enumerate(rows)))
        return self._run(operator, list(split_events(operator.spec, at, clock_us, events)), rows, clock_us)

    def restate(self, rows: Sequence[Row], clock_us: int = 0, *, again: Sequence[Row] = ()) -> WindowOutput:
        """Run a micro-batch of restates: late events that enter their slices whatever is closed.

        The closed windows that have the slice of one of the rows `again`, which are in it already, are sent again.
        """
        operator = self._operator or self._make_operator(rows)
        spec, at = operator.spec, Progress.of(self._state)
        both = [*rows, *again]
        given = event_rows(spec.events.decoder.columns, list(enumerate(both)))
        judged = judge(spec.events, given, clock_us, NO_WATERMARK)
        partly = pa.array(np.arange(len(both)) >= len(rows))
        late = event_table(spec.events, judged.events(judged.good)).append_column(PARTLY, partly)
        corrections = _corrections(merged_late(spec, late))
        split = split_corrections(kinds_of(spec), Limits(at.expired_us, None, clock_us), corrections)
        return self._run(operator, list(split), both, clock_us)

    def tombstone(self, windows: Sequence[Mapping[str, Any]], clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch of tombstones of windows, given as rows that were sent; those that are not closed are stale."""
        rows = [
            {
                "correction_id": f"{number:012d}",
                "kind": "tombstone",
                "session_key": row["window_key"],
                "session_start": row["window_start"],
                "revision": row["revision"],
            }
            for number, row in enumerate(windows)
        ]
        return self.correct(rows, clock_us)

    def correct(self, corrections: Sequence[Mapping[str, Any]], clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch of corrections, given as rows of their table: times in microseconds, what is left out null.

        A row's correction_id is its place among the rows, as text.
        """
        operator = self._operator or self._make_operator([])
        table = pa.Table.from_pylist([dict(row) for row in corrections], schema=CORRECTIONS_SCHEMA)
        limits = Limits(Progress.of(self._state).expired_us, None, clock_us)
        split = list(split_corrections(kinds_of(operator.spec), limits, table))
        return self._run(operator, split, corrections, clock_us)

    def slices(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the state by key and start: count, revision, packed aggregate states and what tells when windows are sent."""
        return {identity: dict(row) for identity, row in self._slices.items()}

    def tick(self, clock_us: int, *, flush: bool = False) -> WindowOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        operator = self._operator or self._make_operator([])
        return self._run(operator, [Counted({MAX_FLUSH: 1} if flush else {})], [], clock_us)

    def advance(self, watermark_us: int, clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch that moves the watermark, as `sessionlake run --drain` does."""
        operator = self._operator or self._make_operator([])
        return self._run(operator, [Counted({MAX_ADVANCE: watermark_us})], [], clock_us)

    def change_emit(self, emit: EmitSection) -> None:
        """Go on under other policies, as after a change of the section [emit]; stores are restored, as a run does then."""
        policies = emit.policies
        if policies.updates != self._emit.updates:
            raise ConfigError("emit: to or from sending every change with its batch is a rebuild; use a new harness")
        self._emit = policies
        if self._operator is not None:
            self._operator = Windower(replace(self._operator.spec, emit=policies))
            self.lose_stores()

    def windows(self) -> list[dict[str, Any]]:
        """Return the last row sent of each window, ordered by key and start."""
        return [self._sent[identity] for identity in sorted(self._sent)]

    def lose_stores(self) -> None:
        """Restore every store from the changelog, as after the loss of its disk."""
        operator = self._operator
        if operator is None:
            return
        context = BatchContext(self._batch_id, "", self._state)
        at = Progress.of(self._state).horizon_us(operator.spec.windows.span_us)
        kept = [row for row in self._slices.values() if row["start"] >= at]
        schema = pa.schema([(name, _STORED.get(name, pa.int64())) for name in (kept or [{"key": ""}])[0]])
        self._shards.restore(operator, pa.Table.from_pylist(kept, schema=schema), context)

    def _make_operator(self, rows: Sequence[Row]) -> Windower:
        aggregates, columns = aggregated_columns(self._specs, self._declared, rows, keyed=self._keyed)
        events = EventSpec(TableDecoder(columns, None), self._policy, self._skew)
        defined = self._windows
        spec = WindowSpec(
            defined.windows,
            aggregates,
            events,
            self._emit,
            defined.grace_us,
            defined.retention_us,
            defined.retention_count,
        )
        self._operator = Windower(spec)
        return self._operator

    def _run(self, operator: Windower, split: Sequence[Piece], rows: Sequence[Row], clock_us: int) -> WindowOutput:
        context = BatchContext(self._batch_id, f"c{self._batch_id}", dict(self._state), clock_us)
        results, stats = self._shards.run(operator, split, context, self._answer)
        self._state = operator.spec.next_progress(Progress.of(self._state), stats).state()
        self._batch_id += 1
        changes = [row for result in results for row in self._window_rows(result.changes)]
        for result in results:
            self._keep_slices(result)
        late = self._asides(split, LATE)
        return WindowOutput(
            changes,
            [dict(rows[at]) for at, row in late if not row[PARTLY]],
            [dict(rows[at]) for at, row in late if row[PARTLY]],
            [{**rows[at], "reason": row["reason"]} for at, row in self._asides(split, DEAD)],
            stats,
        )

    def _answer(self, asked: pa.Table) -> pa.Table:
        """Return the rows that shards ask for as they were sent last, as the driver does from window_changelog."""
        identities = [(row["key"], row["start_us"]) for row in asked.to_pylist()]
        found = [(key, start, self._sent[key, start]) for key, start in identities if (key, start) in self._sent]
        past = 1 if self._operator is not None and self._operator.spec.is_sliding else 0
        rows = [(key, start, row["window_end"] + past, row["revision"]) for key, start, row in found]
        return pa.Table.from_pylist(
            [dict(zip(SENT_SCHEMA.names, row, strict=True)) for row in rows], schema=SENT_SCHEMA
        )

    def _window_rows(self, table: pa.Table) -> list[dict[str, Any]]:
        names = [name for name in table.column_names if name != "state"]
        plain = table.select(names).cast(
            pa.schema(
                [(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in table.select(names).schema]
            )
        )
        rows: list[dict[str, Any]] = plain.to_pylist()
        for row in rows:
            if row["op"] == "delete":
                self._sent.pop((row["window_key"], row["window_start"]), None)
            else:
                self._sent[row["window_key"], row["window_start"]] = row
        return rows

    def _keep_slices(self, result: ShardResult) -> None:
        """Keep the state's changelog, from which stores are restored."""
        table, of = result.side.get(STATE), "slice"
        if table is None:
            table, of = result.changes, "window"
        if "state" not in table.column_names:
            return
        names = {"op": "op", f"{of}_key": "key", f"{of}_start": "start", "event_count": "count"}
        kept = [n for n in (*names, "revision", "reach", "born", "born_reach", "state") if n in table.column_names]
        table = table.select(kept).rename_columns([names.get(name, name) for name in kept])
        at = table.schema.get_field_index("start")
        for row in table.set_column(at, "start", table["start"].cast(pa.int64())).to_pylist():
            if row.pop("op") == "delete":
                self._slices.pop((row["key"], row["start"]), None)
            else:
                self._slices[row["key"], row["start"]] = row

    @staticmethod
    def _asides(split: Sequence[Piece], kind: str) -> list[tuple[int, dict[str, Any]]]:
        found = [
            (int(row["source"]), row)
            for piece in split
            if isinstance(piece, Aside) and piece.kind == kind
            for row in piece.rows.select(
                [n for n in ("source", "reason", PARTLY) if n in piece.rows.column_names]
            ).to_pylist()
        ]
        return sorted(found, key=lambda pair: pair[0])


def _corrections(restates: pa.Table) -> pa.Table:
    """Return restates as rows of the table of corrections."""
    n = len(restates)
    columns = {name: restates[name] for name in restates.column_names}
    columns |= {"correction_id": pa.array([str(i) for i in range(n)], pa.string()), "kind": pa.repeat("restate", n)}
    arrays = [columns.get(f.name, pa.nulls(n, f.type)) for f in CORRECTIONS_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=CORRECTIONS_SCHEMA)
