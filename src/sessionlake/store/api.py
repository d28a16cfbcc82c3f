"""Interfaces of a shard's store for the engine, and of a database for the store, independent of the operator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from sessionlake.columnar.arrays import combined

Bytes: TypeAlias = Sequence[bytes | None] | pa.Array
"""Byte strings: some objects, or an array."""
SegmentWrites = Mapping[int, tuple[Bytes, Bytes]]
"""By segment keys and their values; null deletes."""


IDS_FROM = (1 << 62) + (1 << 61)
"""Segments numbered from here on have the identities of events (`store/ids.py`). No operator sees them."""


class ShardStore(Protocol):
    """A shard's database on a local disk, open in one process at a time.

    Besides this it reads and writes in the operator's own terms; writes are applied with their metadata, atomically.
    """

    def meta(self, name: str) -> bytes | None:
        """Return a named text that was written with the last writes that named it; None if none was."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows."""

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
        """Return the values of a few distinct keys in a live segment."""

    def find(self, segment: int, keys: pa.Array) -> pa.Array:
        """Return the values of distinct keys in a live segment, null if there is none; both are bytes."""

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them; low and high are inclusive."""

    def page(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> tuple[pa.Array, pa.Array]:
        """Return what `items` does, as an array of keys and an array of values."""

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


class OfObjects(ABC):
    """The methods of `Segments` with arrays as arguments or results, for a database of values as objects."""

    def find(self, segment: int, keys: pa.Array) -> pa.Array:
        """Return the values of distinct keys in a live segment, null if there is none."""
        return as_array(self.get(segment, keys.to_pylist()) if len(keys) else [])

    def page(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> tuple[pa.Array, pa.Array]:
        """Return keys and values of a live segment, ascending by key, the first `limit` of them."""
        items = self.items(segment, low, high, limit)
        return as_array([key for key, _ in items]), as_array([value for _, value in items])

    @abstractmethod
    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        """See `Segments`."""

    @abstractmethod
    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """See `Segments`."""


def as_array(values: Bytes) -> pa.Array:
    """Return byte strings as one array; StoreError if they are more than Arrow's 2 GiB."""
    return values if isinstance(values, pa.Array) else combined(pa.chunked_array([pa.array(values, pa.binary())]))


def as_objects(values: Bytes) -> Sequence[Any]:
    """Return byte strings as objects."""
    return values.to_pylist() if isinstance(values, pa.Array) else values


OpenSegments = Callable[[Path], Segments]
"""Opens the database of a directory."""
