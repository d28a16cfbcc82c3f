"""Test windows in milliseconds: the windows' operator and store without Spark. Equal to the Spark engine by tests/operators/windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from sessionlake.errors import ConfigError
from sessionlake.local.rows import Row, event_rows
from sessionlake.local.stream import LocalBatch
from sessionlake.operators.counts.definition import CountDefinition
from sessionlake.operators.counts.operator import CountedWindows
from sessionlake.operators.counts.spec import CountSpec, policies
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import WindowDefinition
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.restate import merged_late
from sessionlake.operators.windows.spec import WindowSpec, tables_in
from sessionlake.sources.decoding.rows import Origin
from sessionlake.stream.described import LatestTables
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EVENTS, event_table, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.testing.local import OperatorHarness, aggregated_columns, placed
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, PARTLY


@dataclass(frozen=True)
class WindowOutput:
    """The outputs of one micro-batch of windows; see `WindowHarness`."""

    changes: list[dict[str, Any]]
    """The rows of window_changelog without states and the marks of the batch; times in microseconds."""
    late: list[dict[str, Any]]
    """The input rows whose windows were all closed; none by count."""
    partly_late: list[dict[str, Any]]
    """The input rows that had closed windows and open ones; they are in the open ones."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    counts: dict[str, int]


class WindowHarness(OperatorHarness[Windower | CountedWindows, LatestTables]):
    """Run micro-batches of plain rows, dicts of `key`, `time_us` and the columns that aggregates read, through windows.

    Rows of windows by count may have a `partition`, 0 by default. `emit` has the keys of the section [emit]; by count, only `early`
    and `tick_offset` count. If it is not `keyed`, all rows have one key, the empty text. `schema` = {"column": "long" | "double" |
    "string" | "boolean" | "timestamp" | "date"} gives column types; the first batch's first values give the others.

    >>> from sessionlake.testing import EmitSection, TumblingWindows
    >>> harness = WindowHarness(TumblingWindows.of("1 minute"), {"n": "count()"}, emit=EmitSection(early="batch"))
    >>> output = harness.process([{"key": "a", "time_us": 0}, {"key": "a", "time_us": 61_000_000}])
    >>> [(row["window_start"], row["n"], row["trigger"]) for row in output.changes]
    [(0, 1, 'full'), (60000000, 1, 'early')]
    """

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
        self._windows, self._specs, self._keyed = windows, dict(aggregates), keyed
        self._emit = (emit or EmitSection()).policies
        tables = (
            CountedWindows.TABLES if isinstance(windows, CountDefinition) else tables_in(windows.windows, self._emit)
        )
        super().__init__(
            LatestTables(tables, shown=True),
            shards,
            beyond_retention=beyond_retention,
            max_future_skew=max_future_skew,
            schema=schema,
        )

    def process(self, rows: Sequence[Row], clock_us: int = 0, *, chunk_rows: int = 1 << 30) -> WindowOutput:
        """Run one micro-batch at a time of the clock.

        By count, rows of a partition travel in chunks of `chunk_rows`, the last chunk first.
        """
        columns = self._build(rows).columns(EVENTS)
        if isinstance(self._windows, WindowDefinition):
            return _output(self._batch(clock_us, [(EVENTS, event_rows(columns, list(enumerate(rows))))]), rows)
        places: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(int(row.get("partition", 0)), []).append(place)
        chunks = [
            event_rows(
                columns, [(at, rows[at]) for at in some[first : first + chunk_rows]], Origin(partition, (first, 0, 0))
            )
            for partition, some in places.items()
            for first in range(0, len(some), chunk_rows)
        ]
        return _output(self._batch(clock_us, [(EVENTS, chunk) for chunk in reversed(chunks)]), rows)

    def restate(self, rows: Sequence[Row], clock_us: int = 0, *, again: Sequence[Row] = ()) -> WindowOutput:
        """Run a micro-batch of restates: late events that enter their slices, also if the windows are closed.

        The closed windows that have the slice of one of the rows `again`, which are in it already, are sent again.
        """
        spec = cast("WindowSpec", self._build(rows).spec)
        both = [*rows, *again]
        given = event_rows(spec.events.decoder.columns, list(enumerate(both)))
        judged = judge(spec.events, given, clock_us, NO_WATERMARK)
        partly = pa.array(np.arange(len(both)) >= len(rows))
        late = event_table(spec.events, judged.events(judged.good)).append_column(PARTLY, partly)
        return _output(self._batch(clock_us, corrections=_corrections(merged_late(spec, late))), both)

    def tombstone(self, windows: Sequence[Mapping[str, Any]], clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch of tombstones of windows, given as rows that were sent; those that are not closed are stale."""
        rows = [
            {
                "correction_id": f"{number:012d}",
                "kind": "tombstone",
                "key": row["window_key"],
                "start_time": row["window_start"],
                "revision": row["revision"],
            }
            for number, row in enumerate(windows)
        ]
        return self.correct(rows, clock_us)

    def correct(self, corrections: Sequence[Mapping[str, Any]], clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch of corrections, given as rows of their table. Times are microseconds, missing columns are null.

        A row's correction_id is its place among the rows, as text.
        """
        table = pa.Table.from_pylist([dict(row) for row in corrections], schema=CORRECTIONS_SCHEMA)
        return _output(self._batch(clock_us, corrections=table), corrections)

    def slices(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the state by key and start: count, revision, packed aggregate states, and the numbers that decide when windows are sent."""
        return self._tables.state()

    def tick(self, clock_us: int, *, flush: bool = False) -> WindowOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        return _output(self._ticked(clock_us, flush=flush))

    def advance(self, watermark_us: int, clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch that moves the watermark, as `sessionlake run --drain` does."""
        return _output(self._advanced(watermark_us, clock_us))

    def change_emit(self, emit: EmitSection) -> None:
        """Go on under other policies, as after a change of the section [emit]; stores are restored, as a run does then."""
        changed = emit.policies
        if changed.updates != self._emit.updates:
            raise ConfigError("emit: to or from sending every change with its batch is a rebuild; use a new harness")
        self._emit = changed
        if self._operator is not None:
            self._operator = Windower(replace(cast("WindowSpec", self._operator.spec), emit=changed))
            self.lose_stores()

    def windows(self) -> list[dict[str, Any]]:
        """Return the last row sent of each window, ordered by key and start."""
        return self._tables.sent.sorted_rows()

    def _make_operator(self, rows: Sequence[Row]) -> Windower | CountedWindows:
        aggregates, columns, shape = aggregated_columns(self._specs, self._declared, rows, keyed=self._keyed)
        defined = self._windows
        if isinstance(defined, CountDefinition):
            events = self._events(replace(columns, ordered=True), shape)
            emit = policies(self._emit.early, self._emit.tick_offset)
            return CountedWindows(
                CountSpec(events, aggregates, defined.windows, defined.numbered, emit, defined.retention_us)
            )
        times = (defined.grace_us, defined.retention_us, defined.retention_count)
        events = self._events(columns, shape)
        return Windower(WindowSpec(events, aggregates, defined.windows, self._emit, *times))


def _output(batch: LocalBatch, rows: Sequence[Row] = ()) -> WindowOutput:
    """Return the output of a batch over these rows."""
    late = placed(batch.asides(LATE))
    return WindowOutput(
        [dict(row) for row in batch.changes],
        [dict(rows[at]) for at, row in late if not row[PARTLY]],
        [dict(rows[at]) for at, row in late if row[PARTLY]],
        [{**rows[at], "reason": row["reason"]} for at, row in placed(batch.asides(DEAD))],
        batch.stats,
    )


def _corrections(restates: pa.Table) -> pa.Table:
    """Return restates as rows of the table of corrections."""
    n = len(restates)
    columns = {name: restates[name] for name in restates.column_names}
    columns |= {"correction_id": pa.array([str(i) for i in range(n)], pa.string()), "kind": pa.repeat("restate", n)}
    arrays = [columns.get(f.name, pa.nulls(n, f.type)) for f in CORRECTIONS_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=CORRECTIONS_SCHEMA)
