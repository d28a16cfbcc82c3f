"""Levels: the merged view of a segment's runs, from the oldest to the newest, and their merging.

A write makes a level of tier 0. As soon as a tier has `FAN` levels, these are merged into one of the next tier. As soon as the levels
above tier 0 have twice the rows of the oldest one, they are merged into one. A merge goes on by ranges of keys: each write goes on with it
as far as its own size tells, so that no batch waits for the merge of all. Rows that are merged already are hidden in the merged levels,
whose runs begin at a later row.
"""

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.columnar.identity import hash_bytes
from sessionlake.columnar.texts import text_order
from sessionlake.store.runs import Rows, Run, in_order

FAN = 8
"""Levels of a tier that are merged into a level of the next."""
_MOST_TIERS = 20
_LEAST_STEP = 4096
"""Least number of rows of each level in a step of a merge."""
STEP_BYTES = 32 << 20
"""Greatest number of bytes, keys and values, of all levels together in a step; a single row may be larger."""
_FEW = 64
"""So few keys are looked up singly."""
_FIRST_PIECE, _PIECE = 1 << 8, 1 << 16
"""Rows of each level, at most, that are read at a time: at first, as many readers take a few only, and in the end."""
_ALL = 1 << 31


@dataclass(frozen=True)
class Part:
    """A run's rows from a given row on."""

    file: str
    """The file's name."""
    run: Run
    start: int = 0

    @cached_property
    def first(self) -> bytes:
        """The least key."""
        return self.run.key(self.start)

    @cached_property
    def last(self) -> bytes:
        """The greatest key."""
        return self.run.key(self.run.rows - 1)


@dataclass(frozen=True)
class Level:
    """Parts with distinct keys, in the order of the keys; none if it is just begun to be merged."""

    tier: int
    parts: tuple[Part, ...]
    merges: int = 0
    """The number of levels, right before this level, that are being merged into it."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(part.run.rows - part.start for part in self.parts)


@dataclass(frozen=True)
class Levels:
    """The levels of a segment, the oldest first. A key's value is in the newest level with the key."""

    levels: tuple[Level, ...] = ()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""
        for level in reversed(self.levels):
            for part in level.parts:
                if len(level.parts) > 1 and not part.first <= key <= part.last:
                    continue
                row = part.run.row_of(key)
                if row >= part.start:
                    return part.run.value(row)
        return None

    def find(self, keys: pa.Array) -> pa.Array:
        """Return the values of distinct keys, null if there is none. Ascending keys are found faster."""
        if len(keys) <= _FEW:
            return pa.array([self.get(key) for key in keys.to_pylist()], pa.binary())
        if pc.all(pc.less(keys[:-1], keys[1:])).as_py():
            return self._found(keys)
        order = text_order(keys)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return self._found(keys.take(pa.array(order))).take(pa.array(place))

    def _found(self, keys: pa.Array) -> pa.Array:
        """Return the values of distinct keys, ascending."""
        hashes = hash_bytes(keys, self.seed)
        at, count = np.full(len(keys), -1), 0
        left = np.arange(len(keys))
        values = []
        for level in reversed(self.levels):
            for part, asked in _parted(level, keys, left):
                which, rows = part.run.find(keys, hashes, asked)
                if part.start:
                    which, rows = which[rows >= part.start], rows[rows >= part.start]
                at[which] = np.arange(count, count + len(which))
                count += len(which)
                values.append(part.run.values(rows))
            left = left[at[left] < 0]
            if not len(left):
                break
        found = combined(pa.chunked_array(values, pa.binary()))
        return found.take(pa.array(at, mask=at < 0))

    def items(
        self, low: bytes | None, high: bytes | None, limit: int | None, *, backward: bool = False
    ) -> Iterator[Rows]:
        """Yield the keys and values from low to high, both inclusive, in pieces in the order of keys, or against it; the first `limit`."""
        left = _ALL if limit is None else limit
        if not left:
            return
        for rows in pieces(self.levels, low, high, min(_FIRST_PIECE, left), backward=backward):
            live = rows.values.is_valid()
            found = rows if rows.values.null_count == 0 else Rows(rows.keys.filter(live), rows.values.filter(live))
            some = min(left, len(found))
            yield found.slice(len(found) - some, len(found)) if backward else found.slice(0, some)
            left -= some
            if not left:
                return

    @property
    def parts(self) -> Iterator[Part]:
        """All parts, of the oldest level first."""
        return (part for level in self.levels for part in level.parts)

    @property
    def seed(self) -> int:
        """The seed of all keys' hashes; a new seed while there are no keys."""
        return next((part.run.seed for part in self.parts), None) or 1 + secrets.randbits(63)

    def added(self, parts: Sequence[Part]) -> "Levels":
        """Return the levels with a newer one."""
        return Levels((*self.levels, Level(0, tuple(parts))))

    def merged(self, written: int, write: Callable[[Rows], Part]) -> "Levels":
        """Return the levels after the merges that are due have gone on, as far as is due after a write of some rows; `write` makes runs."""
        begun = self._begun()
        # The newest first: a merge that ends moves only the levels behind it.
        for at in [i for i, level in enumerate(begun.levels) if level.merges][::-1]:
            into = begun.levels[at]
            # Twice as fast as rows come. And a merge has ended when the next levels of its tier are due to be merged, also if batches
            # get much smaller: else levels would become many.
            total = sum(level.rows for level in begun.levels[at - into.merges : at + 1])
            budget = max(2 * written, -(-total // FAN**into.tier))
            step, done, count = max(_LEAST_STEP, budget // into.merges), 0, len(begun.levels)
            # A step ends with the level that reaches furthest in few rows, and so takes less than its share of the others.
            while done < budget / 2 and len(begun.levels) == count:
                begun, rows = begun._stepped(at, step, write)  # noqa: SLF001 (of the same class)
                done += rows
        return begun

    def _begun(self) -> "Levels":
        """Return the levels with all merges begun that are due."""
        levels = list(self.levels)
        free = _free(levels)
        old = next((i for i, level in enumerate(levels) if i not in free or not level.tier), len(levels))
        if old > 1 and sum(level.rows for level in levels[1:old]) >= levels[0].rows:
            # Else a segment whose keys are written again and again would keep each value many times.
            levels.insert(old, Level(min(levels[0].tier + 1, _MOST_TIERS), (), old))
        for tier in {level.tier for level in self.levels}:
            at = [i for i in _free(levels) if levels[i].tier == tier]
            if len(at) >= FAN and not any(level.merges and level.tier == tier + 1 for level in levels):
                levels.insert(at[FAN - 1] + 1, Level(tier + 1, (), FAN))
        return Levels(tuple(levels))

    def _stepped(self, at: int, step: int, write: Callable[[Rows], Part]) -> tuple["Levels", int]:
        """Merge the next range of keys into the level at a place; return also how many rows that took."""
        into = self.levels[at]
        first = at - into.merges
        cut = Cut(self.levels[first:at], None, None)
        taken = cut.take(step)
        rows = in_order(
            combined(pa.chunked_array([r.keys for r in taken])), combined(pa.chunked_array([r.values for r in taken]))
        )
        if first == 0 and rows.values.null_count:
            # Nothing older is hidden by these deletions.
            live = rows.values.is_valid()
            rows = Rows(rows.keys.filter(live), rows.values.filter(live))
        if len(rows):
            into = replace(into, parts=(*into.parts, write(rows)))
        left = cut.left()
        old: tuple[Level, ...] = tuple(
            replace(level, parts=parts) for level, parts in zip(self.levels[first:at], left, strict=True)
        )
        if not any(left):
            old, into = (), replace(into, merges=0)
        kept = () if not old and not into.parts else (into,)
        return Levels((*self.levels[:first], *old, *kept, *self.levels[at + 1 :])), sum(map(len, taken))


def _free(levels: Sequence[Level]) -> list[int]:
    """Return the places of the levels that take no part in a merge."""
    busy = {place for i, level in enumerate(levels) if level.merges for place in range(i - level.merges, i + 1)}
    return [i for i in range(len(levels)) if i not in busy]


def _parted(level: Level, keys: pa.Array, left: Ints) -> Iterator[tuple[Part, Ints]]:
    """Yield a level's parts, each with the given ascending indices of ascending keys that it can have."""
    for part in level.parts:
        asked = left
        if len(level.parts) > 1:
            first = bisect_left(range(len(keys)), part.first, key=lambda i: keys[i].as_py())
            end = bisect_right(range(len(keys)), part.last, lo=first, key=lambda i: keys[i].as_py())
            # `left` ascends: take the indices of keys within the part's range.
            asked = left[slice(*np.searchsorted(left, [first, end]))]
        if len(asked):
            yield part, asked


class Cut:
    """Levels that are read side by side, range by range of keys."""

    def __init__(self, levels: Sequence[Level], low: bytes | None, high: bytes | None) -> None:
        self._spans: list[list[tuple[Part, int, int]]] = []
        for level in levels:
            spans = []
            for part in level.parts:
                start, stop = part.start, part.run.rows
                if low is not None:
                    start = part.run.place(low, start)
                if high is not None and start < stop:
                    stop = part.run.place(high + b"\0", start)
                if start < stop:
                    spans.append((part, start, stop))
            self._spans.append(spans)
        self._share = STEP_BYTES // max(len(levels), 1)

    def __bool__(self) -> bool:
        return any(self._spans)

    def take(self, step: int) -> list[Rows]:
        """Return the rows of the next range of keys, at most `step` of each level and `STEP_BYTES` of all; older levels first.

        There is at least a row, whatever its size. Of the last key only the newest row is included.
        """
        cuts = [
            part.run.key(reach - 1)
            for spans in self._spans
            for part, start, stop in spans[:1]
            for reach, is_large in [part.run.reach(start, min(start + max(step, 1), stop), self._share)]
            if reach < stop or len(spans) > 1 or is_large
        ]
        last = min(cuts, default=None)  # without a cut all that is left is taken
        taken: list[Rows] = []
        is_hidden = False
        for spans in reversed(self._spans):
            if spans:
                part, start, stop = spans[0]
                end = stop if last is None else min(part.run.place(last + b"\0", start), stop)
                ends_there = start < end and last is not None and part.run.key(end - 1) == last
                # Values may be large, and a key's newest value counts.
                taken.append(part.run.between(start, end - (ends_there and is_hidden)))
                is_hidden |= ends_there
                spans[:1] = [(part, end, stop)] if end < stop else []
        return taken[::-1]

    def take_last(self, step: int) -> list[Rows]:
        """Return the rows of the last range of keys, as `take` returns the first range."""
        cuts = [
            part.run.key(reach)
            for spans in self._spans
            for part, start, stop in spans[-1:]
            for reach, is_large in [part.run.reach_back(max(stop - max(step, 1), start), stop, self._share)]
            if reach > start or len(spans) > 1 or is_large
        ]
        first = max(cuts, default=None)
        taken: list[Rows] = []
        is_hidden = False
        for spans in reversed(self._spans):
            if spans:
                part, start, stop = spans[-1]
                begin = start if first is None else min(part.run.place(first, start), stop)
                begins_there = begin < stop and first is not None and part.run.key(begin) == first
                taken.append(part.run.between(begin + (begins_there and is_hidden), stop))
                is_hidden |= begins_there
                spans[-1:] = [(part, start, begin)] if start < begin else []
        return taken[::-1]

    def left(self) -> list[tuple[Part, ...]]:
        """Return by level the parts that are left."""
        return [tuple(replace(part, start=start) for part, start, _ in spans) for spans in self._spans]


def pieces(
    levels: Sequence[Level], low: bytes | None, high: bytes | None, step: int, *, backward: bool = False
) -> Iterator[Rows]:
    """Yield the rows of some levels, deleted keys too, from low to high, both inclusive, range by range, each in the order of keys.

    The first range has at most `step` rows of each level; later ones get larger.
    """
    cut = Cut(levels, low, high)
    while cut:
        taken = cut.take_last(step) if backward else cut.take(step)
        step = min(2 * step, _PIECE)
        yield in_order(
            combined(pa.chunked_array([r.keys for r in taken], pa.binary())),
            combined(pa.chunked_array([r.values for r in taken], pa.binary())),
        )
