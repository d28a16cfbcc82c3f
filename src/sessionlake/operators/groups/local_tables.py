"""The tables of groups in memory, for runs without Spark; `Groups` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.groups.changelog import GROUPS
from sessionlake.operators.groups.operator import Grouper
from sessionlake.warehouse.latest_rows import LatestRows, Row, restored_table

_STORED = ("key", "changed_us", "event_count", "revision", "state")


class GroupTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self) -> None:
        self.rows = LatestRows(GROUPS.key)
        """The rows by key."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes."""
        return [row for result in results for row in self.rows.add(result.changes)]

    def stored(self, operator: Grouper, state: Mapping[str, Any]) -> pa.Table:
        """Return the rows."""
        del operator, state
        rows = [{**row, "key": row[GROUPS.key], "changed_us": row[GROUPS.time]} for row in self.rows.values()]
        return restored_table(rows, _STORED)

    def lookups(self, operator: Grouper, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError
