"""What is found in stores for some keys, and what makes rows of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from sessionlake.serve.encoded import Times

OPEN, QUARANTINED = "open", "quarantined"
ALL = frozenset((OPEN, QUARANTINED))
"""What a live view may leave out: with emit = "final" sessions that are open, and those in quarantine."""


@dataclass(frozen=True)
class Packed:
    """What the shards have of some keys: values[i] is one of the value bytes of keys[owner[i]]."""

    keys: Sequence[bytes]
    owner: Sequence[int]
    values: Sequence[bytes]


@dataclass(frozen=True)
class Span:
    """The rows of one key that are asked for; bounds are inclusive, and None if open."""

    limit: int
    most: int
    """Rows that are looked at."""
    from_us: int | None = None
    """Rows that end there or later."""
    to_us: int | None = None
    """Rows that start there or earlier."""
    after_us: int | None = None
    """Rows that come after the one that starts there, in the order that is asked for."""
    descending: bool = False


class Found(NamedTuple):
    """One row of a store, whose values are still packed."""

    key: str
    start_us: int
    """Of a session; 0 of a keyed table's row."""
    end_us: int
    """Inclusive."""
    head: tuple[int, ...]
    """What stands before a session's state (`store.layout.sessions_of`); empty of a keyed table's row."""
    packed: bytes


class Decoder(Protocol):
    """What differs from one operator's stores to another's, as of one batch."""

    operator: str
    """The section of the config that the rows are of."""
    complete_from_us: int | None
    """Rows that ended before it may lie in the tables only; None where stores have all."""

    def has(self, segment: int) -> bool:
        """Say whether rows lie in a segment."""

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return rows by key, then by time; keys come ascending. `include` names what is shown that live views leave out, of ALL."""

    def size(self, value: bytes) -> int:
        """Return how many rows a stored value has."""

    def found(self, packed: Packed, include: Collection[str] = ALL) -> list[Found]:
        """Return the same rows in the same order, their values packed."""

    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[Found], int, int | None]:
        """Return such rows of one key, how many were looked at, and the start of the last of these if there are more.

        No more are decoded than are returned. Stored values come in the order of their segments.
        """

    def told(self, found: Sequence[Found], times: Times) -> list[dict[str, Any]]:
        """Return found rows by the names of the columns, in their order, their values as answers tell them."""
