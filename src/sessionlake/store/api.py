"""What the engine asks of a shard's store, whatever the operator keeps in it."""

from typing import Protocol


class ShardStore(Protocol):
    """A shard's database on a local disk, open in one process at a time.

    Besides this it reads and writes in the operator's own terms; writes are applied with their metadata, atomically.
    """

    def meta(self, name: str) -> bytes | None:
        """Return a named text that was written with the last writes that named it; None where none was."""

    def clear(self) -> None:
        """Remove all that is stored, metadata included."""

    def close(self) -> None:
        """Release the database."""
