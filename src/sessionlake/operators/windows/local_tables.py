"""The tables of windows in memory, for runs without Spark; `Windows` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.shared.windowing.emission import Progress
from sessionlake.operators.shared.windowing.tombstones import SENT_SCHEMA
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.shard import STATE
from sessionlake.warehouse.latest_rows import LatestRows, Row, restored_table

_SLICE = {
    "event_count": "count",
    "slice_key": "key",
    "slice_start": "start",
    "window_key": "key",
    "window_start": "start",
}
_STORED = ("op", "key", "start", "count", "revision", "reach", "born", "born_reach", "state")


class WindowTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self) -> None:
        self.sent = LatestRows("window_key", "window_start")
        """Windows by key and start, as they were sent last."""
        self.slices = LatestRows("key", "start")
        """The state by key and start."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes, and of its state those of slices; a row that is its own state is both."""
        rows = []
        for result in results:
            changes = result.changes
            state = result.side.get(STATE, changes)
            if "state" in state.column_names:
                state = state.rename_columns([_SLICE.get(name, name) for name in state.column_names])
                self.slices.add(state.select([name for name in _STORED if name in state.column_names]))
            rows += self.sent.add(changes.select([name for name in changes.column_names if name != "state"]))
        return rows

    def stored(self, operator: Windower, state: Mapping[str, Any]) -> pa.Table:
        """Return the slices that are not below the horizon."""
        spec = operator.spec
        horizon_us = Progress.of(state).horizon_us(spec.windows.span_us)
        names = ["key", "start", "count", "revision", *([] if spec.rows_are_state else ["reach"])]
        names += ["born", "born_reach"] if spec.is_sliding else []
        rows = [row for row in self.slices.values() if row["start"] >= horizon_us]
        return restored_table(rows, [*names, "state"])

    def lookups(self, operator: Windower, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Return the windows that shards ask for, as they were sent last."""
        del state
        last = 1 if operator.spec.is_sliding else 0
        found = [
            (row["key"], row["start_us"], sent["window_end"] + last, sent["revision"])
            for row in asked.to_pylist()
            if (sent := self.sent.get((row["key"], row["start_us"]))) is not None
        ]
        return pa.Table.from_pylist(
            [dict(zip(SENT_SCHEMA.names, row, strict=True)) for row in found], schema=SENT_SCHEMA
        )
