"""Test windows by count in milliseconds: the operator and its store without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import Aside, BatchContext, Counted, Piece
from sessionlake.operators.counts.definition import CountDefinition
from sessionlake.operators.counts.mapper import split_events
from sessionlake.operators.counts.operator import Counter
from sessionlake.operators.counts.shard import STATE
from sessionlake.operators.counts.spec import CountSpec, policies
from sessionlake.operators.windows.emission import Progress, next_progress
from sessionlake.operators.windows.section import EmitSection
from sessionlake.sources.decoding.rows import Origin
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.series import SeriesStore
from sessionlake.stream.control import MAX_FLUSH
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EventSpec
from sessionlake.stream.positions import chunk_of, counted
from sessionlake.testing.local import Harness, aggregated_columns, declared_types, skew_of
from sessionlake.testing.outputs import WindowOutput
from sessionlake.testing.rows import Row, event_rows

_STORED = pa.schema(
    [
        ("key", pa.string()),
        *((name, pa.int64()) for name in ("start", "last", "count", "revision", "first", "newest")),
        ("state", pa.binary()),
    ]
)


class CountHarness(Harness[SeriesStore]):
    """Run micro-batches of plain rows, dicts of `key`, `time_us`, the columns that aggregates read, and `partition`, 0 where it is absent.

    Of the section [emit] only `early` and `tick_offset` mean something. Where it is not `keyed`, all rows have one key, the empty text.
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
        self._emit, self._policy = policies(given.early, given.tick_offset), beyond_retention
        self._declared, self._skew = declared_types(schema), skew_of(max_future_skew)
        super().__init__(shards)
        self._operator: Counter | None = None
        self._state: dict[str, Any] = {}
        self._batch_id = 0
        self._slices: dict[tuple[str, int], dict[str, Any]] = {}
        self._sent: dict[tuple[str, int], dict[str, Any]] = {}

    def process(self, rows: Sequence[Row], clock_us: int = 0, *, chunk_rows: int = 1 << 30) -> WindowOutput:
        """Run one micro-batch at a time of the clock; rows of a partition travel in chunks of so many, those of the last first."""
        operator = self._operator or self._make_operator(rows)
        context = self._context(clock_us)
        places: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(int(row.get("partition", 0)), []).append(place)
        chunks = [
            (partition, first, some[first : first + chunk_rows])
            for partition, some in places.items()
            for first in range(0, len(some), chunk_rows)
        ]
        split: list[Piece] = []
        for number, (partition, first, some) in enumerate(reversed(chunks)):
            events = event_rows(operator.spec.events.decoder.columns, [(place, rows[place]) for place in some])
            events = replace(events, origin=Origin(partition, (first, 0, 0)))
            split += split_events(operator.spec, context, chunk_of(context, number), events)
        return self._run(operator, split, rows, context)

    def tick(self, clock_us: int, *, flush: bool = False) -> WindowOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        operator = self._operator or self._make_operator([])
        return self._run(operator, [Counted({MAX_FLUSH: 1} if flush else {})], [], self._context(clock_us))

    def windows(self) -> list[dict[str, Any]]:
        """Return the last row sent of each window, ordered by key and start."""
        return [self._sent[identity] for identity in sorted(self._sent)]

    def lose_stores(self) -> None:
        """Restore every store from the changelog, as after the loss of its disk."""
        operator = self._operator
        if operator is None:
            return
        rows = pa.Table.from_pylist(list(self._slices.values()), schema=_STORED)
        self._shards.restore(operator, rows, self._context(0))

    def stored(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the slices that the changelog of the state has, by key and start."""
        return self._slices

    def _context(self, clock_us: int) -> BatchContext:
        return BatchContext(self._batch_id, f"c{self._batch_id}", dict(self._state), clock_us)

    def _make_operator(self, rows: Sequence[Row]) -> Counter:
        aggregates, columns = aggregated_columns(self._aggregates, self._declared, rows, keyed=self._keyed)
        columns = replace(columns, ordered=True)
        events = EventSpec(TableDecoder(columns, None), self._policy, self._skew)
        defined = self._windows
        spec = CountSpec(
            defined.windows,
            defined.numbered,
            aggregates,
            events,
            self._emit,
            defined.retention_us,
        )
        self._operator = Counter(spec)
        return self._operator

    def _run(
        self, operator: Counter, split: Sequence[Piece], rows: Sequence[Row], context: BatchContext
    ) -> WindowOutput:
        results, stats = self._shards.run(operator, split, context, _nothing)
        spec, before = operator.spec, Progress.of(self._state)
        after = next_progress(spec.emit, spec.retention_us, spec.retention_us, before, stats).state()
        self._state = {**after, **counted(self._state, stats)}
        self._batch_id += 1
        changes = []
        for result in results:
            for row in _plain(result.changes):
                self._sent[row["window_key"], row["window_start"]] = row
                changes.append(row)
            for row in result.side.get(STATE, pa.table({})).to_pylist():
                self._keep(row)
        dead = [
            {**rows[int(row["source"])], "reason": row["reason"]}
            for piece in split
            if isinstance(piece, Aside) and piece.kind == DEAD
            for row in piece.rows.to_pylist()
        ]
        return WindowOutput(changes, [], [], dead, stats)

    def _keep(self, row: dict[str, Any]) -> None:
        """Keep a row of the state's changelog, from which stores are restored."""
        identity = row["slice_key"], row["slice_start"]
        if row["op"] == "delete":
            del self._slices[identity]
            return
        names = {"slice_key": "key", "slice_start": "start", "slice_end": "last", "event_count": "count"}
        self._slices[identity] = {names.get(name, name): value for name, value in row.items() if name != "op"}


def _nothing(asked: pa.Table) -> pa.Table:
    return asked


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    schema = pa.schema([(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in table.schema])
    rows: list[dict[str, Any]] = table.cast(schema).to_pylist()
    return rows
