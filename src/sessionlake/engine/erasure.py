"""Removal of stores that hold bytes to be erased, or damaged ones: a job or a reader marks them, and the stream removes the marked ones."""

from pathlib import Path

from sessionlake.engine.pending import PENDING, Pending
from sessionlake.store.directory import remove_store

FORGET = ".forget"
"""Suffix, next to a store, of a request that store and pending writes go; its text is the cause."""
FORGOTTEN, CORRUPT = "forgotten", "corrupt"
"""Causes: a job has asked for it, or a reader has met damaged bytes."""


def mark(folder: Path, shard: int, cause: str = FORGOTTEN) -> None:
    """Ask for the removal of a shard's store, which is then restored from the tables: these must be rid of the rows before."""
    marker = folder / f"{shard}{FORGET}"
    if not marker.exists():
        marker.write_text(cause)


def cause_of(path: Path) -> str | None:
    """Return the cause for which a store is marked; None if it is not."""
    marker = path.with_suffix(FORGET)
    if not marker.exists():  # asked first, as it opens no file
        return None
    return CORRUPT if marker.read_bytes() == CORRUPT.encode() else FORGOTTEN  # marks of earlier releases are empty


def marked(folder: Path) -> list[int]:
    """Return the marked shards below a pipeline's store directory, ascending."""
    return sorted(int(path.stem) for path in folder.glob(f"*{FORGET}") if path.stem.isdigit())


def remove_marked(path: Path) -> str | None:
    """Remove a store and its pending writes if it is marked; return the cause, None if it was not. StoreError if a file can't be removed."""
    # The marker is removed last, so that a removal that was interrupted is done again.
    cause = cause_of(path)
    if cause is not None:
        erase_store(path)
    return cause


def erase_store(path: Path) -> None:
    """Remove a store, its pending writes and its marker, if they are there."""
    remove_store(path)
    Pending(path.with_suffix(PENDING)).clear()
    path.with_suffix(FORGET).unlink(missing_ok=True)


def remove_all_marked(folder: Path) -> int:
    """Remove the marked stores below a directory while no batch runs; return how many there were."""
    return sum(remove_marked(folder / str(shard)) is not None for shard in marked(folder))
