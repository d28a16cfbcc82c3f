"""Readers of a pipeline's results, and the batch up to which each has read them, by its commits. Light: `status` imports this.

Each reader leaves a file in the warehouse that it reads. `forget` waits for the pipelines of these files, and `status` shows which
of them are behind.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from sessionlake.config.sections import OperatorSection
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.delta_log import LogFiles, Logs

if TYPE_CHECKING:
    from sessionlake.warehouse.tables import Tables


@dataclass(frozen=True)
class Visible:
    """The mark of a batch of the read pipeline: its rows as of the batch, and which of them are final."""

    batch_id: int
    commit_id: str
    """The committed attempt: another pipeline's batch in the same place has another."""
    version: int
    """The version of the changelog that the batch's commit made."""
    close_us: int | None = None
    """Rows whose closing time lies strictly before it are final, microseconds; None if none are."""
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The number of accepted messages by then, for rows that start and end with numbers."""

    @classmethod
    def of(cls, batch: BatchCommit, section: OperatorSection, before: "Visible | None") -> "Visible":
        """Return a batch's mark; `before` is the mark of the last read batch, None for the first.

        The bound of `close_us` never goes back: a row that was final stays final.
        """
        bounds = (_closed_us(batch, section), None if before is None else before.close_us)
        known = [us for us in bounds if us is not None]
        positions = batch.state.get("positions", {})
        return cls(batch.batch_id, batch.commit_id, batch.version, max(known, default=None), positions)

    @classmethod
    def read(cls, text: str) -> "Visible":
        """Invert `text`."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Return it as JSON, as a batch's commit has it."""
        return json.dumps(asdict(self))

    def is_in(self, logs: Logs) -> bool:
        """Say whether this batch belongs to these tables; False if they were built anew, or put back, since.

        True if their log does not go back as far as this batch, but further than its version.
        """
        table = logs[logs.changelog.changes]
        if not table.has(self.version):
            return self.version <= table.latest_version()
        commit = table.commit(self.version)
        return commit is not None and commit.metadata.get("commit_id") == self.commit_id


def _closed_us(batch: BatchCommit, section: OperatorSection) -> int | None:
    """Return the bound of the batch's own grace: `section` may have a grace that no batch has had yet, or an earlier one."""
    closed = section.closed_us(batch.watermark_us)
    return None if closed is None else closed + section.grace_us - batch.settings.live["grace_us"]


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
        """Leave its file in the read pipeline's warehouse, unless it exists. From another directory it is another file."""
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
    """Return the readers of a pipeline's results, by the files in its warehouse."""
    folder = f"{warehouse}/{FOLDER}"
    texts = (files.read_text(f"{folder}/{name}") for name in sorted(files.names(folder)) if name.endswith(".json"))
    return [Reader(**json.loads(text)) for text in texts if text]
