"""Interfaces of a shard's store for the engine, and of a database for the store, independent of the operator."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

SegmentWrites = Mapping[int, tuple[list[bytes], list[bytes | None]]]
"""By segment keys and their values; None deletes."""


IDS_FROM = (1 << 62) + (1 << 61)
"""Segments numbered from here on have the identities of events (`store/ids.py`). No operator sees them."""


class ShardStore(Protocol):
    """A shard's database on a local disk, open in one process at a time.

    Besides this it reads and writes in the operator's own terms; writes are applied with their metadata, atomically.
    """

    def meta(self, name: str) -> bytes | None:
        """Return a named text that was written with the last writes that named it; None if none was."""

    def clear(self) -> None:
        """Remove all that is stored, metadata included."""

    def close(self) -> None:
        """Release the database."""


class Segments(Protocol):
    """A database of segments, named by number, and a few metadata entries."""

    @property
    def segments(self) -> list[int]:
        """Numbers of the live segments, ascending."""

    def meta(self, name: str) -> bytes | None:
        """Return a metadata entry."""

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of distinct keys in a live segment."""

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""

    def write(self, writes: SegmentWrites, meta: Mapping[str, bytes]) -> None:
        """Write values and metadata atomically; a segment that is not there is made first."""

    def drop_before(self, segment: int) -> None:
        """Drop all segments numbered below `segment`, whatever they hold."""

    def drop(self, segments: Iterable[int]) -> None:
        """Drop live segments, whatever they hold."""

    def clear(self) -> None:
        """Remove everything and start empty."""

    def close(self) -> None:
        """Release the database."""


OpenSegments = Callable[[Path], Segments]
"""Opens the database of a directory."""
