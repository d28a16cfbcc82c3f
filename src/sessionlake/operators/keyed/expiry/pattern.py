"""What a pattern of expiry is: how the rows are found that a batch takes away (docs/rules.md, rule 172)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.operators.cleanups.rule import Rule
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.store.rows import RowStore, Stored
from sessionlake.warehouse.changelog import TTL

CHUNK = 100_000
"""Rows that are in memory at a time."""


@dataclass(frozen=True)
class Pass:
    """What a pattern is told of a shard's part of a batch, whose updates are not in the store yet."""

    clock_us: int | None
    """What expiries are held against, microseconds; None where no cleanup is due."""
    changed: pa.Array
    """The keys, bytes, ascending, whose rows in the store the batch replaces or deletes, or that it gives a row."""
    held: int
    """How many of them have a row in the store, hidden ones, too."""
    put: TableRows
    """The rows that the batch writes."""
    read: Callable[[pa.Array, Stored], TableRows]
    """Returns rows of the store, of these keys, bytes, as rows of the table."""
    cursor: Mapping[str, Any]
    """What the shard's last pass returned."""
    budget: int
    """How many rows a cleanup that is bounded in time may look at."""
    hidden_us: int
    """Rows of the store that were written at this time or before it are absent (rule 176)."""

    def unchanged(self, keys: pa.Array) -> Bools:
        """Return which keys the batch leaves as they are."""
        return pc.invert(pc.is_in(keys, value_set=self.changed)).to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class Found:
    """What a batch takes away of a shard, after its updates."""

    at_once: Bools
    """Of the rows that the batch writes, those that it does not keep."""
    keys: pa.Array
    """The keys, bytes, ascending, of further rows of the store that go; of hidden ones nobody is told."""
    rows: Stored
    """These rows; codes are places among the keys."""
    cursor: Mapping[str, Any] | None = None
    scanned: int = 0
    """Rows or entries that were looked at."""
    decoded: int = 0
    """Rows whose columns were unpacked."""
    left_over: bool = False
    """Whether as many rows go as may, so that there may be more."""
    first: bytes | None = None
    """The first entry of the index that was read; None where none was."""
    passed: pa.Array = field(default_factory=lambda: pa.array([], pa.binary()))
    """Entries of the index that were met and go."""
    noted: pa.Array = field(default_factory=lambda: pa.array([], pa.binary()))
    """Entries that come in their place, of rows that stay."""
    round_us: int | None = None
    """How long ago, by the clock, the round began that a bounded cleanup is in, or ended; None where each looks at all."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Numbers of the batch by which it is decided whether so many may go (`operators/cleanups/brake.py`)."""
    took_us: int = field(default=0, compare=False)
    """How long it took to find them."""


@dataclass(frozen=True)
class Moved:
    """What a batch changes in the index."""

    added: pa.Array
    """Distinct entries, bytes."""
    removed: pa.Array
    """The same; they need not be there."""


class Pattern(Protocol):
    """How rows are found."""

    @property
    def index(self) -> int | None:
        """The store's index (`store/rows.py`) that it keeps; None for none."""

    @property
    def cause(self) -> str:
        """What the changelog says of the rows that go."""

    @property
    def hides_us(self) -> int | None:
        """How long after they were written rows are absent without a delete; None where they never are."""

    @property
    def layout(self) -> str:
        """What its index depends on: under another layout stores are restored."""

    def entries(self, rows: TableRows) -> pa.Array:
        """Return the entries that rows have in an index that is made anew."""

    def moved(self, put: TableRows, was: TableRows, found: Found) -> Moved:
        """Return what changes in the index when rows are put, and others found to go.

        `was` are the rows before of the keys that are put, and of those that updates and tombstones delete.
        """

    def lag_us(self, rows: TableRows, clock_us: int) -> int | None:
        """Return how long ago, at most, rows expired that a cleanup takes away, 0 for none; None where none has an expiry."""

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired by a clock; not of a pattern whose rows go for another reason."""

    def found(self, store: RowStore, at: Pass) -> Found | None:
        """Return what goes; None where this batch takes nothing away."""


class ByRule:
    """The part of a `Pattern` that is the same where a rule says which rows have expired."""

    rule: Rule

    def lag_us(self, rows: TableRows, clock_us: int) -> int | None:
        """Return how long ago, at most, some rows expired."""
        return self.rule.lag_us(rows, clock_us)

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired."""
        return self.rule.expired(rows, clock_us)


class Unindexed:
    """The part of a `Pattern` that is the same where the store keeps no index for it."""

    index: ClassVar[None] = None
    cause: ClassVar[str] = TTL

    @property
    def hides_us(self) -> int | None:
        """Return None: a delete tells of every row that goes."""
        return None

    @property
    def layout(self) -> str:
        """Return nothing: rows lie as they do without a pattern."""
        return ""

    def entries(self, rows: TableRows) -> pa.Array:
        """Raise NotImplementedError: there is no index."""
        raise NotImplementedError

    def moved(self, put: TableRows, was: TableRows, found: Found) -> Moved:
        """Raise NotImplementedError: there is no index."""
        raise NotImplementedError


def paged(
    store: RowStore, at: Pass, expired: Callable[[TableRows], Bools], most: int, high: bytes | None = None
) -> Found:
    """Return the first `most` rows that have expired, of those up to the key `high`, CHUNK looked at a time.

    Of the rows that the batch writes all go that have expired. `decoded` is left to the caller.
    """
    parts: list[tuple[pa.Array, Stored]] = []
    scanned, gone, keys, ended = 0, 0, pa.array([], pa.binary()), False
    while not ended and gone < most:
        keys, rows = store.page(keys[-1].as_py() if len(keys) else None, CHUNK, high)
        which = at.unchanged(keys) & expired(at.read(keys, rows))
        which &= np.cumsum(which) <= most - gone
        parts.append(taken(keys, rows, which))
        scanned, gone, ended = scanned + len(keys), gone + int(which.sum()), len(keys) < CHUNK
    at_once = np.array(expired(at.put), bool)
    return Found(at_once, *joined(parts), scanned=scanned, left_over=gone == most)


def taken(keys: pa.Array, rows: Stored, gone: Bools) -> tuple[pa.Array, Stored]:
    """Return those keys and rows that go."""
    at = np.flatnonzero(gone)
    index = pa.array(at)
    return keys.take(index), Stored(np.arange(len(at)), rows.head[at], rows.values.take(index))


def joined(parts: list[tuple[pa.Array, Stored]]) -> tuple[pa.Array, Stored]:
    """Return the keys and rows of pages, one after the other; at least one."""
    rows = [stored for _, stored in parts]
    total: Ints = np.arange(sum(map(len, rows)))
    head = np.concatenate([part.head for part in rows])
    return pa.concat_arrays([keys for keys, _ in parts]), Stored(
        total, head, pa.concat_arrays([p.values for p in rows])
    )
