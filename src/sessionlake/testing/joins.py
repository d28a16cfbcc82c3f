"""Test joins in milliseconds: the joins' operator and store without Spark. Equal to the Spark engine by tests/operators/joins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sessionlake.columnar.arrays import plain_text
from sessionlake.config.durations import parse_duration, retention_of
from sessionlake.config.equal_columns import cast_columns
from sessionlake.local.columns import type_of
from sessionlake.local.rows import Row, event_rows
from sessionlake.local.stream import LocalBatch
from sessionlake.operators.joins.control import RESTATE, TOMBSTONE
from sessionlake.operators.joins.local_tables import JoinTables
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.spec import POSITION, SIDE, SLIDING, JoinSpec, Side
from sessionlake.operators.shared.sides.columns import packed
from sessionlake.operators.shared.sides.equality import comparable, equal_types
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES
from sessionlake.operators.shared.sides.section import pairs_on
from sessionlake.operators.shared.windowing.policies import BATCH, END, OFF, Policies
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Origin, Rows
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.testing.local import OperatorHarness
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, TIME


@dataclass(frozen=True)
class JoinOutput:
    """The outputs of one micro-batch of a join. Each late or refused row has a `side`, left or right; see `JoinHarness`."""

    pairs: list[dict[str, Any]]
    """The rows of join_changelog without the marks of the batch, also of messages without a partner; times in microseconds."""
    late: list[dict[str, Any]]
    """The input rows whose last possible partner was closed, with `position`."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    counts: dict[str, int]


class JoinHarness(OperatorHarness[Joiner, JoinTables]):
    """Run micro-batches of plain rows, dicts of `time_us`, the equal fields and the columns, through a join.

    `left` and `right` have name, size (a duration, a number of messages, None for as retention allows) and columns. A row
    may have a `partition`, a number: its source's. Column types are those of the first batch's first value, or `schema` =
    {"column": "long" | "double" | "string" | "boolean" | "timestamp" | "date"}.

    >>> left, right = {"name": "orders", "size": "2 minutes"}, {"name": "shipments", "size": "30 seconds"}
    >>> harness = JoinHarness(on=["id"], left=left, right=right, retention="1 hour")
    >>> output = harness.process([{"id": "a", "time_us": 0}], [{"id": "a", "time_us": 90_000_000}])
    >>> [(row["join_key"], row["left_time"], row["right_time"]) for row in output.pairs]
    [('a', 0, 90000000)]

    `type` and `unmatched` make it an outer join, for example one with all orders:

    >>> harness = JoinHarness(on=["id"], left=left, right=right, type="left", grace="0 seconds", retention="1 hour")
    >>> output = harness.process([{"id": "a", "time_us": 0}], [])
    >>> [(row["left_time"], row["right_time"]) for row in harness.advance(150_000_001).pairs]
    [(0, None)]

    `early="off"` and `full="end"` or `"close"` send pairs of windows together, when their window is full:

    >>> sides = {"left": {"name": "orders"}, "right": {"name": "shipments"}}
    >>> windows = {"kind": "tumbling", "size": "1 hour", "retention": "1 day"}
    >>> harness = JoinHarness(on=["id"], **sides, **windows, early="off", full="end")
    >>> output = harness.process([{"id": "a", "time_us": 0}], [{"id": "a", "time_us": 90_000_000}])
    >>> len(output.pairs), len(harness.advance(3_600_000_000).pairs)
    (0, 1)
    """

    def __init__(
        self,
        *,
        on: Sequence[str],
        left: Mapping[str, Any],
        right: Mapping[str, Any],
        by: str = "time",
        kind: str = SLIDING,
        type: str = "inner",  # noqa: A002 - as the key is called
        unmatched: str = "close",
        size: str | int = 0,
        advance: str | int = 0,
        offset: str | int = 0,
        gap: str | int = 0,
        grace: str | None = None,
        retention: str | None = None,
        retention_count: int = 0,
        idle: str = "1 minute",
        early: str = "batch",
        full: str | None = None,
        late: str = "batch",
        shards: int = 1,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        schema: Mapping[str, str] | None = None,
        retention_time: str | None = None,
    ) -> None:
        self._is_graced = grace is not None
        self._on, self._casts = pairs_on("on", on), tuple(map(cast_columns, on))
        self._sides = {LEFT: left, RIGHT: right}
        self._settings: dict[str, Any] = {
            "by": by,
            "kind": kind,
            "outer": {"inner": (), "full": SIDES}.get(type, (type,)),
            "unmatched": unmatched,
            **{n: _length(v) for n, v in {"size": size, "advance": advance, "offset": offset, "gap": gap}.items()},
            "grace_us": 0 if grace is None else parse_duration(grace),
            "retention_us": parse_duration(retention_of(retention, retention_time) or "0 seconds"),
            "retention_count": retention_count,
            "idle_us": parse_duration(idle),
            "emit": _policies(early, full, late),
        }
        super().__init__(
            JoinTables(), shards, beyond_retention=beyond_retention, max_future_skew=max_future_skew, schema=schema
        )

    def process(self, left: Sequence[Row], right: Sequence[Row], clock_us: int = 0) -> JoinOutput:
        """Run one micro-batch at a time of the clock."""
        rows = {LEFT: left, RIGHT: right}
        if self._operator is None:
            self._operator = self._joiner(rows)
        given = [(side, chunk) for side in SIDES for chunk in self._chunks(side, rows[side])]
        return self._output(self._batch(clock_us, given), rows)

    def tick(self, clock_us: int, *, flush: bool = False) -> JoinOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        return self._output(self._ticked(clock_us, flush=flush))

    def advance(self, watermark_us: int, clock_us: int = 0) -> JoinOutput:
        """Run a micro-batch that moves the watermark, as `sessionlake run --drain` does."""
        return self._output(self._advanced(watermark_us, clock_us))

    def remove(self, key: str, left_position: int, right_position: int, clock_us: int = 0) -> JoinOutput:
        """Run a micro-batch of a tombstone, which deletes a pair."""
        pair = self._tables.pairs.get((key, left_position, right_position), {"left_time": 0, "right_time": 0})
        times = [time for time in (pair["left_time"], pair["right_time"]) if time is not None]
        named = {
            "key": [key],
            "start_time": [max(times)],
            "ordinal": [left_position],
            "other_ordinal": [right_position],
        }
        return self._output(self._batch(clock_us, corrections=self._corrections(TOMBSTONE, named)))

    def again(self, late: Sequence[Row], clock_us: int = 0) -> JoinOutput:
        """Run a micro-batch that adds late rows of an earlier batch's output again, as if they were new."""
        spec, tables = self._build().spec, [CORRECTIONS_SCHEMA.empty_table()]
        for side in SIDES:
            rows = [row for row in late if row[SIDE] == side]
            own = spec.side(side)
            judged = judge(own.events, event_rows(own.events.decoder.columns, list(enumerate(rows))), 0, NO_WATERMARK)
            events = judged.events(judged.good)
            columns = {
                "key": plain_text(events.keys),
                "start_time": pa.array(events.time_us).cast(TIME),
                "ordinal": pa.array([row[POSITION] for row in rows], pa.int64()),
                "state": packed(own, [events.columns[name] for name in own.columns], len(rows)),
            }
            if rows:
                tables.append(self._corrections(RESTATE[side], columns))
        return self._output(self._batch(clock_us, corrections=pa.concat_tables(tables)))

    def emit(self, early: str, late: str, full: str | None = None) -> None:
        """Go on with other policies, as a run with another config does: stores are laid out again."""
        self._settings["emit"] = _policies(early, full, late)
        if self._operator is not None:
            self._operator = Joiner(replace(self._operator.spec, emit=self._settings["emit"]))
            self.lose_stores()

    def joins(self) -> list[dict[str, Any]]:
        """Return all pairs that were sent and not deleted, by key and positions."""
        return self._tables.pairs.sorted_rows()

    def _make_operator(self, rows: Sequence[Row]) -> Joiner:
        return self._joiner(dict.fromkeys(SIDES, rows))

    def _joiner(self, rows: Mapping[str, Sequence[Row]]) -> Joiner:
        sides = {}
        fields = {side: {pair[at] for pair in self._on} for at, side in enumerate(SIDES)}
        inferred = {
            side: {name: type_of(name, some) for name in fields[side] if any(row.get(name) is not None for row in some)}
            for side, some in rows.items()
        }
        known = equal_types(self._on, {side: {**inferred.get(side, {}), **self._declared} for side in SIDES})
        for at, side in enumerate(SIDES):
            given = self._sides[side]
            keys = [pair[at] for pair in self._on]
            names = tuple(given.get("columns", ()))
            found = {n: known[side].get(n) or type_of(n, rows.get(side, ())) for n in (*keys, *names)}
            columns = EventColumns(
                keys[0] if keys else None,
                "time_us",
                "us",
                None,
                names,
                {**found, "time_us": pa.int64()},
                further_keys=tuple(keys[1:]),
            )
            size = given.get("size")
            sides[side] = Side(given["name"], None if size is None else _length(size), names, self._events(columns))
        left, right = comparable("on", self._on, self._casts, sides[LEFT], sides[RIGHT])
        spec = JoinSpec(left, right, self._on, **self._settings)
        return Joiner(spec if self._is_graced else replace(spec, grace_us=spec.default_grace_us))

    def _chunks(self, side: str, rows: Sequence[Row]) -> Iterator[Rows]:
        columns = self._build().columns(side)
        for partition in sorted({row.get("partition", 0) for row in rows}):
            some = [(i, row) for i, row in enumerate(rows) if row.get("partition", 0) == partition]
            yield event_rows(columns, some, Origin(partition, (0, 0, 0)))

    def _corrections(self, kind: str, columns: Mapping[str, Any]) -> pa.Table:
        """Return rows of the table of corrections that have these columns."""
        n = len(columns["key"])
        ids = [f"{kind}-{self._batches}-{i}" for i in range(n)]
        given = {**columns, "correction_id": ids, "kind": [kind] * n}
        schema = CORRECTIONS_SCHEMA
        arrays = [pa.array(given[f.name], f.type) if f.name in given else pa.nulls(n, f.type) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    @staticmethod
    def _output(batch: LocalBatch, rows: Mapping[str, Sequence[Row]] | None = None) -> JoinOutput:
        given = rows or {}

        def named(tables: Sequence[pa.Table], name: str) -> list[dict[str, Any]]:
            found = [row for table in tables for row in table.to_pylist() if row.get(SIDE) in given]
            found.sort(key=lambda row: (row[SIDE], int(row["source"])))
            return [{**given[r[SIDE]][int(r["source"])], SIDE: r[SIDE], name: r[name]} for r in found]

        late, dead = named(batch.tables(LATE), POSITION), named(batch.asides(DEAD), "reason")
        return JoinOutput([dict(row) for row in batch.changes], late, dead, batch.stats)


def _length(value: str | int) -> int:
    return value if isinstance(value, int) else parse_duration(value)


def _policies(early: str, full: str | None, late: str) -> Policies:
    first, second = (text if text in (OFF, BATCH) else parse_duration(text) for text in (early, late))
    return Policies(first, full or END, second)
