"""Pages of rows from the stores: no more is decoded than a page has (docs/rules.md, rules 197 and 199)."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sessionlake.serve.cursors import Position
from sessionlake.serve.questions import Question
from sessionlake.serve.replica import KeyRange, View
from sessionlake.serve.result_rows import Packed, ResultRow, Span

LARGE = 16_384
"""Bytes of a key's stored values up to which all of them are decoded: some hundred sessions, in less time than a page of them takes."""
ALL_OF_KEY = (1 << 63) - 1
"""In a position: after all rows of the key."""
_FIRST, _MOST = 16, 256
"""Named keys that are read at a time, at first and at most: each may be a large one."""


class LargeKeyError(Exception):
    """A key that is to be looked up at once has more than `LARGE` bytes."""


@dataclass(frozen=True)
class StorePage:
    """The first rows that are asked for."""

    found: list[ResultRow]
    rest: Position | None
    """The position at which reading ended, if that is after the last row."""
    left: bool
    """Whether there may be more."""


class PageReader:
    """Reads one page of a view. For a range it looks at no more than `most` stored values, and at that many sessions of large keys."""

    def __init__(self, view: View, asked: Question, most: int, *, keyed: bool) -> None:
        self._view, self._asked, self._most, self._keyed = view, asked, most, keyed
        self._sessions_left = most
        self._last_key = ""
        """The last key that was looked at."""

    def read(self, *, at_once: bool = False) -> StorePage:
        """Return the page; NotLocalError if a shard is not here, LargeKeyError for a named key that can't be read `at_once`."""
        found: list[ResultRow] = []
        for packed, ended in self._chunks(at_once=at_once):
            for part, is_large in _runs(packed):
                rows, rest = self._of_large(part, len(found)) if is_large else (self._of_small(part), None)
                found += rows
                if part.keys:
                    self._last_key = part.keys[-1].decode()
                if len(found) > self._asked.limit:
                    return StorePage(found[: self._asked.limit], None, left=True)
                if rest is not None:
                    return StorePage(found, rest, left=True)
            if ended is not None:
                return StorePage(found, ended, left=True)
        return StorePage(found, None, left=False)

    def _chunks(self, *, at_once: bool) -> Iterator[tuple[Packed, Position | None]]:
        """Yield the stored values of the question's keys. The last one has the position at which reading ended before the end of the range."""
        if self._asked.named is not None:
            yield from ((packed, None) for packed in self._named(self._asked.named, at_once=at_once))
            return
        asked, low, after, looked = self._asked, self._asked.low, None, 0
        if asked.after is not None:
            key, *rest = asked.after
            if self._keyed or rest == [ALL_OF_KEY]:
                after = str(key)
            else:
                # That key again: not all of its rows may have been sent.
                low = max(low or "", str(key), key=str.encode)
        while True:
            keys = KeyRange(low, asked.high, after, asked.prefix)
            packed, after = self._view.packed_range(
                keys, asked.limit + 1, most=self._most - looked, rows=asked.limit + 1
            )
            looked += len(packed.values)
            ended = after is not None and looked >= self._most
            yield packed, (after, ALL_OF_KEY) if ended and after is not None else None
            if after is None or ended:
                return

    def _named(self, keys: tuple[str, ...], *, at_once: bool) -> Iterator[Packed]:
        self._view.require_local(keys)
        first = b"" if self._asked.after is None else str(self._asked.after[0]).encode()
        names = sorted({key for key in keys if key.encode() >= first}, key=str.encode)
        size = _FIRST
        while names:
            packed = self._view.packed(names[:size])
            names = names[size:]
            if _bytes_of(packed) <= LARGE:
                size = min(2 * size, _MOST)
            elif at_once:
                raise LargeKeyError
            yield packed

    def _of_small(self, packed: Packed) -> list[ResultRow]:
        """Return the rows within the times that are asked for, and after the position."""
        asked = self._asked
        found = self._view.row_decoder.result_rows(packed, asked.include)
        if asked.from_us is not None:
            found = [of for of in found if of.end_us >= asked.from_us]
        if asked.to_us is not None:
            found = [of for of in found if of.start_us <= asked.to_us]
        if asked.after is not None:
            key, *rest = asked.after
            if self._keyed or not rest:
                found = [of for of in found if of.key != key]
            else:
                sent: Callable[[Any, Any], bool] = operator.ge if asked.descending else operator.le
                found = [of for of in found if of.key != key or not sent(of.start_us, rest[0])]
        return found[::-1] if asked.descending else found

    def _of_large(self, packed: Packed, before: int) -> tuple[list[ResultRow], Position | None]:
        """Return the same rows of one key, and the position at which reading ended before the last one; `before` rows are on the page already."""
        asked, key = self._asked, packed.keys[0].decode()
        after_us = None
        if asked.after is not None and asked.after[0] == key:
            if self._keyed or len(asked.after) == 1:
                return [], None
            after_us = int(asked.after[1])
        if self._sessions_left == 0:
            return [], (self._last_key, ALL_OF_KEY)
        span = Span(
            asked.limit + 1 - before, self._sessions_left, asked.from_us, asked.to_us, after_us, asked.descending
        )
        found, looked, last_us = self._view.row_decoder.page(packed, asked.include, span)
        self._sessions_left -= looked
        return found, None if last_us is None else (key, last_us)


def _runs(packed: Packed) -> Iterator[tuple[Packed, bool]]:
    """Yield the values of keys in their order, large keys one by one, and say which these are."""
    if _bytes_of(packed) <= LARGE:
        yield packed, False
        return
    values: dict[int, list[bytes]] = {}
    for owner, value in zip(packed.owner, packed.values, strict=True):
        values.setdefault(owner, []).append(value)
    small: list[int] = []
    for owner in sorted(values):
        if sum(map(len, values[owner])) <= LARGE:
            small.append(owner)
            continue
        if small:
            yield _some(packed, values, small), False
            small = []
        yield _some(packed, values, [owner]), True
    if small:
        yield _some(packed, values, small), False


def _some(packed: Packed, values: dict[int, list[bytes]], owners: list[int]) -> Packed:
    pairs = [(at, value) for at, owner in enumerate(owners) for value in values[owner]]
    return Packed([packed.keys[owner] for owner in owners], [at for at, _ in pairs], [value for _, value in pairs])


def _bytes_of(packed: Packed) -> int:
    return sum(map(len, packed.values))
