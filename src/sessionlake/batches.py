"""What the changelog's commits tell: the batches, the last of them, and whether others have changed what they wrote."""

from typing import Any

from sessionlake import schemas
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.delta_log import Commit, DeltaLog
from sessionlake.warehouse.history import ForeignChange

RESTORING = "_restoring"
"""A file in a warehouse that is being restored; nothing may run there."""
_NEEDED = (
    *("pipeline", "checkpoint_id", "batch_id", "commit_id", "state", "counts"),
    *("shards", "layout", "settings", "input", "started_us", "committed_us"),
)
"""What the metadata of every batch's commit has."""
_ONLY_THERE = {
    schemas.SESSIONS: "what was trimmed from the changelog is there alone",
    schemas.CORRECTIONS: "how far it was read is a position in that very table",
}
"""Tables that nothing can be gone on without, made before the changelog; and why."""


def batch_row(metadata: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a batch's row of the table batches from its commit."""
    return {
        "batch_id": metadata["batch_id"],
        "commit_id": metadata["commit_id"],
        "started_at": metadata["started_us"],
        "committed_at": metadata["committed_us"],
        "watermark": metadata["state"].get("watermark_us"),
        **{name: metadata["counts"].get(name, 0) for name in schemas.COUNTS},
        "changelog_version": version,
    }


def check_history(log: DeltaLog) -> None:
    """Refuse tables that somebody else has removed, put back to an older version, or changed rows of, since we last wrote them."""
    needed = _ONLY_THERE if log.exists(schemas.CHANGELOG) else {}
    for name, lost in needed.items():
        if not log.exists(name):
            raise PipelineStateError(
                f"table {name!r}: is missing in {log.warehouse!r}, and {lost}; "
                "put a backup back, or build the tables anew with `sessionlake rebuild` (docs/recovery.md)"
            )
    found = foreign_change(log)
    if found is not None:
        raise PipelineStateError(found.explained(log.path(found.table)))


def foreign_change(log: DeltaLog) -> ForeignChange | None:
    """Return a change by others of the tables that sessions are in, since we last wrote them."""
    for name in (schemas.CHANGELOG, schemas.SESSIONS):
        if log.exists(name) and (found := log.foreign_change(name)) is not None:
            return found
    return None


def find_last_batch(log: DeltaLog) -> Commit | None:
    """Return the commit of the last batch, None where there is none; PipelineStateError where it can't be gone on from."""
    if log.read_text(f"{log.warehouse}/{RESTORING}") is not None:
        raise PipelineStateError(
            f"pipeline.warehouse: {log.warehouse!r} is half restored from a backup; run `sessionlake restore` again until it ends"
        )
    last = log.last_commit(schemas.CHANGELOG)
    missing = [name for name in _NEEDED if last is not None and name not in last.metadata]
    if last is not None and missing:
        raise PipelineStateError(
            f"table {schemas.CHANGELOG!r}: version {last.version}, of batch {last.metadata['batch_id']}, lacks {missing[0]!r} in its metadata and so is "
            "not as sessionlake wrote it; put a backup back, or build the tables anew with `sessionlake rebuild` (docs/recovery.md)"
        )
    return last


def last_batch(log: DeltaLog) -> Commit:
    """Return the commit of the last batch; PipelineStateError where there is none yet."""
    last = find_last_batch(log)
    if last is None:
        raise PipelineStateError(
            f"pipeline.warehouse: {log.warehouse!r} has no batches yet; run `sessionlake run` first"
        )
    return last
