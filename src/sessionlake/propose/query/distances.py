"""Ranges of times in a join's condition, as bounds of the distance between two times."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError

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
    # Now left <= right, or left < right: of whole microseconds the latter is one less.
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
