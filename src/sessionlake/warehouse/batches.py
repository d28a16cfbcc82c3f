"""The batches as the changelog's commits record them: all batches, the last one, and changes by other writers."""

from collections.abc import Iterator, Sequence

from sessionlake.errors import NoBatchesError, PipelineStateError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.delta_log import Logs
from sessionlake.warehouse.history import ForeignChange

RESTORING = "_restoring"
"""A file in a warehouse that is being restored; nothing may run there."""
REBUILDING = "_rebuilding"
"""A file in a warehouse that is being rebuilt from an archive; nothing may run there."""


def check_history(logs: Logs, changelogs: Sequence[Changelog]) -> None:
    """Refuse tables that somebody else has removed, put back to an older version, or changed rows of, since we last wrote them.

    `changelogs` are all that a pipeline has (`Kind.changelogs_in`).
    """
    # Made before the changelog; nothing can be gone on without them.
    states = (name for of in changelogs for name in (of.changes, *of.state) if name != logs.changelog.changes)
    needed = {
        **{of.snapshot: "only it has the rows that were trimmed from the changelog" for of in changelogs},
        **dict.fromkeys(states, "the state is restored from it"),
        schemas.CORRECTIONS: "how far it was read is a position in that very table",
    }
    needed = needed if logs[logs.changelog.changes].exists() else {}
    for name, lost in needed.items():
        if not logs[name].exists():
            raise PipelineStateError(
                f"table {name!r}: is missing in {logs.warehouse!r}, and {lost}; "
                "put a backup back, or rebuild the tables with `sessionlake rebuild` (docs/recovery.md)"
            )
    found = foreign_change(logs, changelogs)
    if found is not None:
        raise PipelineStateError(found.explained(logs[found.table].uri))


def foreign_change(logs: Logs, changelogs: Sequence[Changelog]) -> ForeignChange | None:
    """Return a change by others of the tables of changelogs, since we last wrote them."""
    for name in (*(table for of in changelogs for table in of.guarded), schemas.EVENT_IDS):
        if logs[name].exists() and (found := logs[name].foreign_change()) is not None:
            return found
    return None


def changelogs_in(logs: Logs) -> list[Changelog]:
    """Return a pipeline's existing changelogs. The first one is the changelog whose commits are the batches."""
    # The tables' names are enough for this. To import the operator would also import Spark.
    return [of for of in (logs.changelog, *logs.changelog.state_changelogs) if logs[of.changes].exists()]


def batches_after(logs: Logs, version: int = -1) -> Iterator[BatchCommit]:
    """Yield the batches whose commits made a later version of the changelog, oldest first."""
    return (BatchCommit.of(commit, logs.changelog.changes) for commit in logs[logs.changelog.changes].commits(version))


def find_last_batch(logs: Logs) -> BatchCommit | None:
    """Return the last batch, None if there is none; PipelineStateError if it can't be gone on from."""
    if logs.read_text(f"{logs.warehouse}/{RESTORING}") is not None:
        raise PipelineStateError(
            f"pipeline.warehouse: {logs.warehouse!r} is half restored from a backup; run `sessionlake restore` again until it ends"
        )
    if logs.read_text(f"{logs.warehouse}/{REBUILDING}") is not None:
        raise PipelineStateError(
            f"pipeline.warehouse: {logs.warehouse!r} is half rebuilt; run `sessionlake rebuild --from-archive` again until it ends"
        )
    last = logs[logs.changelog.changes].last_commit()
    return None if last is None else BatchCommit.of(last, logs.changelog.changes)


def last_batch_id(logs: Logs, of: Changelog) -> int:
    """Return the last batch of a pipeline's changelog, -1 if there is none.

    Tables of the state are committed before the changelog, so they may have rows of a later batch that is not committed yet.
    """
    last = logs[of.changes].last_commit()
    return -1 if last is None else BatchCommit.of(last, of.changes).batch_id


def last_batch(logs: Logs) -> BatchCommit:
    """Return the last batch; NoBatchesError if there is none yet."""
    last = find_last_batch(logs)
    if last is None:
        raise NoBatchesError(f"pipeline.warehouse: {logs.warehouse!r} has no batches yet; run `sessionlake run` first")
    return last
