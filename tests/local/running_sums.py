"""A processor of the tests."""

from collections.abc import Iterator
from typing import Any

from sessionlake.operators.process import KeyValueStore, Processor, Timers


class RunningSums(Processor):
    """The sum of a key's values so far."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        """Send the sum up to the row."""
        del key, timers
        store["total"] = store.get("total", 0) + (row["v"] or 0)
        yield {"total": store["total"]}
