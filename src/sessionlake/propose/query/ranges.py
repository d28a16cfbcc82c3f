"""The range of times of a join: bounds of the right message's time minus the left message's time, from the join's condition."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.live import interval
from sessionlake.propose.query.words import Query, QueryError, parsed, unmasked

_LESS, _MORE = (exp.LT, exp.LTE), (exp.GT, exp.GTE)


@dataclass(frozen=True)
class Distance:
    """A bound: later - earlier is at most some microseconds, which may be negative."""

    later: exp.Column
    earlier: exp.Column
    most_us: int


@dataclass(frozen=True)
class _Line:
    """A time and a constant: column + micros; or two times: column - minus + micros."""

    column: exp.Column | None
    minus: exp.Column | None
    micros: int


def distances_of(tree: exp.Expression) -> list[Distance]:
    """Return the bounds that a condition sets; none for a condition that is no range of two times.

    >>> from sessionlake.propose.query.words import parsed
    >>> [bound.most_us for bound in distances_of(parsed("b.t between a.t and a.t + interval 1 second"))]
    [0, 1000000]
    """
    tree = _unnested(tree)
    try:
        if isinstance(tree, exp.Between):
            value, low, high = tree.this, tree.args["low"], tree.args["high"]
            return [*_bounds(exp.GTE(this=value, expression=low)), *_bounds(exp.LTE(this=value, expression=high))]
        if isinstance(tree, exp.EQ):
            both = (kind(this=tree.this, expression=tree.expression) for kind in (exp.LTE, exp.GTE))
            return [bound for one in both for bound in _bounds(one)]
        return list(_bounds(tree))
    except _NoLineError:
        return []


class _NoLineError(Exception):
    """An expression is no time with a constant."""


def _bounds(tree: exp.Expression) -> Iterator[Distance]:
    if not isinstance(tree, (*_LESS, *_MORE)):
        raise _NoLineError
    left, right = _line(tree.this), _line(tree.expression)
    if isinstance(tree, _MORE):
        left, right = right, left
    # Now left <= right, or left < right: for whole microseconds the latter is 1 less.
    spare = right.micros - left.micros - isinstance(tree, (exp.LT, exp.GT))
    later = [column for column in (left.column, right.minus) if column is not None]
    earlier = [column for column in (right.column, left.minus) if column is not None]
    if len(later) != 1 or len(earlier) != 1:
        raise _NoLineError
    yield Distance(later[0], earlier[0], spare)


def _line(tree: exp.Expression) -> _Line:
    tree = _unnested(tree)
    if isinstance(tree, exp.Column):
        return _Line(tree, None, 0)
    if isinstance(tree, exp.Interval):
        return _Line(None, None, _micros(tree))
    if isinstance(tree, exp.Neg):
        inner = _line(tree.this)
        if inner.column is None:
            return _Line(None, None, -inner.micros)
    if isinstance(tree, (exp.Add, exp.Sub)):
        left, right = _line(tree.this), _line(tree.expression)
        sign = 1 if isinstance(tree, exp.Add) else -1
        if right.column is None and right.minus is None:
            return _Line(left.column, left.minus, left.micros + sign * right.micros)
        if sign == 1 and left.column is None and left.minus is None:
            return _Line(right.column, right.minus, left.micros + right.micros)
        if sign == -1 and left.column is not None and left.minus is None and right.minus is None:
            return _Line(left.column, right.column, left.micros - right.micros)
    raise _NoLineError


def _unnested(tree: exp.Expression) -> exp.Expression:
    """Return an expression without brackets around it."""
    return cast("exp.Expression", tree.unnest())


def _micros(tree: exp.Interval) -> int:
    amount, unit = tree.args.get("this"), tree.args.get("unit")
    if not isinstance(amount, exp.Literal):
        raise _NoLineError
    text = f"{amount.name} {unit.name if unit is not None else ''}".strip()
    negative = text.startswith("-")
    try:
        return (-1 if negative else 1) * parse_duration(re.sub(r"^[-+]\s*", "", text))
    except ConfigError:
        raise _NoLineError from None


FORM = "write a.id = b.id and b.t between a.t and a.t + interval 1 hour"
SideOf = Callable[[exp.Column, Tokens], int]
"""Returns the number of the side of some tokens' column: 0 is left."""


@dataclass
class Range:
    """The bounds of right time - left time, in microseconds; both are inclusive."""

    query: Query
    inputs: tuple[Input, Input]
    side_of: SideOf
    low: int | None = None
    high: int | None = None
    times: tuple[dict[str, Tokens], dict[str, Tokens]] = field(default_factory=lambda: ({}, {}))
    """The time columns of each side, in small letters, with the conditions that name them."""

    def add(self, tokens: Tokens) -> None:
        """Take a condition on both times; QueryError for another condition."""
        found = distances_of(parsed(self.query.said(tokens)))
        columns = [column for one in found for column in (one.later, one.earlier)]
        if not found or not all(self.is_time(column, tokens) for column in columns):
            reason = f"compares both sides by neither an equality nor a range of times; {FORM}, and other conditions in SQL over the live view"
            raise self.query.refusal("on", tokens, reason)
        for distance in found:
            self._add(distance, tokens)

    def is_time(self, column: exp.Column, tokens: Tokens) -> bool:
        """Say whether a condition's column holds times; QueryError if its side lacks the column."""
        read = self.inputs[self.side_of(column, tokens)]
        name = unmasked(column.name)
        read.fields.require(name, self.query.place(tokens[0]))
        return read.is_time(name.lower())

    def set_times(self, start: Tokens) -> None:
        """Give the inputs their times; QueryError, at `start`, if there is no range."""
        if not any(self.times):
            place = self.query.place(start[0])
            raise QueryError(
                "on",
                f"the join has no range of times, so that a message waits for ever; {FORM}, or a [table_join] by hand, whose rows are kept for as long as they are there",
                place,
            )
        for read, times in zip(self.inputs, self.times, strict=True):
            tokens = next(iter(times.values()))
            if len(times) > 1:
                raise self.query.refusal("on", tokens, f"gives one side several times, {', '.join(times)}; {FORM}")
            read.set_time(read.fields.named(next(iter(times)), self.query.place(tokens[0])))

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """The time that a left message waits for a later right one, and a right message for a left one; None for ever."""
        high = None if self.high is None else max(self.high, 0)
        return high, None if self.low is None else max(-self.low, 0)

    def beyond(self) -> Iterator[str]:
        """Yield the conditions on pairs beyond the sizes: a pair of equal times always counts."""
        if self.low is not None and self.low > 0:
            yield f"right_time >= left_time + {interval(self.low)}"
        if self.high is not None and self.high < 0:
            yield f"right_time <= left_time - {interval(-self.high)}"

    def _add(self, distance: Distance, tokens: Tokens) -> None:
        later, earlier = (self.side_of(column, tokens) for column in (distance.later, distance.earlier))
        if later == earlier:
            raise self.query.refusal("on", tokens, f"compares two times of one side; {FORM}")
        for side, column in ((later, distance.later), (earlier, distance.earlier)):
            self.times[side].setdefault(unmasked(column.name).lower(), tokens)
        if later == 1:
            self.high = distance.most_us if self.high is None else min(self.high, distance.most_us)
        else:
            self.low = -distance.most_us if self.low is None else max(self.low, -distance.most_us)
