"""The tables of a join of tables in memory, for runs without Spark; `TableJoins` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.table_joins.changelog import JOINED, SIDE_ROWS
from sessionlake.operators.table_joins.operator import TableJoiner
from sessionlake.operators.table_joins.spec import RESTORED_SCHEMA, ROWS
from sessionlake.warehouse.latest_rows import LatestRows, Row


class TableJoinTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self) -> None:
        self.rows = LatestRows(*JOINED.identity)
        """The results."""
        self.sides = LatestRows(*SIDE_ROWS.identity)
        """The rows of both sides."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes of rows; return those of results."""
        for result in results:
            if ROWS in result.side:
                self.sides.add(result.side[ROWS])
        return [row for result in results for row in self.rows.add(result.changes)]

    def stored(self, operator: TableJoiner, state: Mapping[str, Any]) -> pa.Table:
        """Return the rows of both sides."""
        del operator, state
        rows = [{**row, "key": row[SIDE_ROWS.key]} for row in self.sides.values()]
        return pa.Table.from_pylist(
            [{name: row[name] for name in RESTORED_SCHEMA.names} for row in rows], schema=RESTORED_SCHEMA
        )

    def lookups(self, operator: TableJoiner, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError
