"""The functions that can take rows back by name, and what builds each."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate
from sessionlake.aggregates.functions import FUNCTIONS, Asked
from sessionlake.aggregates.signed.doubles import DoubleAverage, DoubleSum
from sessionlake.aggregates.signed.integers import IntegerAverage, IntegerSum
from sessionlake.errors import ConfigError

Build = Callable[[Asked], Aggregate]


def _sum(a: Asked) -> Aggregate:
    of = DoubleSum if pa.types.is_floating(a.types[0]) else IntegerSum
    return of(a.name, a.function, a.columns[0], a.types[0])


def _avg(a: Asked) -> Aggregate:
    of = DoubleAverage if pa.types.is_floating(a.types[0]) else IntegerAverage
    return of(a.name, a.function, a.columns[0], a.types[0])


SIGNED: Mapping[str, Build] = {
    "count": FUNCTIONS["count"].build,
    "count_if": FUNCTIONS["count_if"].build,
    "sum": _sum,
    "avg": _avg,
}


def build_signed(asked: Asked) -> Aggregate:
    """Return the form of an aggregate that can take rows back; ConfigError if its function has none."""
    build = SIGNED.get(asked.function)
    if build is None:
        raise refused(asked.name, f"{asked.function}(...)")
    return build(asked)


def refused(name: str, told: str) -> ConfigError:
    """Return the error for an aggregate that can't take rows back; `told` says which function or class it is."""
    return ConfigError(
        f"aggregates.{name}: {told} can't take rows back, which source.rows = 'changes' asks for; "
        f"write rows = 'final', or one of {', '.join(SIGNED)}"
    )
