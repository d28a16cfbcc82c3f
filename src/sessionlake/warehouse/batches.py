"""What the changelog's commits tell: the batches, the last of them, and whether others have changed what they wrote."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sessionlake.errors import NoBatchesError, PipelineStateError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import SLICE, Changelog
from sessionlake.warehouse.delta_log import DeltaLog
from sessionlake.warehouse.history import ForeignChange

RESTORING = "_restoring"
"""A file in a warehouse that is being restored; nothing may run there."""


def check_history(log: DeltaLog, changelogs: Sequence[Changelog]) -> None:
    """Refuse tables that somebody else has removed, put back to an older version, or changed rows of, since we last wrote them.

    `changelogs` are all that a pipeline has (`Kind.changelogs_in`).
    """
    # Made before the changelog; nothing can be gone on without them.
    states = (name for of in changelogs for name in (of.changes, *of.state) if name != log.changelog.changes)
    needed = {
        **{of.snapshot: "what was trimmed from the changelog is there alone" for of in changelogs},
        **dict.fromkeys(states, "the state is restored from it"),
        schemas.CORRECTIONS: "how far it was read is a position in that very table",
    }
    needed = needed if log.exists(log.changelog.changes) else {}
    for name, lost in needed.items():
        if not log.exists(name):
            raise PipelineStateError(
                f"table {name!r}: is missing in {log.warehouse!r}, and {lost}; "
                "put a backup back, or build the tables anew with `sessionlake rebuild` (docs/recovery.md)"
            )
    found = foreign_change(log, changelogs)
    if found is not None:
        raise PipelineStateError(found.explained(log.path(found.table)))


def foreign_change(log: DeltaLog, changelogs: Sequence[Changelog]) -> ForeignChange | None:
    """Return a change by others of the tables of changelogs, since we last wrote them."""
    for name in (table for of in changelogs for table in of.guarded):
        if log.exists(name) and (found := log.foreign_change(name)) is not None:
            return found
    return None


def changelogs_in(log: DeltaLog) -> list[Changelog]:
    """Return a pipeline's changelogs that are there, the one whose commits are the batches' first.

    The tables tell, so that no operator is imported for it, and with it Spark. A changelog of the state alone is of slices.
    """
    return [of for of in (log.changelog, replace(log.changelog, name=SLICE)) if log.exists(of.changes)]


def batches_after(log: DeltaLog, version: int = -1) -> Iterator[BatchCommit]:
    """Yield the batches whose commits made a later version of the changelog, oldest first."""
    return (BatchCommit.of(commit, log.changelog.changes) for commit in log.commits(log.changelog.changes, version))


def find_last_batch(log: DeltaLog) -> BatchCommit | None:
    """Return the last batch, None where there is none; PipelineStateError where it can't be gone on from."""
    if log.read_text(f"{log.warehouse}/{RESTORING}") is not None:
        raise PipelineStateError(
            f"pipeline.warehouse: {log.warehouse!r} is half restored from a backup; run `sessionlake restore` again until it ends"
        )
    last = log.last_commit(log.changelog.changes)
    return None if last is None else BatchCommit.of(last, log.changelog.changes)


def last_batch_id(log: DeltaLog, of: Changelog) -> int:
    """Return the last batch of a pipeline's changelog, -1 where there is none.

    Tables of the state are committed before the changelog: their rows of later batches are of one that has not happened yet.
    """
    last = log.last_commit(of.changes)
    return -1 if last is None else BatchCommit.of(last).batch_id


def last_batch(log: DeltaLog) -> BatchCommit:
    """Return the last batch; NoBatchesError where there is none yet."""
    last = find_last_batch(log)
    if last is None:
        raise NoBatchesError(f"pipeline.warehouse: {log.warehouse!r} has no batches yet; run `sessionlake run` first")
    return last
