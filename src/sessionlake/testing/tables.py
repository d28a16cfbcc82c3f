"""Test keyed tables in milliseconds: the operator and its store without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from sessionlake.columnar.spark_sql import parse
from sessionlake.config.durations import parse_duration
from sessionlake.engine.operator import Aside, BatchContext, Piece, ShardResult
from sessionlake.operators.keyed.control import KINDS
from sessionlake.operators.keyed.mapper import split_updates
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.spec import EVENT_TIME, KeyedSpec, next_state, stored_schema
from sessionlake.operators.keyed.ttl import hidden_us
from sessionlake.operators.keyed.ttl_section import TtlSection
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.record_columns import EXPIRY, NO_VALUE, OFFSET, PARTITION
from sessionlake.standalone.shards import KEY, TIME_US
from sessionlake.store.rows import RowStore
from sessionlake.stream.control import split_corrections
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EventSpec
from sessionlake.testing.local import Harness, declared_types, skew_of
from sessionlake.testing.rows import Row, event_rows
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, STALE, TIME


@dataclass(frozen=True)
class TableOutput:
    """What one micro-batch gave."""

    changes: list[dict[str, Any]]
    """The rows of table_changelog, but for the marks; times in microseconds."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    stale: list[str]
    """The ids of the tombstones that were ignored because the row that they name is gone or at another revision."""
    counts: dict[str, int]


class TableHarness(Harness[RowStore]):
    """Run micro-batches of plain rows: dicts of `key`, `time_us`, the columns, and what else tells events apart.

    `columns` are the table's, each with its type, as in {"status": "string"}. An event with `deleted` true deletes its key,
    and so does one of which the SQL `delete_when` is true.
    With `offsets` an event has an `offset` and a `partition`, as a Kafka record has, and the former decides where order is "offset"; else
    `event_id` names the column by which events of equal times are told apart. A row with `kind` "tombstone" (key, revision, and
    correction_id, where it is not to be made up) or "expiry" (key, offset, partition) is a correction. `ttl` is the section [ttl] of a config: {"pattern": "index", "ttl": "3 days"}.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        *,
        retention: str = "1 day",
        order: Literal["time", "offset"] = "time",
        offsets: bool = False,
        event_id: str | None = None,
        shards: int = 1,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        delete_when: str | None = None,
        ttl: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(shards)
        offsets = offsets or order == "offset"
        types = {
            **declared_types(columns),
            KEY: pa.string(),
            TIME_US: pa.int64(),
            NO_VALUE: pa.bool_(),
            OFFSET: pa.int64(),
            PARTITION: pa.int64(),
        }
        if event_id is not None:
            types.setdefault(event_id, pa.string())
        inputs = (*columns, NO_VALUE, *((OFFSET, PARTITION) if offsets else ()))
        known = {**types, EVENT_TIME: TIME}
        wanted = EventColumns(KEY, TIME_US, "us", event_id, inputs, types)
        events = EventSpec(TableDecoder(wanted, None), beyond_retention, skew_of(max_future_skew))
        condition = None if delete_when is None else parse("delete_when", delete_when).typed(known, "boolean")
        spec = KeyedSpec(events, tuple(columns), parse_duration(retention), order == "offset", condition)
        if ttl is not None:
            section = TtlSection.model_validate(ttl)
            section.check()
            spec = replace(spec, ttl=section.made(spec.types, shards))
        self._operator = TableKeeper(spec)
        self._state: dict[str, Any] = {}
        self._batch_id = 0
        self._changes: list[dict[str, Any]] = []

    @property
    def state(self) -> dict[str, Any]:
        """The table's state after the last batch: watermark_us, horizon_us, last_delete_us."""
        return self._state

    def process(self, rows: Sequence[Row], *, tasks: int = 1, clock_us: int = 0) -> TableOutput:
        """Run one micro-batch at a time of the clock, its events dealt out to so many map tasks."""
        operator, spec = self._operator, self._operator.spec
        context = BatchContext(self._batch_id, f"c{self._batch_id}", dict(self._state), clock_us)
        events: list[tuple[int, Row]] = [(i, _event(row)) for i, row in enumerate(rows) if "kind" not in row]
        split: list[Piece] = [] if spec.ttl is None else list(spec.ttl.split(context))
        for task in range(tasks):
            if events[task::tasks]:
                split += split_updates(spec, context, event_rows(spec.events.decoder.columns, events[task::tasks]))
        corrections = [(i, row) for i, row in enumerate(rows) if "kind" in row]
        if corrections:
            split += split_corrections(KINDS, operator.limits(context), _correction_table(corrections))
        results, stats = self._shards.run(operator, split, context)
        self._state = next_state(spec.retention_us, self._state, stats)
        self._batch_id += 1
        changes = [row for result in results for row in _plain(result.changes)]
        self._changes += changes
        asides = [piece.rows for piece in split if isinstance(piece, Aside) and piece.kind == DEAD]
        dead = [row for table in asides for row in table.to_pylist() if row["kind"] == "event"]
        return TableOutput(
            changes, [{**rows[int(row["source"])], "reason": row["reason"]} for row in dead], _stale(results), stats
        )

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows that the stores hold, by key: event_time, revision and the columns, times in microseconds.

        Those that are hidden, and go with their segments, are left out.
        """
        found: dict[str, dict[str, Any]] = {}
        for shard in range(self._shards.shards):
            keys, stored, _, _ = self._shards.store(self._operator, shard).scan()
            columns = self._operator.spec.unpack(stored.packed(stored.codes))
            table = pa.table(
                [pa.array(stored[name]) for name in ("time", "revision")] + columns,
                names=["event_time", "revision", *self._operator.spec.columns],
            )
            shown = (stored["written"] > hidden_us(self._state)).tolist()
            named = zip((key.decode() for key in keys), _plain(table), shown, strict=True)
            found |= {key: row for key, row, is_shown in named if is_shown}
        return dict(sorted(found.items()))

    def stored_keys(self) -> list[str]:
        """Return the keys of the rows that the stores have, hidden ones, too."""
        stores = [self._shards.store(self._operator, shard) for shard in range(self._shards.shards)]
        return sorted(key.decode() for store in stores for key in store.scan()[0])

    def due_us(self) -> int | None:
        """Return when a pipeline without input would make a batch, for a cleanup; None for never."""
        ttl = self._operator.spec.ttl
        return None if ttl is None else ttl.due_us(self._state)

    def index(self) -> list[bytes]:
        """Return the entries of the stores' indexes of rows."""
        index = self._operator.spec.index
        stores = [self._shards.store(self._operator, shard) for shard in range(self._shards.shards)]
        return [] if index is None else sorted(entry for s in stores for entry in s.entries(index).to_pylist())

    def markers(self) -> dict[str, int]:
        """Return the times of the deletions that the stores know, by key."""
        found: dict[str, int] = {}
        for shard in range(self._shards.shards):
            _, _, keys, stored = self._shards.store(self._operator, shard).scan()
            found |= dict(zip((key.decode() for key in keys), stored["time"].tolist(), strict=True))
        return dict(sorted(found.items()))

    def changelog(self) -> list[dict[str, Any]]:
        """Return all changes so far, oldest first."""
        return self._changes

    def lose_stores(self) -> None:
        """Restore every store from the changelog, as after the loss of its disk."""
        last = {row["table_key"]: row for row in self._changes}
        spec = self._operator.spec
        rows = [
            {
                **{f"column_{i}": row[name] for i, name in enumerate(spec.columns)},
                "key": key,
                "revision": row["revision"],
                **{f"{name}_us": row[f"{name}_at"] or 0 for name in ("written", "inserted")},
                "time_us": row["event_time"],
                **{name: row.get(f"event_{name}", 0) for name in ("offset", "partition")},
                "id": row.get("event_id", ""),
                "deleted": row["op"] == "delete",
            }
            for key, row in last.items()
            if (not spec.by_offset if row["op"] == "delete" else row["written_at"] > hidden_us(self._state))
        ]
        context = BatchContext(self._batch_id, "", dict(self._state))
        self._shards.restore(self._operator, pa.Table.from_pylist(rows, schema=stored_schema(spec)), context)


def _event(row: Row) -> Row:
    """Return an event as a record of a topic has it."""
    return {
        **row,
        OFFSET: row.get("offset"),
        PARTITION: row.get("partition", 0),
        NO_VALUE: row.get("deleted", False),
    }


def _correction_table(corrections: Sequence[tuple[int, Row]]) -> pa.Table:
    rows = [
        {
            "correction_id": row.get("correction_id", f"{index:012d}"),
            "kind": row["kind"],
            "session_key": row.get("key"),
            "session_start": row.get("time_us"),
            "revision": row.get("offset" if row["kind"] == EXPIRY else "revision"),
            "event_count": row.get("partition", 0) if row["kind"] == EXPIRY else None,
        }
        for index, row in corrections
    ]
    return pa.Table.from_pylist(rows, schema=CORRECTIONS_SCHEMA)


def _stale(results: Sequence[ShardResult]) -> list[str]:
    tables = [result.side[DEAD] for result in results if DEAD in result.side]
    return sorted(row["source"] for table in tables for row in table.to_pylist() if row["reason"] == STALE)


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    schema = pa.schema([(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in table.schema])
    rows: list[dict[str, Any]] = table.cast(schema).to_pylist()
    return rows
