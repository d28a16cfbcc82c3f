"""The pipelines that read the results of another one.

Each leaves a file in the warehouse of the one that it reads. By these files `forget` knows which pipelines it has to wait for, and `status` who is behind. Light: `status` reads them without Spark.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sessionlake.warehouse.delta_log import LogFiles, Logs
from sessionlake.warehouse.seen import Visible

if TYPE_CHECKING:
    from sessionlake.warehouse.tables import Tables

FOLDER = "_readers"


@dataclass(frozen=True)
class Reader:
    """A pipeline that reads results."""

    name: str
    directory: str
    """The directory of its config when it ran."""
    warehouse: str
    changes: str
    """The table of its own changes, whose commits say how far it has read."""
    pin: str
    """The name of the input there (`BatchCommit.pins`)."""

    def record(self, upstream: "Tables") -> None:
        """Leave its file in the warehouse of the pipeline that it reads, unless it is there. From another directory it is another file."""
        text = json.dumps(asdict(self))
        file = f"{upstream.warehouse}/{FOLDER}/{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        if upstream.read_text(file) is None:
            upstream.write_text_once(file, text)

    def seen(self, logs: Logs) -> Visible | None:
        """Return what it has seen of the other pipeline, by the logs of its own warehouse; None if it has read no batch."""
        last = logs[self.changes].last_commit()
        pins = {} if last is None else last.metadata.get("pins", {})
        return Visible.read(pins[self.pin]) if self.pin in pins else None

    def reached(self, logs: Logs) -> int | None:
        """Return the id of the last batch of the other pipeline that it has read; -1 if it has read none, None if it has no tables any more."""
        if not logs[self.changes].exists():
            return None
        seen = self.seen(logs)
        return -1 if seen is None else seen.batch_id


def readers_of(files: LogFiles, warehouse: str) -> list[Reader]:
    """Return the pipelines that read the results of one, by the files in its warehouse."""
    folder = f"{warehouse}/{FOLDER}"
    texts = (files.read_text(f"{folder}/{name}") for name in sorted(files.names(folder)) if name.endswith(".json"))
    return [Reader(**json.loads(text)) for text in texts if text]
