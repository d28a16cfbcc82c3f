"""Rows as bytes, below a store's serdes: on disk, in memory, or either of them with a log of changes."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from sessionlake.store.standalone.keys import RowKeys


class Rows(Protocol):
    """Rows of any kind of store."""

    persistent: bool

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply a log of changes again: (key, value) in their order, None if the row was removed."""

    def flush(self) -> None:
        """Write the rows in memory to files, if the variant has files."""

    def close(self) -> None:
        """Release the files and memory."""


class KeyValueRows(Rows, Protocol):
    """Values by key, in the order of the keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value."""

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Write values, None removes; on disk all of them or none."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value, None removes."""

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - always named by callers
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows with low <= key < high; None is open."""

    def count(self) -> int:
        """Return about how many rows there are."""


class TimedRows(Rows, Protocol):
    """Values by key, time and rank (`keys.RowKeys`). A value is live if its time is at least `live_from`."""

    keys: RowKeys
    dropped: int
    """Rows that were refused as expired."""

    @property
    def live_from(self) -> int:
        """The least time that is not expired, by the largest time that was ever put."""

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Write a row and return its rank, or None if it is expired; without a rank it gets the next one of key and time."""

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Remove a row, if it is there."""

    def get(self, key: bytes, time: int, rank: int) -> bytes | None:
        """Return a row's value, whether it is live or not; None if it is not there."""

    def find(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Yield (key, time, rank, value) of all rows within bounds, which are inclusive."""

    def is_empty(self) -> bool:
        """Say whether nothing is stored."""
