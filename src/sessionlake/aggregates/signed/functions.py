"""The functions that can take rows back by name, and what builds each."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate
from sessionlake.aggregates.functions import FUNCTIONS, MEDIAN, Asked
from sessionlake.aggregates.signed.lists import (
    Multiset,
    SignedCollect,
    SignedDistinct,
    SignedEdge,
    SignedExtreme,
    SignedHistogram,
    SignedPercentile,
    SignedQuantile,
    SignedSet,
    SignedTexts,
)
from sessionlake.aggregates.signed.moments import SignedComoments, SignedMoments
from sessionlake.aggregates.signed.sums import DoubleAverage, DoubleSum, IntegerAverage, IntegerSum, SignedLogical
from sessionlake.errors import ConfigError

Build = Callable[[Asked], Aggregate]


def _sum(a: Asked) -> Aggregate:
    of = DoubleSum if pa.types.is_floating(a.types[0]) else IntegerSum
    return of(a.name, a.function, a.columns[0], a.types[0])


def _avg(a: Asked) -> Aggregate:
    of = DoubleAverage if pa.types.is_floating(a.types[0]) else IntegerAverage
    return of(a.name, a.function, a.columns[0], a.types[0])


def _extreme(*, largest: bool) -> Build:
    return lambda a: SignedExtreme(a.name, a.columns[0], a.types[0], largest=largest)


def _edge(*, latest: bool) -> Build:
    return lambda a: SignedEdge(a.name, a.columns[0], a.types[0], latest=latest)


def _quantile(a: Asked) -> Aggregate:
    return SignedQuantile(a.name, a.function, a.columns[0], a.types[0], a.number if a.literals else MEDIAN)


def _distinct(a: Asked) -> Aggregate:
    return SignedDistinct(a.name, a.columns[0], a.types[0])


def _logical(a: Asked) -> Aggregate:
    return SignedLogical(a.name, a.function, a.columns[0], a.types[0])


def _moments(a: Asked) -> Aggregate:
    return SignedMoments(a.name, a.function, a.columns[0], a.types[0])


def _of_two(a: Asked) -> Aggregate:
    return SignedComoments(a.name, a.function, a.columns, a.types)


def _joined(a: Asked) -> Aggregate:
    separator, limit = a.literals
    return SignedTexts(a.name, a.columns[0], a.types[0], str(separator), int(limit))


SIGNED: Mapping[str, Build] = {
    "count": FUNCTIONS["count"].build,
    "count_if": FUNCTIONS["count_if"].build,
    "sum": _sum,
    "min": _extreme(largest=False),
    "max": _extreme(largest=True),
    "avg": _avg,
    "first": _edge(latest=False),
    "last": _edge(latest=True),
    "any_value": _edge(latest=False),
    "mode": lambda a: Multiset(a.name, a.columns[0], a.types[0]),
    "bool_and": _logical,
    "bool_or": _logical,
    "variance": _moments,
    "var_pop": _moments,
    "stddev": _moments,
    "stddev_pop": _moments,
    "corr": _of_two,
    "covar_samp": _of_two,
    "covar_pop": _of_two,
    "regr_slope": _of_two,
    "regr_intercept": _of_two,
    "count_distinct": _distinct,
    "approx_count_distinct": _distinct,
    "percentile": lambda a: SignedPercentile(a.name, a.columns[0], a.types[0], a.number),
    "quantile": _quantile,
    "median": _quantile,
    "histogram": lambda a: SignedHistogram(a.name, a.columns[0], a.types[0]),
    "collect": lambda a: SignedCollect(a.name, a.columns[0], a.types[0], int(a.number)),
    "collect_set": lambda a: SignedSet(a.name, a.columns[0], a.types[0], int(a.number)),
    "string_agg": _joined,
}


def build_signed(asked: Asked) -> Aggregate:
    """Return the form of an aggregate that can take rows back; ConfigError if its function lacks one."""
    build = SIGNED.get(asked.function)
    if build is None:
        raise refused(asked.name, f"{asked.function}(...)")
    return build(asked)


def refused(name: str, told: str, *instead: str) -> ConfigError:
    """Return the error for an aggregate that can't take rows back.

    `told` says which function or class it is, and `instead` which other than functions would do.
    """
    choices = ", ".join(["rows = 'final' of results", *instead])
    return ConfigError(
        f"aggregates.{name}: {told} can't take rows back, and those of the source change; "
        f"write {choices}, or one of {', '.join(SIGNED)}"
    )
