"""Removal of stores that hold bytes to be erased: a job marks the stores, and the stream removes the marked ones."""

from pathlib import Path

from sessionlake.engine.pending import PENDING, Pending
from sessionlake.store.directory import remove_store

FORGET = ".forget"
"""Suffix, next to a store, of a job's request that store and pending writes go."""


def mark(folder: Path, shard: int) -> None:
    """Ask for the removal of a shard's store, which is then restored from the tables: these must be rid of the rows before."""
    (folder / f"{shard}{FORGET}").touch()


def marked(folder: Path) -> list[int]:
    """Return the marked shards below a pipeline's store directory, ascending."""
    return sorted(int(path.stem) for path in folder.glob(f"*{FORGET}") if path.stem.isdigit())


def remove_marked(path: Path) -> bool:
    """Remove a store and its pending writes if it is marked; return whether it was. StoreError if a file can't be removed."""
    # The marker is removed last, so that a removal that was interrupted is done again.
    marker = path.with_suffix(FORGET)
    if not marker.exists():
        return False
    erase_store(path)
    return True


def erase_store(path: Path) -> None:
    """Remove a store, its pending writes and its marker, if they are there."""
    remove_store(path)
    Pending(path.with_suffix(PENDING)).clear()
    path.with_suffix(FORGET).unlink(missing_ok=True)


def remove_all_marked(folder: Path) -> int:
    """Remove the marked stores below a directory while no batch runs; return how many there were."""
    return sum(remove_marked(folder / str(shard)) for shard in marked(folder))
