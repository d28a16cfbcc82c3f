"""The functions that can take rows back by name, and what builds each."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate
from sessionlake.aggregates.functions import FUNCTIONS, Asked
from sessionlake.aggregates.signed.integers import IntegerAverage, IntegerSum
from sessionlake.errors import ConfigError

SIGNED: Mapping[str, Callable[[Asked], Aggregate]] = {
    "count": FUNCTIONS["count"].build,
    "count_if": FUNCTIONS["count_if"].build,
    "sum": lambda a: IntegerSum(a.name, a.function, a.columns[0], a.types[0]),
    "avg": lambda a: IntegerAverage(a.name, a.function, a.columns[0], a.types[0]),
}


def build_signed(asked: Asked) -> Aggregate:
    """Return the form of an aggregate that can take rows back; ConfigError if its function has none."""
    build = SIGNED.get(asked.function)
    if build is None or (asked.function in ("sum", "avg") and pa.types.is_floating(asked.types[0])):
        raise refused(asked.name, f"{asked.function}(...)")
    return build(asked)


def refused(name: str, told: str) -> ConfigError:
    """Return the error for an aggregate that can't take rows back; `told` says which function or class it is."""
    return ConfigError(
        f"aggregates.{name}: {told} can't take rows back, which source.rows = 'changes' asks for; "
        f"write rows = 'final', or one of {', '.join(SIGNED)}"
    )
