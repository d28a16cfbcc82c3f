"""What one pipeline sees of another one's results, as the commits of the reader have it. Light: `status` imports it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sessionlake.config.sections import OperatorSection
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.delta_log import Logs


@dataclass(frozen=True)
class Visible:
    """The rows that are seen as of a batch: all, or those that events can't change any more."""

    batch_id: int
    commit_id: str
    """The attempt that was committed: the batch of another pipeline in the same place has another one."""
    version: int
    """Of the changelog; the batch's commit made it."""
    close_us: int | None = None
    """Rows whose closing time lies strictly before it are final, microseconds; None if none are."""
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many messages were accepted by then, of rows that start and end with their numbers."""

    @classmethod
    def of(cls, batch: BatchCommit, section: OperatorSection, before: "Visible | None") -> "Visible":
        """Return what is seen as of a batch; `before` is what was seen last: a row that was final then is never less so."""
        bounds = (_closed_us(batch, section), None if before is None else before.close_us)
        known = [us for us in bounds if us is not None]
        positions = batch.state.get("positions", {})
        return cls(batch.batch_id, batch.commit_id, batch.version, max(known, default=None), positions)

    @classmethod
    def read(cls, text: str) -> "Visible":
        """Invert `text`."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Return it as a batch's commit has it."""
        return json.dumps(asdict(self))

    def is_in(self, logs: Logs) -> bool:
        """Say whether the tables have this batch, and were not built anew since; True if their log goes back less far."""
        table = logs[logs.changelog.changes]
        if not table.has(self.version):
            return self.version <= table.latest_version()
        commit = table.commit(self.version)
        return commit is not None and commit.metadata.get("commit_id") == self.commit_id


def _closed_us(batch: BatchCommit, section: OperatorSection) -> int | None:
    """Return the bound of the batch's own grace: that of `section` may be one which no batch has had yet, or an earlier one."""
    closed = section.closed_us(batch.watermark_us)
    return None if closed is None else closed + section.grace_us - batch.settings.live["grace_us"]
