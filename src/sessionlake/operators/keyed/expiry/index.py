"""Pattern `index`: the store has an index with the time at which to look at a row. A cleanup reads it from its start to the clock.

An entry is a time and a key. Each row that ever expires has an entry of its expiry or of a time before it: an update that puts the
expiry off leaves the index alone, and the cleanup that meets the entry writes one of the later expiry in its place. So a row that is
updated often costs its index nothing, and is looked at once in each time to live. The removed rows depend on rows and clock alone, and not
on the places of entries: after a restore an entry may lie elsewhere.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, distinct
from sessionlake.columnar.texts import sorted_codes
from sessionlake.operators.keyed.expiry.pattern import CHUNK, ByRule, Expirations, IndexChanges, Pass
from sessionlake.operators.keyed.expiry.table_rows import TableRows
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.shared.cleanups.names import TTL
from sessionlake.operators.shared.cleanups.rule import NEVER, Rule
from sessionlake.store.layout import Heads
from sessionlake.store.rows import EXPIRY, RowStore, Stored, parted, sorted_numbers, stored_of

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.section import TtlSection

_NONE = pa.nulls(0, pa.binary())  # `pa.array` of a list would import pandas, for each reader of a config


@dataclass(frozen=True)
class Index(ByRule):
    """See `Pattern` for the methods. The rule has no condition `where`: only times can be sorted."""

    rule: Rule
    most: int
    """Rows that a cleanup takes away at most, and entries of others that it moves."""
    index: int = EXPIRY
    cause: str = TTL

    @property
    def layout(self) -> str:
        """Return the rule, since entries are at its expiries or before them."""
        rule = self.rule
        return f"index/{f'{rule.ttl_us} {rule.since}' if rule.expires_at is None else rule.expires_at.text}"

    def entries(self, rows: TableRows) -> pa.Array:
        """Return an entry for each row that ever expires, of its expiry."""
        expires = self.rule.expires_us(rows)
        return _entries(expires, rows.keys).filter(pa.array(expires != NEVER))

    def index_changes(self, put: TableRows, was: TableRows, found: Expirations) -> IndexChanges:
        """Return the entries of rows that have none at their expiry or before it, and those that a cleanup has passed.

        A row that goes by an update leaves the entry that it has, if that isn't of its expiry, to a cleanup.
        """
        before = pc.index_in(put.keys, value_set=was.keys)
        known = np.flatnonzero(before.is_valid().to_numpy(zero_copy_only=False))
        old, new = self.rule.expires_us(was), self.rule.expires_us(put)
        had = np.full(len(put), NEVER)
        had[known] = old[before.drop_null().to_numpy()]
        _, passed = parted(found.passed, 1)
        passed_by = pc.is_in(put.keys.cast(pa.binary()), value_set=passed).to_numpy(zero_copy_only=False)
        wanted = (new != NEVER) & ((new < had) | passed_by)
        left = pc.invert(pc.is_in(was.keys, value_set=put.keys)).to_numpy(zero_copy_only=False)
        sooner = np.zeros(len(was), bool)
        sooner[before.drop_null().to_numpy()] = (new < had)[known]
        freed = self.entries(was.take(np.flatnonzero(left | sooner)))
        added = _entries(new, put.keys).filter(pa.array(wanted))
        return IndexChanges(
            pa.concat_arrays([added, pc.unique(found.noted)]), pc.unique(pa.concat_arrays([freed, found.passed]))
        )

    def find(self, store: RowStore, at: Pass) -> Expirations | None:
        """Return the first rows by expiry that have expired; entries after the clock aren't read."""
        if at.clock_us is None:
            return None
        walk = _Walk(self.rule, store, at, at.clock_us, self.most)
        # Entries are a time, then a key. Entries of the clock or before are less than the bytes of the next microsecond.
        end = sorted_numbers(np.array([at.clock_us + 1]))[0].as_py()
        scanned, first, after = 0, None, None
        while len(page := store.entries(self.index, end, CHUNK, after)):
            first, after = first or page[0].as_py(), page[-1].as_py()
            page = page.filter(pc.less(page, end))
            scanned += len(page)
            walk.look_at(page)
            if len(page) < CHUNK or walk.is_past(int(parted(page[-1:], 1)[0][0][0])):
                break
        at_once = np.array(self.rule.expired(at.put, at.clock_us), bool)
        return replace(walk.result(at_once), scanned=scanned, first=first)


@dataclass(frozen=True)
class _Expired:
    """Rows that have expired, in columns."""

    keys: pa.Array
    head: Heads
    values: pa.Array
    expires: Ints
    entries: pa.Array
    """The entry of the index that led to each row."""

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, at: Ints) -> "_Expired":
        """Return some of the rows."""
        index = pa.array(at)
        parts = (
            self.keys.take(index),
            self.head[at],
            self.values.take(index),
            self.expires[at],
            self.entries.take(index),
        )
        return _Expired(*parts)


@dataclass
class _Walk:
    """A cleanup on its way through the index, with the rows and entries that it has read so far."""

    rule: Rule
    store: RowStore
    seen: Pass
    clock_us: int
    most: int
    _met: list[_Expired] = field(default_factory=list)
    _passed: list[pa.Array] = field(default_factory=list)
    _noted: list[pa.Array] = field(default_factory=list)
    _decoded: int = 0

    def look_at(self, page: pa.Array) -> None:
        """Look at the rows of a page of entries, ascending, whose times have come."""
        codes, keys = sorted_codes(parted(page, 1)[1])
        rows = self.store.rows(keys)
        expires = np.full(len(keys), NEVER)
        expires[rows.codes] = self.rule.expires_us(self.seen.read(keys.take(pa.array(rows.codes)), rows))
        self._decoded += len(rows) if self.rule.reads_columns else 0
        unchanged = self.seen.unchanged(keys)
        expired = unchanged & (expires <= self.clock_us)
        goes = np.flatnonzero(expired[codes])
        which = np.searchsorted(rows.codes, codes[goes])
        found, index = rows.head[which], pa.array(which)
        entries = page.take(pa.array(goes))
        self._met.append(
            _Expired(keys.take(pa.array(codes[goes])), found, rows.values.take(index), expires[codes[goes]], entries)
        )
        # A row that goes, or that the batch changes, needs no other entry. A row that stays gets an entry of its expiry.
        passed = np.flatnonzero(~expired[codes])[: max(self.most - sum(map(len, self._passed)), 0)]
        stays = distinct(codes[passed])
        stays = stays[(unchanged & ~expired & (expires != NEVER))[stays]]
        self._passed.append(page.take(pa.array(passed)))
        self._noted.append(_entries(expires[stays], keys.take(pa.array(stays))))

    def is_past(self, due_us: int) -> bool:
        """Say whether rows of entries after a time can't be among the first ones by expiry."""
        if sum(map(len, self._met)) < self.most:
            return False
        met = self._first()
        return len(met) == self.most and due_us > met.expires[-1]

    def _first(self) -> _Expired:
        """Return the first rows that go, by expiry, then key, and drop the others: their entries stay in the index."""
        met = _Expired(
            pa.concat_arrays([part.keys for part in self._met]),
            np.concatenate([part.head for part in self._met]),
            pa.concat_arrays([part.values for part in self._met]),
            np.concatenate([part.expires for part in self._met]),
            pa.concat_arrays([part.entries for part in self._met]),
        )
        codes, _ = sorted_codes(met.keys)
        order = np.lexsort((codes, met.expires))
        # A row may be found by several entries. Rows of a key have one expiry, so they are adjacent in this order.
        again = np.zeros(len(order), bool)
        again[1:] = codes[order[1:]] == codes[order[:-1]]
        self._passed.append(met.entries.take(pa.array(order[again])))
        self._met = [met.take(order[~again][: self.most])]
        return self._met[0]

    def result(self, at_once: Bools) -> Expirations:
        """Return the rows that go."""
        if not self._met:
            return Expirations(at_once, _NONE, stored_of(np.zeros(0, np.int64), []))
        met = self._first()
        by_key = met.take(pc.sort_indices(met.keys).to_numpy())
        return Expirations(
            at_once,
            by_key.keys,
            Stored(np.arange(len(by_key)), by_key.head, by_key.values),
            decoded=self._decoded,
            left_over=len(met) == self.most,
            passed=pa.concat_arrays([*self._passed, met.entries]),
            noted=pa.concat_arrays(self._noted),
        )


def _entries(times: Ints, keys: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(sorted_numbers(times), keys.cast(pa.binary()), b"")


def section() -> type["TtlSection"]:
    """Return the class of [ttl] with this pattern; created on the driver only, since workers do not import pydantic."""
    from sessionlake.operators.keyed.expiry.section import SinceSection, Types
    from sessionlake.operators.shared.cleanups.section import BoundedSection, RuleSection

    class IndexSection(SinceSection, RuleSection, BoundedSection):
        pattern: Literal["index"]

        def build(self, types: Types, shards: int, *, allowed: bool = False) -> Ttl:
            del shards
            index = Index(self.rule(types, self.counts_from), self.max_per_cleanup)
            return Ttl(index, self.schedule(allowed=allowed), self.counts_from)

    return IndexSection
