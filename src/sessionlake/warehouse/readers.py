"""The pipelines that read the results of another one.

Each leaves a file in the warehouse of the one that it reads. By these files `forget` knows which pipelines it has to wait for.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.seen import Visible
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

    def record(self, upstream: Tables) -> None:
        """Leave its file in the warehouse of the pipeline that it reads, unless it is there. From another directory it is another file."""
        text = json.dumps(asdict(self))
        file = f"{upstream.warehouse}/{FOLDER}/{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        if upstream.read_text(file) is None:
            upstream.write_text_once(file, text)

    def reached(self, upstream: Tables) -> int | None:
        """Return the id of the last batch of the other pipeline that it has read; -1 if it has read none, None if it has no tables any more."""
        table = Tables(upstream.spark, self.warehouse, Changelog("reader"))[self.changes]
        if not table.exists():
            return None
        last = table.last_commit()
        pins = {} if last is None else last.metadata.get("pins", {})
        return Visible.read(pins[self.pin]).batch_id if self.pin in pins else -1


def readers_of(upstream: Tables) -> list[Reader]:
    """Return the pipelines that read the results of one, by the files in its warehouse."""
    folder = f"{upstream.warehouse}/{FOLDER}"
    texts = (
        upstream.read_text(f"{folder}/{name}") for name in sorted(upstream.names(folder)) if name.endswith(".json")
    )
    return [Reader(**json.loads(text)) for text in texts if text]
