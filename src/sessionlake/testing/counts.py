"""Test windows by count in milliseconds: the operator and its store without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sessionlake.operators.counts.definition import CountDefinition
from sessionlake.operators.counts.local_tables import CountTables
from sessionlake.operators.counts.operator import Counter
from sessionlake.operators.counts.spec import CountSpec, policies
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.sources.decoding.rows import Origin
from sessionlake.stream.ingest import DEAD_LETTER, EVENTS
from sessionlake.testing.local import OperatorHarness, aggregated_columns
from sessionlake.testing.outputs import WindowOutput, window_output
from sessionlake.testing.rows import Row, event_rows


class CountHarness(OperatorHarness[Counter, CountTables]):
    """Run micro-batches of plain rows, dicts of `key`, `time_us`, the columns that aggregates read, and `partition` (default 0).

    Of the section [emit] only `early` and `tick_offset` mean something. If it is not `keyed`, all rows have one key, the empty text.

    >>> from sessionlake.testing import CountWindows
    >>> harness = CountHarness(CountWindows.of(2), {"n": "count()"})
    >>> output = harness.process([{"key": "a", "time_us": at} for at in range(3)])
    >>> [(row["window_start"], row["window_end"], row["n"]) for row in output.changes]
    [(1, 2, 2)]
    """

    def __init__(
        self,
        windows: CountDefinition,
        aggregates: Mapping[str, str],
        *,
        emit: EmitSection | None = None,
        shards: int = 1,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        keyed: bool = True,
        schema: Mapping[str, str] | None = None,
    ) -> None:
        self._windows, self._aggregates, self._keyed = windows, dict(aggregates), keyed
        given = (emit or EmitSection()).policies
        self._emit = policies(given.early, given.tick_offset)
        super().__init__(
            CountTables(), shards, beyond_retention=beyond_retention, max_future_skew=max_future_skew, schema=schema
        )

    def process(self, rows: Sequence[Row], clock_us: int = 0, *, chunk_rows: int = 1 << 30) -> WindowOutput:
        """Run one micro-batch at a time of the clock. Rows of a partition travel in chunks of `chunk_rows`, the last chunk first."""
        columns = self._build(rows).columns(EVENTS)
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
        return window_output(self._batch(clock_us, [(EVENTS, chunk) for chunk in reversed(chunks)]), rows)

    def tick(self, clock_us: int, *, flush: bool = False) -> WindowOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        return window_output(self._ticked(clock_us, flush=flush))

    def windows(self) -> list[dict[str, Any]]:
        """Return the last row sent of each window, ordered by key and start."""
        return self._tables.sent.sorted_rows()

    def stored(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the slices that the changelog of the state has, by key and start."""
        return {at: {n: v for n, v in row.items() if n != "op"} for at, row in self._tables.slices.items()}

    def _make_operator(self, rows: Sequence[Row]) -> Counter:
        aggregates, columns, shape = aggregated_columns(self._aggregates, self._declared, rows, keyed=self._keyed)
        defined, events = self._windows, self._events(replace(columns, ordered=True), shape)
        return Counter(
            CountSpec(defined.windows, defined.numbered, aggregates, events, self._emit, defined.retention_us)
        )
