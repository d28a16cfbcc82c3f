"""The tables of a keyed table in memory, for runs without Spark; `KeyedTable` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.keyed.expiry.ttl import hidden_us
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.spec import stored_schema
from sessionlake.warehouse.latest_rows import Row, plain_rows


class KeyedTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self, _config: object = None) -> None:
        self.changes: list[Row] = []
        """All changes, oldest first."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes."""
        rows = [row for result in results for row in plain_rows(result.changes)]
        self.changes += rows
        return rows

    def stored(self, operator: TableKeeper, state: Mapping[str, Any]) -> pa.Table:
        """Return the rows that are not hidden, and the deletions that something can still meet."""
        spec, last = operator.spec, {row["table_key"]: row for row in self.changes}
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
            if (not spec.by_offset if row["op"] == "delete" else row["written_at"] > hidden_us(state))
        ]
        return pa.Table.from_pylist(rows, schema=stored_schema(spec))

    def lookups(self, operator: TableKeeper, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError
