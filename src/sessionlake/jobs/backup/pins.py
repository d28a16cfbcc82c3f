"""Which versions of the tables belong to one committed batch, while stream and jobs go on writing."""

import json
from dataclasses import dataclass

from sessionlake.config.load import Config
from sessionlake.errors import ContendedError, JobError
from sessionlake.stream.planned_offsets import fingerprint
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import changelogs_in, check_history, last_batch
from sessionlake.warehouse.tables import Table, Tables
from sessionlake.warehouse.views import fold_point

_ATTEMPTS = 20


@dataclass(frozen=True)
class Pins:
    """A committed batch, its offsets' text, and the tables' versions as of it."""

    batch: BatchCommit
    versions: dict[str, int]

    @property
    def batch_id(self) -> int:
        """The batch."""
        return self.batch.batch_id


def pin(tables: Tables, config: Config) -> Pins:
    """Return the last committed batch with the versions of all tables that go with it.

    Tables that are derived from batches or answer them (batches, corrections, job_runs ...) are pinned before the batch
    is chosen, and so know of no later one: a tombstone of a later revision would remove a session that came to that
    revision another way. But the batch may have read no correction that is not in: else it is all done again.
    """
    for _ in range(_ATTEMPTS):
        names = [n for n in tables.names(tables.warehouse) if not n.startswith(("_", ".")) and tables[n].exists()]
        versions = {name: tables[name].latest_version() for name in names}
        last = last_batch(tables)
        batch_id = last.batch_id
        offsets = tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")
        if last.input not in (None, fingerprint(offsets)):
            raise JobError(
                f"checkpoint: {config.checkpoint!r} has no offsets of batch {batch_id}, or others than the changelog says; "
                "a backup of the two could not be run on"
            )
        first, *others = changelogs_in(tables)
        for side in (*schemas.SIDES, *(of.changes for of in others)):
            if side in versions:
                versions[side] = _as_of_batch(tables[side], batch_id)
        versions[first.changes] = last.version
        for of in (first, *others):
            versions[of.snapshot] = _folded_up_to(tables.seen_by(of), batch_id)
        if _corrections_read(tables, offsets or "") <= versions[schemas.CORRECTIONS] + 1:
            check_history(tables, (first, *others))
            return Pins(last, versions)
    raise ContendedError("backup: corrections came faster than versions could be chosen; run it again")


def _as_of_batch(table: Table, batch_id: int) -> int:
    """Return the newest version of a side table before any commit of a later batch."""
    pinned = table.latest_version()
    for commit in table.batch_commits():
        if commit.metadata["batch_id"] <= batch_id:
            break
        pinned = commit.version - 1
    return pinned


def _folded_up_to(tables: Tables, batch_id: int) -> int:
    """Return the newest version of the snapshot that holds no later batch: not older, or the changelog may be trimmed beyond it."""
    for version in tables[tables.changelog.snapshot].versions():
        reached = fold_point(tables, version)
        if reached is None or reached <= batch_id:
            return version
    raise ContendedError("backup: compaction is ahead of the batch that was chosen; run it again")


def _corrections_read(tables: Tables, offsets: str) -> int:
    """Return the first version of the control input that a batch may not have read to its end."""
    detail = tables.spark.sql(f"describe detail {tables[schemas.CORRECTIONS].sql_name()}").head()
    for line in offsets.splitlines()[2:]:
        offset = json.loads(line) if line.startswith("{") else {}
        if detail is not None and offset.get("reservoirId") == detail["id"]:
            return int(offset["reservoirVersion"]) + int(offset["index"] >= 0)
    return 0
