"""An example of a processor: an author's first commit after a year's pause, and the authors who have not come back yet."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sessionlake.operators.process import KeyValueStore, Processor, Timers

YEAR_US = 365 * 86_400_000_000


class Pauses(Processor):
    """A row `paused` a year after an author's last commit, and a row `returned` for the first commit that follows."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        """Send the return from a pause; then wait for a year from the author's latest commit on."""
        del key
        last, time_us = store.get("last"), row["time_us"]
        if last is not None and time_us <= last:
            return  # committed late: the author was at work already
        if last is not None and time_us - last > YEAR_US:
            yield self._row("returned", row["repo"], last, time_us)
        store["last"], store["repo"] = time_us, row["repo"]
        timers.set(time_us + YEAR_US, "pause")

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Iterator[dict[str, Any]]:
        """Send that the pause is a year long; the latest commit stays known for the return."""
        del key, timers
        yield self._row("paused", store["repo"], store["last"], at_us)

    @staticmethod
    def _row(what: str, repo: str, since_us: int, until_us: int) -> dict[str, Any]:
        since = datetime.fromtimestamp(since_us // 1_000_000, UTC)
        return {"what": what, "repo": repo, "since": since, "days": (until_us - since_us) // 86_400_000_000}
