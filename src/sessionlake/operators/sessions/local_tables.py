"""The tables of sessions in memory, for runs without Spark; `Sessions` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.columnar.records import UNTIL
from sessionlake.engine.operator import ShardResult
from sessionlake.operators.sessions.changelog import SESSIONS, STORED
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.shard import COLD_SCHEMA
from sessionlake.operators.sessions.table import STORED_ROWS
from sessionlake.warehouse.latest_rows import LatestRows, Row, restored_table
from sessionlake.warehouse.schemas import OPEN_UNTIL

_NAMES = {
    **{of.key: "key" for of in (SESSIONS, STORED)},
    **{of.start: "start_us" for of in (SESSIONS, STORED)},
    **{of.end: "end_us" for of in (SESSIONS, STORED)},
    OPEN_UNTIL: f"{OPEN_UNTIL}_us",
}


class SessionTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self, _config: object = None) -> None:
        self.live = LatestRows("key", "start_us")
        """Sessions by key and start: key, start_us, end_us, event_count, revision, the aggregates, state."""
        self.sent = LatestRows("key", "start_us")
        """Sessions as they were sent last, if they are sent by policy; `live` are the stored ones then."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes."""
        rows = []
        for result in results:
            by_policy = "trigger" in result.changes.column_names
            rows += (self.sent if by_policy else self.live).add(result.changes, _NAMES)
            if STORED_ROWS in result.side:
                self.live.add(result.side[STORED_ROWS], _NAMES)
        return rows

    def stored(self, operator: Sessionizer, state: Mapping[str, Any]) -> pa.Table:
        """Return the warm sessions."""
        oldest_us = operator.spec.bounds(state).oldest_end_us
        return self._handed_in(operator, [row for row in self.live.values() if row["end_us"] >= oldest_us])

    def lookups(self, operator: Sessionizer, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Return the cold sessions near the times that shards ask for."""
        windows, needs = operator.spec.windows, asked.select(COLD_SCHEMA.names).to_pylist()
        expired_us = operator.spec.bounds(state).expired_us
        until = f"{OPEN_UNTIL}_us"
        rows = [
            row
            for row in self.live.values()
            if row.get(until, int(windows.open_until(np.array([row["end_us"]]))[0])) < expired_us
            and any(
                n["key"] == row["key"] and row["end_us"] >= n["from_us"] and row["start_us"] <= n["to_us"]
                for n in needs
            )
        ]
        return self._handed_in(operator, rows)

    @staticmethod
    def _handed_in(operator: Sessionizer, rows: Sequence[Row]) -> pa.Table:
        until = (UNTIL,) if operator.spec.windows.keeps_until else ()
        names = ("key", "start_us", "end_us", "event_count", "revision", "state", *until)
        return restored_table([{**row, UNTIL: row.get(f"{OPEN_UNTIL}_us")} for row in rows], names)
