"""Test windows in milliseconds: the windows' operator and store without Spark. Equal to the Spark engine by tests/operators/windows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.errors import ConfigError
from sessionlake.operators.counts.definition import CountDefinition
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.windows.definition import WindowDefinition
from sessionlake.operators.windows.local_tables import WindowTables
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.restate import merged_late
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.stream.ingest import DEAD_LETTER, EVENTS, event_table, judge
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.testing.counts import CountHarness
from sessionlake.testing.local import OperatorHarness, aggregated_columns
from sessionlake.testing.outputs import WindowOutput, window_output
from sessionlake.testing.rows import Row, event_rows
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, PARTLY


class WindowHarness(OperatorHarness[Windower, WindowTables]):
    """Run micro-batches of plain rows, dicts of `key`, `time_us` and the columns that aggregates read, through windows.

    `emit` are the keys of the section [emit]. If it is not `keyed`, all rows have one key, the empty text. Column types
    are those of the first batch's first value, or `schema` = {"column": "long" | "double" | "string" | "boolean" |
    "timestamp" | "date"}.

    >>> from sessionlake.testing import EmitSection, TumblingWindows
    >>> harness = WindowHarness(TumblingWindows.of("1 minute"), {"n": "count()"}, emit=EmitSection(early="batch"))
    >>> output = harness.process([{"key": "a", "time_us": 0}, {"key": "a", "time_us": 61_000_000}])
    >>> [(row["window_start"], row["n"], row["trigger"]) for row in output.changes]
    [(0, 1, 'full'), (60000000, 1, 'early')]
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
        self._emit = (emit or EmitSection()).policies
        super().__init__(
            WindowTables(), shards, beyond_retention=beyond_retention, max_future_skew=max_future_skew, schema=schema
        )

    def process(self, rows: Sequence[Row], clock_us: int = 0) -> WindowOutput:
        """Run one micro-batch at a time of the clock."""
        events = event_rows(self._build(rows).columns(EVENTS), list(enumerate(rows)))
        return window_output(self._batch(clock_us, [(EVENTS, events)]), rows)

    def restate(self, rows: Sequence[Row], clock_us: int = 0, *, again: Sequence[Row] = ()) -> WindowOutput:
        """Run a micro-batch of restates: late events that enter their slices, also if the windows are closed.

        The closed windows that have the slice of one of the rows `again`, which are in it already, are sent again.
        """
        spec = self._build(rows).spec
        both = [*rows, *again]
        given = event_rows(spec.events.decoder.columns, list(enumerate(both)))
        judged = judge(spec.events, given, clock_us, NO_WATERMARK)
        partly = pa.array(np.arange(len(both)) >= len(rows))
        late = event_table(spec.events, judged.events(judged.good)).append_column(PARTLY, partly)
        return window_output(self._batch(clock_us, corrections=_corrections(merged_late(spec, late))), both)

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
        return window_output(self._batch(clock_us, corrections=table), corrections)

    def slices(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the state by key and start: count, revision, packed aggregate states, and the numbers that decide when windows are sent."""
        return {at: {n: v for n, v in row.items() if n != "op"} for at, row in self._tables.slices.items()}

    def tick(self, clock_us: int, *, flush: bool = False) -> WindowOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        return window_output(self._ticked(clock_us, flush=flush))

    def advance(self, watermark_us: int, clock_us: int = 0) -> WindowOutput:
        """Run a micro-batch that moves the watermark, as `sessionlake run --drain` does."""
        return window_output(self._advanced(watermark_us, clock_us))

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
        return self._tables.sent.sorted_rows()

    def _make_operator(self, rows: Sequence[Row]) -> Windower:
        aggregates, columns, shape = aggregated_columns(self._specs, self._declared, rows, keyed=self._keyed)
        defined = self._windows
        return Windower(
            WindowSpec(
                defined.windows,
                aggregates,
                self._events(columns, shape),
                self._emit,
                defined.grace_us,
                defined.retention_us,
                defined.retention_count,
            )
        )


def _corrections(restates: pa.Table) -> pa.Table:
    """Return restates as rows of the table of corrections."""
    n = len(restates)
    columns = {name: restates[name] for name in restates.column_names}
    columns |= {"correction_id": pa.array([str(i) for i in range(n)], pa.string()), "kind": pa.repeat("restate", n)}
    arrays = [columns.get(f.name, pa.nulls(n, f.type)) for f in CORRECTIONS_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=CORRECTIONS_SCHEMA)
