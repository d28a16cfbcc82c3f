"""Rows of some keys as stores return them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

OPEN, QUARANTINED = "open", "quarantined"
ALL = frozenset((OPEN, QUARANTINED))
"""Rows that a live view may leave out: with emit = "final" open sessions, and those in quarantine."""


@dataclass(frozen=True)
class Packed:
    """The stored values of some keys: values[i] is one of the value bytes of keys[owner[i]]."""

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


class ResultRow(NamedTuple):
    """One row of a store, whose values are still packed."""

    key: str
    start_us: int
    """The start of the row; 0 for a keyed table's row."""
    end_us: int
    """Inclusive."""
    head: tuple[int, ...]
    """The fields before a session's state (`store.layout.sessions_of`); empty for a keyed table's row."""
    packed: bytes
