"""Test joins in milliseconds: the joins' operator and store without Spark. Equal to the Spark engine by tests/operators/joins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import plain_text
from sessionlake.config.durations import parse_duration
from sessionlake.engine.operator import (
    Aside,
    BatchContext,
    Counted,
    Piece,
    ShardResult,
)
from sessionlake.operators.joins.control import RESTATE, TOMBSTONE, kinds_of, pack
from sessionlake.operators.joins.mapper import split_messages
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.rules import JoinProgress, next_state
from sessionlake.operators.joins.spec import LEFT, MESSAGES, POSITION, RIGHT, SIDE, SIDES, SLIDING, JoinSpec, Side
from sessionlake.operators.windows.emission import BATCH, Policies
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Origin
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.store.messages import MessageStore
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH, Limits, split_corrections
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EventSpec, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.testing.local import Harness, declared_types, skew_of
from sessionlake.testing.rows import Row, event_rows, type_of
from sessionlake.warehouse.batch_commit import WATERMARK
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, TIME


@dataclass(frozen=True)
class JoinOutput:
    """What one micro-batch gave. Rows of the two sides are told apart by `side`, left or right."""

    pairs: list[dict[str, Any]]
    """The rows of join_changelog, but for marks; times in microseconds."""
    late: list[dict[str, Any]]
    """The input rows whose last possible partner was closed, with `position`."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    counts: dict[str, int]


class JoinHarness(Harness[MessageStore]):
    """Run micro-batches of plain rows, dicts of `time_us`, the equal fields and the columns, through a join.

    `left` and `right` have name, size (a duration, a number of messages, None for as retention allows) and columns. A row
    may have a `partition`, a number: its source's. Column types are those of the first batch's first value, or `schema` =
    {"column": "long" | "double" | "string" | "boolean" | "timestamp" | "date"}.
    """

    def __init__(
        self,
        *,
        on: Sequence[str],
        left: Mapping[str, Any],
        right: Mapping[str, Any],
        by: str = "time",
        kind: str = SLIDING,
        size: str | int = 0,
        advance: str | int = 0,
        offset: str | int = 0,
        gap: str | int = 0,
        grace: str = "0 seconds",
        retention_time: str = "0 seconds",
        retention_count: int = 0,
        idle: str = "1 minute",
        early: str = "batch",
        late: str = "batch",
        shards: int = 1,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        schema: Mapping[str, str] | None = None,
    ) -> None:
        self._on = tuple(_fields(text) for text in on)
        self._sides = {LEFT: left, RIGHT: right}
        self._policy = beyond_retention
        self._declared, self._skew = declared_types(schema), skew_of(max_future_skew)
        self._settings: dict[str, Any] = {
            "by": by,
            "kind": kind,
            **{n: _length(v) for n, v in {"size": size, "advance": advance, "offset": offset, "gap": gap}.items()},
            "grace_us": parse_duration(grace),
            "retention_us": parse_duration(retention_time),
            "retention_count": retention_count,
            "idle_us": parse_duration(idle),
            "emit": Policies(_policy(early), "end", _policy(late)),
        }
        self._operator: Joiner | None = None
        self._state: dict[str, Any] = {}
        self._batch_id = 0
        self._messages: list[pa.Table] = []
        self._pairs: dict[tuple[str, int, int], dict[str, Any]] = {}
        super().__init__(shards)

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the last batch; None while a side that is not idle has brought nothing."""
        return self._state.get(WATERMARK)

    @property
    def state(self) -> Mapping[str, Any]:
        """The operator's state after the last batch."""
        return self._state

    def process(self, left: Sequence[Row], right: Sequence[Row], clock_us: int = 0) -> JoinOutput:
        """Run one micro-batch at a time of the clock."""
        rows = {LEFT: left, RIGHT: right}
        operator = self._operator or self._make_operator(rows)
        context = self._context(clock_us)
        return self._run(
            operator, [p for side in SIDES for p in self._split(operator, context, side, rows[side])], rows, context
        )

    def tick(self, clock_us: int, *, flush: bool = False) -> JoinOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        return self._control(Counted({MAX_FLUSH: 1} if flush else {}), clock_us)

    def advance(self, watermark_us: int, clock_us: int = 0) -> JoinOutput:
        """Run a micro-batch that moves the watermark, as `sessionlake run --drain` does."""
        return self._control(Counted({MAX_ADVANCE: watermark_us}), clock_us)

    def remove(self, key: str, left_position: int, right_position: int, clock_us: int = 0) -> JoinOutput:
        """Run a micro-batch of a tombstone, which deletes a pair."""
        operator = self._operator or self._make_operator({})
        pair = self._pairs.get((key, left_position, right_position), {"left_time": 0, "right_time": 0})
        named = {
            "session_key": [key],
            "session_start": [max(pair["left_time"], pair["right_time"])],
            "revision": [left_position],
            "event_count": [right_position],
        }
        context = self._context(clock_us)
        return self._run(operator, list(_corrections(operator, context, TOMBSTONE, named)), {}, context)

    def again(self, late: Sequence[Row], clock_us: int = 0) -> JoinOutput:
        """Run a micro-batch that hands in late rows of an earlier batch's output as if they were new."""
        operator = self._operator or self._make_operator({})
        context = self._context(clock_us)
        pieces: list[Piece] = []
        for side in SIDES:
            rows = [row for row in late if row[SIDE] == side]
            own = operator.spec.side(side)
            judged = judge(own.events, event_rows(own.events.decoder.columns, list(enumerate(rows))), 0, NO_WATERMARK)
            events = judged.events(judged.good)
            columns = {
                "session_key": plain_text(events.keys),
                "session_start": pa.array(events.time_us).cast(TIME),
                "revision": pa.array([row[POSITION] for row in rows], pa.int64()),
                "state": pack(own, [events.columns[name] for name in own.columns], len(rows)),
            }
            if rows:
                pieces += _corrections(operator, context, RESTATE[side], columns)
        return self._run(operator, pieces, {}, context)

    def emit(self, early: str, late: str) -> None:
        """Go on with other policies, as a run with another config does: stores are laid out anew."""
        self._settings["emit"] = Policies(_policy(early), "end", _policy(late))
        if self._operator is not None:
            self._operator = Joiner(replace(self._operator.spec, emit=self._settings["emit"]))
            self.lose_stores()

    def joins(self) -> list[dict[str, Any]]:
        """Return all pairs that were sent and not deleted, by key and positions."""
        return [self._pairs[identity] for identity in sorted(self._pairs)]

    def lose_stores(self) -> None:
        """Restore every store from the changelog of messages, as after the loss of its disk."""
        operator = self._operator
        if operator is None or not self._messages:
            return
        spec, at = operator.spec, JoinProgress.of(self._state)
        table = pa.concat_tables(self._messages)
        time = table["time"].cast(pa.int64())
        place = pa.array(spec.places(time.to_numpy(), table[POSITION].to_numpy()))
        horizon = pc.if_else(pc.equal(table[SIDE], LEFT), at.horizon(LEFT), at.horizon(RIGHT))
        since = pc.if_else(table["is_late"], at.waiting_since(1), at.waiting_since(0))
        table = table.append_column("waits", pc.greater(table["revision"], since))
        names = ["key" if name == "join_key" else name for name in table.column_names]
        table = table.rename_columns(names).append_column("time_us", time).filter(pc.greater_equal(place, horizon))
        self._shards.restore(operator, table, self._context(0))

    def _context(self, clock_us: int) -> BatchContext:
        return BatchContext(self._batch_id, f"c{self._batch_id}", dict(self._state), clock_us)

    def _make_operator(self, rows: Mapping[str, Sequence[Row]]) -> Joiner:
        sides = {}
        for at, side in enumerate(SIDES):
            given = self._sides[side]
            keys = [pair[at] for pair in self._on]
            names = tuple(given.get("columns", ()))
            found = {n: self._declared.get(n) or type_of(n, rows.get(side, ())) for n in (*keys, *names)}
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
            events = EventSpec(TableDecoder(columns, None), self._policy, self._skew)
            sides[side] = Side(given["name"], None if size is None else _length(size), names, events)
        self._operator = Joiner(JoinSpec(self._on, sides[LEFT], sides[RIGHT], **self._settings))
        return self._operator

    def _split(self, operator: Joiner, context: BatchContext, side: str, rows: Sequence[Row]) -> Iterator[Piece]:
        columns = operator.spec.side(side).events.decoder.columns
        for number, partition in enumerate(sorted({row.get("partition", 0) for row in rows})):
            some = [(i, row) for i, row in enumerate(rows) if row.get("partition", 0) == partition]
            given = replace(event_rows(columns, some), origin=Origin(partition, (0, 0, 0)))
            at = JoinProgress.of(context.state)
            yield from split_messages(operator.spec, at, context, side, number, given)

    def _control(self, piece: Counted, clock_us: int) -> JoinOutput:
        return self._run(self._operator or self._make_operator({}), [piece], {}, self._context(clock_us))

    def _run(
        self, operator: Joiner, split: Sequence[Piece], rows: Mapping[str, Sequence[Row]], context: BatchContext
    ) -> JoinOutput:
        results, stats = self._shards.run(operator, split, context)
        self._state = next_state(operator.spec, self._state, stats)
        self._batch_id += 1
        return self._output(results, split, rows, stats)

    def _output(
        self,
        results: Sequence[ShardResult],
        split: Sequence[Piece],
        rows: Mapping[str, Sequence[Row]],
        stats: dict[str, int],
    ) -> JoinOutput:
        changes = [row for result in results for row in _plain(result.changes)]
        for row in changes:
            identity = row["join_key"], row["left_position"], row["right_position"]
            if row["op"] == "delete":
                self._pairs.pop(identity, None)
            else:
                self._pairs[identity] = row
        self._messages += [result.side[MESSAGES] for result in results]
        late = [row for result in results for row in result.side.get(LATE, pa.table({})).to_pylist()]
        dead = [row for p in split if isinstance(p, Aside) and p.kind == DEAD for row in p.rows.to_pylist()]

        def told(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
            found = sorted(found, key=lambda row: (row[SIDE], int(row["source"])))
            return [{**rows[r[SIDE]][int(r["source"])], SIDE: r[SIDE], name: r[name]} for r in found]

        return JoinOutput(changes, told(late, POSITION), told(dead, "reason"), stats)


def _fields(text: str) -> tuple[str, str]:
    left, _, right = (part.strip() for part in text.partition("="))
    return left, right or left


def _length(value: str | int) -> int:
    return value if isinstance(value, int) else parse_duration(value)


def _policy(text: str) -> str | int:
    return text if text == BATCH else parse_duration(text)


def _corrections(operator: Joiner, context: BatchContext, kind: str, columns: Mapping[str, Any]) -> Iterator[Piece]:
    """Return what becomes of rows of the table of corrections that have these columns."""
    n = len(columns["session_key"])
    given = {
        **columns,
        "correction_id": [f"{kind}-{context.batch_id}-{i}" for i in range(n)],
        "kind": [kind] * n,
    }
    arrays = [pa.array(given[f.name], f.type) if f.name in given else pa.nulls(n, f.type) for f in CORRECTIONS_SCHEMA]
    table = pa.Table.from_arrays(arrays, schema=CORRECTIONS_SCHEMA)
    at = JoinProgress.of(context.state)
    limits = Limits(at.at.expired_us, None, context.clock_us)
    return split_corrections(kinds_of(operator.spec, at), limits, table)


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with times as numbers, since Python can't hold all of them."""
    fields = [(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]
    rows: list[dict[str, Any]] = table.cast(pa.schema(fields)).to_pylist()
    return rows
