"""Test keyed tables in milliseconds: the operator and its store without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from sessionlake.columnar.spark_sql import parse
from sessionlake.config.durations import parse_duration
from sessionlake.local.rows import Row, event_rows
from sessionlake.local.shards import KEY, TIME_US
from sessionlake.operators.keyed.expiry.ttl import hidden_us
from sessionlake.operators.keyed.local_tables import KeyedTables
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.spec import EVENT_TIME, KeyedSpec
from sessionlake.operators.keyed.ttl_section import ttl_section
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.record_columns import EXPIRY, NO_VALUE, OFFSET, PARTITION
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EVENTS
from sessionlake.testing.local import OperatorHarness, placed
from sessionlake.warehouse.latest_rows import plain_rows
from sessionlake.warehouse.schemas import CORRECTIONS_SCHEMA, STALE, TIME


@dataclass(frozen=True)
class TableOutput:
    """The outputs of one micro-batch of a keyed table; see `TableHarness`."""

    changes: list[dict[str, Any]]
    """The rows of table_changelog without the marks of the batch; times in microseconds."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    stale: list[str]
    """The ids of the tombstones that were ignored because the row that they name is gone or at another revision."""
    counts: dict[str, int]


class TableHarness(OperatorHarness[TableKeeper, KeyedTables]):
    """Run micro-batches of plain rows: dicts of `key`, `time_us`, the columns, and the columns that order events of equal times.

    `columns` are the table's, each with its type, as in {"status": "string"}. An event with `deleted` true deletes its key,
    and so does an event for which the SQL `delete_when` is true.
    With `offsets` an event has an `offset` and a `partition`, as a Kafka record has, and the
    offset decides if order is "offset". Else `event_id` names the column that orders events of equal times. A row with `kind` "tombstone" (key, revision, and
    correction_id, if it is not to be made up) or "expiry" (key, offset, partition) is a correction. `ttl` is the section [ttl] of a config: {"pattern": "index", "ttl": "3 days"}.

    >>> harness = TableHarness({"status": "string"})
    >>> output = harness.process([{"key": "LH1", "time_us": 0, "status": "boarding"}])
    >>> [(row["table_key"], row["status"], row["op"]) for row in output.changes]
    [('LH1', 'boarding', 'upsert')]
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
        super().__init__(
            KeyedTables(), shards, beyond_retention=beyond_retention, max_future_skew=max_future_skew, schema=columns
        )
        offsets = offsets or order == "offset"
        types = {
            **self._declared,
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
        condition = None if delete_when is None else parse("delete_when", delete_when).typed(known, "boolean")
        spec = KeyedSpec(self._events(wanted), tuple(columns), parse_duration(retention), order == "offset", condition)
        if ttl is not None:
            section = ttl_section(ttl)
            section.check()
            spec = replace(spec, ttl=section.build(spec.types, shards))
        self._operator: TableKeeper = TableKeeper(spec)

    def process(self, rows: Sequence[Row], *, tasks: int = 1, clock_us: int = 0) -> TableOutput:
        """Run one micro-batch at a time of the clock, with its events split between this number of map tasks."""
        columns = self._operator.columns(EVENTS)
        events: list[tuple[int, Row]] = [(i, _event(row)) for i, row in enumerate(rows) if "kind" not in row]
        given = [(EVENTS, event_rows(columns, some)) for task in range(tasks) if (some := events[task::tasks])]
        corrections = [(i, row) for i, row in enumerate(rows) if "kind" in row]
        batch = self._batch(clock_us, given, corrections=_correction_table(corrections) if corrections else None)
        dead = placed(table.filter(pa.compute.field("kind") == "event") for table in batch.asides(DEAD))
        stale = [row["source"] for table in batch.tables(DEAD) for row in table.to_pylist() if row["reason"] == STALE]
        return TableOutput(
            [dict(row) for row in batch.changes],
            [{**rows[at], "reason": row["reason"]} for at, row in dead],
            sorted(stale),
            batch.stats,
        )

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows that the stores hold, by key: event_time, revision and the columns, times in microseconds.

        Those that are hidden, and go with their segments, are left out.
        """
        found: dict[str, dict[str, Any]] = {}
        for store in self.stores(self._operator):
            keys, stored, _, _ = store.scan()
            columns = self._operator.spec.unpack(stored.packed(stored.codes))
            table = pa.table(
                [pa.array(stored[name]) for name in ("time", "revision")] + columns,
                names=["event_time", "revision", *self._operator.spec.columns],
            )
            shown = (stored["written"] > hidden_us(self._state)).tolist()
            named = zip((key.decode() for key in keys), plain_rows(table), shown, strict=True)
            found |= {key: row for key, row, is_shown in named if is_shown}
        return dict(sorted(found.items()))

    def stored_keys(self) -> list[str]:
        """Return the keys of the rows that the stores have, hidden ones, too."""
        return sorted(key.decode() for store in self.stores(self._operator) for key in store.scan()[0])

    def due_us(self) -> int | None:
        """Return when a pipeline without input would make a batch, for a cleanup; None for never."""
        ttl = self._operator.spec.ttl
        return None if ttl is None else ttl.due_us(self._state)

    def index(self) -> list[bytes]:
        """Return the entries of the stores' indexes of rows."""
        index, stores = self._operator.spec.index, self.stores(self._operator)
        return [] if index is None else sorted(entry for s in stores for entry in s.entries(index).to_pylist())

    def markers(self) -> dict[str, int]:
        """Return the times of the deletions that the stores know, by key."""
        found: dict[str, int] = {}
        for store in self.stores(self._operator):
            _, _, keys, stored = store.scan()
            found |= dict(zip((key.decode() for key in keys), stored["time"].tolist(), strict=True))
        return dict(sorted(found.items()))

    def changelog(self) -> list[dict[str, Any]]:
        """Return all changes so far, oldest first."""
        return self._tables.changes


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
            "key": row.get("key"),
            "start_time": row.get("time_us"),
            "revision": row.get("revision"),
            "source_offset": row.get("offset"),
            "source_partition": row.get("partition", 0) if row["kind"] == EXPIRY else None,
        }
        for index, row in corrections
    ]
    return pa.Table.from_pylist(rows, schema=CORRECTIONS_SCHEMA)
