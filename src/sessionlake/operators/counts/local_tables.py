"""The tables of windows by count in memory, for runs without Spark; `CountedWindows` reads the same of Delta tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sessionlake.engine.operator import ShardResult
from sessionlake.operators.counts.operator import Counter
from sessionlake.operators.counts.shard import STATE
from sessionlake.operators.counts.spec import CountSpec, Sessions
from sessionlake.operators.shared.windowing.emission import FULL
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.positions import PARTITION, POSITIONS
from sessionlake.warehouse.latest_rows import LatestRows, Row, restored_table

_SLICE = {"slice_key": "key", "slice_start": "start", "slice_end": "last", "event_count": "count"}
_STORED = ("key", "start", "last", "count", "revision", "first", "newest", "state")


class CountTables:
    """See `local.tables.LocalTables` for the methods."""

    def __init__(self) -> None:
        self.sent = LatestRows("window_key", "window_start")
        """Windows by key and start, as they were sent last."""
        self.slices = LatestRows("key", "start")
        """The state by key and start."""

    def add(self, results: Sequence[ShardResult]) -> list[Row]:
        """Take a batch's changes, and those of its slices."""
        for result in results:
            if STATE in result.side:
                self.slices.add(result.side[STATE], _SLICE)
        return [row for result in results for row in self.sent.add(result.changes)]

    def stored(self, operator: Counter, state: Mapping[str, Any]) -> pa.Table:
        """Return the slices; a shard knows by their times which of them are over."""
        del operator, state
        return restored_table(list(self.slices.values()), _STORED)

    def lookups(self, operator: Counter, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Return the rows that tombstones name, as they were sent last, but those of windows that are not full.

        A tombstone of `forget` (`any`) names each window of its key that was sent.
        """
        found = [
            {**row, "end_us": sent["window_end"], "revision": sent["revision"]}
            for row in asked.to_pylist()
            if (sent := self.sent.get((row["key"], row["start_us"]))) is not None
            and (row["any"] or _is_final(operator.spec, state, sent))
        ]
        return restored_table(found, ("key", "start_us", "end_us", "revision"))


def _is_final(spec: CountSpec, state: Mapping[str, Any], sent: Row) -> bool:
    """Say whether a window is full, as `CountSection.final_sql` does."""
    if sent["trigger"] == FULL or spec.per_key:
        return bool(sent["trigger"] == FULL)
    partition, number = divmod(sent["window_end"], PARTITION)
    further = spec.windows.gap if isinstance(spec.windows, Sessions) else 0
    return bool(0 < number <= int(state.get(POSITIONS, {}).get(EVENTS, {}).get(str(partition), 0)) - further)
