"""TTL patterns: each finds the rows that a batch removes in its own way (docs/rules.md, rule 172)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.operators.keyed.expiry.ordered_ids import KeyFormat
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.operators.shared.cleanups.rule import Rule
from sessionlake.store.rows import RowStore, Stored

CHUNK = 100_000
"""Rows that are in memory at a time."""


@dataclass(frozen=True)
class Pass:
    """The input of a pattern: a shard's part of a batch, whose updates are not in the store yet."""

    clock_us: int | None
    """The clock with which expiries are compared, microseconds; None if no cleanup is due."""
    changed: pa.Array
    """The keys, bytes, ascending, that the batch changes: it replaces or deletes their rows, or gives them one."""
    held: int
    """How many of them have a row in the store, hidden ones, too."""
    put: TableRows
    """The rows that the batch writes."""
    read: Callable[[pa.Array, Stored], TableRows]
    """Returns stored rows, given with their keys as bytes, as rows of the table."""
    cursor: Mapping[str, Any]
    """The cursor that the shard's last pass returned."""
    budget: int
    """How many rows a cleanup that is bounded in time may look at."""
    hidden_us: int
    """Stored rows that were written at this time or before it count as missing (rule 176)."""

    def unchanged(self, keys: pa.Array) -> Bools:
        """Return which keys the batch leaves as they are."""
        return pc.invert(pc.is_in(keys, value_set=self.changed)).to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class Expirations:
    """The rows that a batch removes from a shard after its updates, and the numbers of the search for them."""

    at_once: Bools
    """Which rows that the batch writes expire at once."""
    keys: pa.Array
    """The keys, bytes, ascending, of stored rows that go. No delete is logged for hidden rows."""
    rows: Stored
    """These rows; codes are places among the keys."""
    cursor: Mapping[str, Any] | None = None
    scanned: int = 0
    """Rows or entries that were looked at."""
    decoded: int = 0
    """Rows whose columns were unpacked."""
    left_over: bool = False
    """Whether the number of removed rows reached its limit; there may be more."""
    first: bytes | None = None
    """The first entry of the index that was read; None if none was."""
    passed: pa.Array = field(default_factory=lambda: pa.array([], pa.binary()))
    """Entries of the index that were met and go."""
    noted: pa.Array = field(default_factory=lambda: pa.array([], pa.binary()))
    """Entries that come in their place, of rows that stay."""
    round_us: int | None = None
    """How long ago, by the clock, the round of a bounded cleanup began; None if each cleanup looks at all rows."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Numbers with which the brake decides whether these rows may go (`operators/shared/cleanups/brake.py`)."""
    took_us: int = field(default=0, compare=False)
    """How long it took to find them."""


@dataclass(frozen=True)
class IndexChanges:
    """The changes of a batch in the index."""

    added: pa.Array
    """Distinct entries, bytes."""
    removed: pa.Array
    """Distinct entries, bytes; they need not exist."""


class Pattern(Protocol):
    """A way of finding the rows that have expired."""

    @property
    def index(self) -> int | None:
        """The store's index (`store/rows.py`) that it keeps; None for none."""

    @property
    def cause(self) -> str:
        """The cause in the changelog of the rows that go."""

    @property
    def hides_us(self) -> int | None:
        """How long after they were written rows are hidden without a delete; None if they never are."""

    @property
    def max_duration_us(self) -> int | None:
        """How long a cleanup of a shard may take, about; None if it is not bounded in time."""

    @property
    def interval_us(self) -> int | None:
        """How long a segment is written to, if rows lie in segments by the time at which they were written."""

    @property
    def key_format(self) -> KeyFormat | None:
        """The format that keys must have; None for any."""

    @property
    def layout(self) -> str:
        """The settings on which its index depends: stores with another layout are restored."""

    def entries(self, rows: TableRows) -> pa.Array:
        """Return the entries of rows in an index that is built again."""

    def index_changes(self, put: TableRows, was: TableRows, found: Expirations) -> IndexChanges:
        """Return the changes in the index for rows that are put and rows that go.

        `was` are the earlier rows of the keys that are put, and of the keys that updates and tombstones delete.
        """

    def lag_us(self, rows: TableRows, clock_us: int) -> int | None:
        """Return how long ago, at most, rows expired that a cleanup takes away, 0 for none; None if none has an expiry."""

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired by a clock. A pattern whose rows go for another reason has no such rows."""

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return the rows that go; None if this batch removes nothing."""


class PatternDefaults:
    """The defaults of a `Pattern`."""

    @property
    def hides_us(self) -> int | None:
        """Return None: rows go by deletes."""
        return None

    @property
    def max_duration_us(self) -> int | None:
        """Return None: a cleanup is not bounded in time."""
        return None

    @property
    def interval_us(self) -> int | None:
        """Return None: rows do not lie in segments by the time at which they were written."""
        return None

    @property
    def key_format(self) -> KeyFormat | None:
        """Return None: keys may be any text."""
        return None


class ByRule(PatternDefaults):
    """The part of a `Pattern` that is the same if a rule says which rows have expired."""

    rule: Rule

    def lag_us(self, rows: TableRows, clock_us: int) -> int | None:
        """Return how long ago, at most, some rows expired."""
        return self.rule.lag_us(rows, clock_us)

    def expired(self, rows: TableRows, clock_us: int) -> Bools:
        """Return which rows have expired."""
        return self.rule.expired(rows, clock_us)


class Unindexed(PatternDefaults):
    """The part of a `Pattern` that is the same if the store keeps no index for it."""

    index: ClassVar[None] = None
    cause: ClassVar[str] = TTL

    @property
    def layout(self) -> str:
        """Return nothing: rows lie as they do without a pattern."""
        return ""

    def entries(self, rows: TableRows) -> pa.Array:
        """Raise NotImplementedError: there is no index."""
        raise NotImplementedError

    def index_changes(self, put: TableRows, was: TableRows, found: Expirations) -> IndexChanges:
        """Raise NotImplementedError: there is no index."""
        raise NotImplementedError


def find_expired(
    store: RowStore, at: Pass, expired: Callable[[TableRows], Bools], most: int, high: bytes | None = None
) -> Expirations:
    """Return the first `most` rows that have expired, up to the key `high`; CHUNK rows are read at a time.

    Rows that the batch writes go at once if they have expired. The caller sets `decoded`.
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
    return Expirations(at_once, *joined(parts), scanned=scanned, left_over=gone == most)


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
