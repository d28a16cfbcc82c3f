"""The tables of a pipeline in memory, from which shards are restored."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from sessionlake.engine.operator import ShardResult


class LocalTables(Protocol):
    """An operator's tables in memory; `Kind` reads the same rows from Delta tables. The operator's entry names the class."""

    def add(self, results: Sequence[ShardResult]) -> list[dict[str, Any]]:
        """Take a batch's changes; return the changelog's as plain rows, times in microseconds."""

    def stored(self, operator: Any, state: Mapping[str, Any]) -> pa.Table:
        """Return the rows (key, ...) that restore the shards' stores after the last batch."""

    def lookups(self, operator: Any, state: Mapping[str, Any], asked: pa.Table) -> pa.Table:
        """Return the rows (key, ...) for a request of shards."""
