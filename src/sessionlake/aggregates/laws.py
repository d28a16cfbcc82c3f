"""Whether users' classes keep the laws by which parts may be merged: tried on sample rows, with a counterexample if they don't.

A pipeline merges the aggregates of single events in any order and grouping, so `merger` and `reducer` must be associative and
commutative. Values are compared as users see them (`result`). Doubles may differ by rounding.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.folded import Folded, Merging
from sessionlake.errors import first_line
from sessionlake.user_code import NOT_THEIRS

_MOST = 6
"""Rows of one trial: enough for both sides of a merge to be merged results."""
_TRIALS = 300
_SECONDS = 0.2
_TOLERANCE = 1e-9
_SHOWN = 60
"""Characters of an aggregate in a line."""


class _Raised(str):
    """The error of a user's class, in place of a result."""

    __slots__ = ()


def broken_law(aggregate: Merging, rows: pa.Table, *, key: str | None = None, seconds: float = _SECONDS) -> str | None:
    """Return a counterexample to the first law that a class breaks, and the remedy; None if none is found within so many seconds of the CPU.

    `rows` have the columns that the class reads. Rows of one `key` are tried together, those of all keys if it is None or no key
    has two. A row at which the class raises is left out, for it would be a dead letter.
    """
    until = time.process_time() + seconds
    draw = random.Random(7)  # noqa: S311 (the same trials each time)
    for law in (_order, _grown, _inverse):
        for name, some in _by_key(rows, key):
            trial = _Trial(aggregate, name, until, draw)
            counterexample = law(trial, trial.lifted(some))
            if counterexample is not None:
                return counterexample
    return None


def _by_key(rows: pa.Table, key: str | None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each key's rows for keys with two or more; without such a key, all rows as a single key's."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    every = rows.to_pylist()
    for row in every if key is not None else ():
        by_key.setdefault(str(row[key]), []).append(row)
    several = {name: some for name, some in by_key.items() if len(some) > 1}
    yield from several.items() if several else [("key", every)]


@dataclass(frozen=True)
class _Part:
    """The aggregate of some rows, as it is stored, and how it was made."""

    stored: bytes
    text: str


@dataclass(frozen=True)
class _Trial:
    """A class, called as a pipeline calls it: each aggregate is read from its stored form, so no call can change another's."""

    aggregate: Merging
    key: str
    until: float
    draw: random.Random

    def lifted(self, rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], _Part]]:
        """Return rows, each with its aggregate; without the rows for which the class raises or takes nothing."""
        found = []
        for row in rows[:1000]:
            read = {name: row[name] for name in self.aggregate.inputs} if self.aggregate.inputs else row
            stored = self.tried(self._lifted_alone, read)
            if isinstance(stored, bytes):
                found.append((read, self.part(stored)))
        return found

    def _lifted_alone(self, row: dict[str, Any]) -> bytes | None:
        return self.aggregate._lifted([self.key], [row])[0]  # noqa: SLF001 (its own part of a lift)

    def load(self, stored: bytes) -> Any:
        return self.aggregate._load(stored)  # noqa: SLF001

    def part(self, stored: bytes) -> _Part:
        return _Part(stored, _shown(self.load(stored)))

    def part_of(self, made: Callable[..., Any], *given: Any) -> "_Part | _Raised":
        """Return the aggregate from a call of the user's code, or the call's error."""
        stored = self.tried(lambda: self.aggregate._dump(made(*given)))  # noqa: SLF001
        return stored if isinstance(stored, _Raised) else self.part(stored)

    def merged(self, left: "_Part | _Raised", right: "_Part | _Raised") -> "_Part | _Raised":
        """Return the aggregate of two, or the class's error."""
        if isinstance(left, _Raised):
            return left
        if isinstance(right, _Raised):
            return right
        return self.part_of(self.aggregate._of_two, self.key, self.load(left.stored), self.load(right.stored))  # noqa: SLF001

    def value(self, part: "_Part | _Raised") -> Any:
        """Return the value that users see, or the class's error."""
        if isinstance(part, _Raised):
            return part
        result = getattr(self.aggregate.user, "result", lambda aggregate: aggregate)
        return self.tried(result, self.load(part.stored))

    def tried(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a call to the user's code, or the call's error."""
        try:
            return call(*given)
        except NOT_THEIRS:
            raise
        except BaseException as error:  # noqa: BLE001 (a user's code raises what it likes)
            return _Raised(f"{type(error).__name__}: {first_line(error)}")

    @property
    def is_over(self) -> bool:
        return time.process_time() > self.until


def _order(trial: _Trial, lifted: Sequence[tuple[dict[str, Any], _Part]]) -> str | None:
    """Try whether the merge of some aggregates depends on order or grouping, first of two, then of more."""
    parts = list(dict.fromkeys(part for _, part in lifted))
    for at in range(_TRIALS):
        if trial.is_over or not parts:
            return None
        count = 2 if at < _TRIALS // 3 else trial.draw.randint(2, _MOST)
        chosen = [trial.draw.choice(parts) for _ in range(count)]
        difference = _differs(trial, chosen, trial.draw.random())
        if difference is not None:
            return _fewest(trial, chosen) or difference
    return None


def _differs(trial: _Trial, parts: Sequence[_Part], seed: float) -> str | None:
    """Return how a merge in a random order and grouping differs from the one from left to right; None if it does not."""
    draw = random.Random(seed)  # noqa: S311
    merges = trial.aggregate.merges

    def merged(one: tuple[_Part | _Raised, str], two: tuple[_Part | _Raised, str]) -> tuple[_Part | _Raised, str]:
        return trial.merged(one[0], two[0]), f"{merges}({one[1]}, {two[1]})"

    left: list[tuple[_Part | _Raised, str]] = [(part, part.text) for part in parts]
    straight, told = reduce(merged, left)
    draw.shuffle(left)
    while len(left) > 1:
        one = left.pop(draw.randrange(len(left)))
        left.append(merged(one, left.pop(draw.randrange(len(left)))))
    ((other, other_told),) = left
    first, second = trial.value(straight), trial.value(other)
    if isinstance(first, _Raised):
        return f"{told} {_gives(first)}, which stops a batch; let {merges} take every aggregate that there can be"
    if _same(first, second):
        return None
    return f"{told} {_gives(first)}, and {other_told} {_gives(second)}; make {merges} associative and commutative"


def _fewest(trial: _Trial, parts: Sequence[_Part]) -> str | None:
    """Return the counterexample with the fewest aggregates that is found among some."""
    for count in range(2, len(parts) + 1):
        for at in range(40 * count):
            draw = random.Random(at)  # noqa: S311
            difference = _differs(trial, draw.sample(list(parts), count), draw.random())
            if difference is not None:
                return difference
    return None


def _grown(trial: _Trial, lifted: Sequence[tuple[dict[str, Any], _Part]]) -> str | None:
    """Try whether `aggregator` on a grown aggregate equals `merger` with the aggregate of the new event.

    A class whose `aggregator` ignores the aggregate returns that of one event, which is all that a pipeline asks for.
    """
    aggregate = trial.aggregate
    if not isinstance(aggregate, Folded) or len(lifted) < 2:
        return None
    difference: str | None = None
    notices = False
    for _ in range(_TRIALS // 3):
        if trial.is_over:
            break
        (_, grown), (row, part) = trial.draw.sample(list(lifted), 2)
        updated = trial.part_of(aggregate.user.aggregator, trial.key, row, trial.load(grown.stored))
        after, merged = trial.value(updated), trial.value(trial.merged(grown, part))
        notices |= not _same(after, trial.value(part))
        if difference is None and not _same(after, merged):
            difference = (
                f"aggregator({_shown(row)}, {grown.text}) {_gives(after)}, and merger({grown.text}, {part.text}) "
                f"{_gives(merged)}, where {part.text} is that of the event alone; a pipeline gives aggregator no "
                "grown aggregate, so let merger do the rest, or write evaluate"
            )
    return difference if notices else None


def _inverse(trial: _Trial, lifted: Sequence[tuple[dict[str, Any], _Part]]) -> str | None:
    """Try whether an aggregate and its inverse merge to the aggregate of no events, byte for byte."""
    aggregate = trial.aggregate
    inverse = getattr(aggregate.user, "inverse", None)
    if not isinstance(aggregate, Folded) or not callable(inverse):
        return None
    none = trial.part(aggregate._dump(aggregate.user.initializer()))  # noqa: SLF001
    for _, part in lifted[: _TRIALS // 3]:
        left = trial.merged(part, trial.part_of(inverse, trial.load(part.stored)))
        if trial.is_over:
            return None
        if left == none:
            continue
        result = _gives(left if isinstance(left, _Raised) else trial.load(left.stored))
        return f"merger({part.text}, inverse({part.text})) {result}, and initializer() gives {none.text}; make them equal, or remove inverse"
    return None


def _gives(value: Any) -> str:
    return f"raises {value}" if isinstance(value, _Raised) else f"gives {_shown(value)}"


def _same(one: Any, two: Any) -> bool:
    """Say whether two values are equal but for the rounding of doubles."""
    if isinstance(one, _Raised) or isinstance(two, _Raised):
        return False
    if isinstance(one, bool) or isinstance(two, bool):
        return bool(one == two)
    if isinstance(one, int | float) and isinstance(two, int | float):
        both_nan = one != one and two != two  # noqa: PLR0124
        return both_nan or one == two or math.isclose(one, two, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(_same, one, two))
    return bool(one == two)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
