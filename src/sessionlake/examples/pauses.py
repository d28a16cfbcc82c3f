"""An example of a processor: an author's first commit after a year's pause, and the authors who have not come back yet."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sessionlake.operators.process import KeyValueStore, Processor, Timers

YEAR_US = 365 * 86_400_000_000
CONFIG_NAME = "pauses.toml"
CONFIG = """\
[pipeline]
name = "pauses"
warehouse = "windows/pauses"
store = "windows/store"
shards = 2

[source]
kind = "files"
path = "events"
format = "json"
max_files_per_batch = 12

[event]
key = "author"
time = "authored_at"
id = "event_id"
unique_for = "3650 days"
max_future_skew = "1 day"

[process]
class = "sessionlake.examples.pauses:Pauses"
columns = ["repo", "event_id"]
retention = "3650 days"     # of an author who does nothing for ten years nothing is known any more

[process.output]
what = "string"             # paused: a year without a commit;  returned: the first commit after it
repo = "string"             # of that commit; of a pause the last commit before it
since = "timestamp"         # when the pause began
days = "long"
"""


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
