"""The text form of aggregates: "sum(added)", "percentile(ms, 0.99)", "package.module:Class"."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate
from sessionlake.aggregates.custom import Custom, load_user
from sessionlake.aggregates.folded import KIP_94, Folded, Reduced
from sessionlake.aggregates.full import Evaluated, Quantile
from sessionlake.aggregates.numeric import Average, Count, DecimalSum, Extreme, Sum
from sessionlake.aggregates.ordered import Collect, Edge
from sessionlake.aggregates.positions import OFFSET, PARTITION, PositionEdge
from sessionlake.aggregates.sketches import APPROX_DISTINCT, EXACT_DISTINCT, CountDistinct, Percentile
from sessionlake.errors import ConfigError

_CALL = re.compile(r"\s*([a-z_]+)\s*\(\s*([^,()]*?)\s*(?:,\s*([^,()]+?)\s*)?\)\s*")
_CLASS = re.compile(r"[\w.]+:\w+")
_ONE_COLUMN = ("sum", "min", "max", "avg", "first", "last", "approx_count_distinct", "median")
_MEDIAN = 0.5
_TIMED = ("first", "last", "collect")
"""Functions that order by time, and break ties by the event's id."""
_FRACTION = ("percentile", "quantile")
"""Functions whose argument need not be a whole number."""
_OF_POSITIONS = ("first_position", "last_position")
_NO_COLUMN = ("count", *_OF_POSITIONS)
FUNCTIONS = ("count", *_OF_POSITIONS, *_ONE_COLUMN, "count_distinct", "percentile", "quantile", "collect")


@dataclass(frozen=True)
class AggregateSpec:
    """A parsed aggregate: a function of a column, with at most one argument more, or a class."""

    name: str
    function: str
    column: str | None = None
    argument: float | None = None
    path: str | None = None

    @classmethod
    def parse(cls, name: str, text: str) -> "AggregateSpec":
        """Parse the text; ConfigError names the aggregate and what may be written."""
        if _CLASS.fullmatch(text.strip()):
            return cls(name, "class", path=text.strip())
        call = _CALL.fullmatch(text)
        if call is None or call[1] not in FUNCTIONS:
            raise ConfigError(
                f"aggregates.{name}: {text!r} is unknown; write one of {', '.join(FUNCTIONS)} as in 'sum(column)', or 'package.module:Class'"
            )
        function, column, argument = call[1], call[2] or None, call[3]
        if column is None and function not in _NO_COLUMN:
            raise ConfigError(f"aggregates.{name}: {text!r} names no column; write '{function}(column)'")
        if column is not None and function in _OF_POSITIONS:
            raise ConfigError(f"aggregates.{name}: {text!r} takes no column; write '{function}()'")
        return cls(name, function, column, _argument(name, function, argument))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns the aggregate reads, as far as the text tells."""
        if self.of_positions:
            return (PARTITION, OFFSET)
        return (self.column,) if self.column else ()

    @property
    def of_positions(self) -> bool:
        """Whether it is of the events' positions in their topic."""
        return self.function in _OF_POSITIONS


def _argument(name: str, function: str, text: str | None) -> float | None:
    """Return a function's argument after the column, None where it has none; ConfigError for one out of its bounds."""
    needs = {"percentile": (0.0, 1.0, "0.99"), "quantile": (0.0, 1.0, "0.99"), "collect": (1, 1_000_000, "100")}
    may = {"count_distinct": (1, 1_000_000, "4096"), **needs}
    if text is None and function not in needs:
        return None
    if function not in may:
        raise ConfigError(f"aggregates.{name}: {function} takes one column only; remove {text!r}")
    low, high, example = may[function]
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        number = -1.0
    if not low <= number <= high or (function not in _FRACTION and number != int(number)):
        raise ConfigError(
            f"aggregates.{name}: {text!r} must be a number from {low} to {high}; write '{function}(column, {example})'"
        )
    return number


def build_aggregates(
    specs: Mapping[str, str], types: Mapping[str, pa.DataType], *, with_id: bool = False, directory: str | None = None
) -> tuple[Aggregate, ...]:
    """Return the aggregates of a config, in its order.

    `types` gives the Arrow type of every column; `with_id` says that events carry an id (ties of first, last, collect);
    a user's class is looked for in `directory` too, last.
    """
    return tuple(
        _build(AggregateSpec.parse(name, text), types, with_id=with_id, directory=directory)
        for name, text in specs.items()
    )


def _build(spec: AggregateSpec, types: Mapping[str, pa.DataType], *, with_id: bool, directory: str | None) -> Aggregate:
    if spec.path is not None:
        return build_custom(spec.name, spec.path, directory)
    if spec.of_positions:
        return PositionEdge(spec.name, latest=spec.function == "last_position")
    if spec.column is None:
        return Count(spec.name, None)
    if spec.column not in types:
        raise ConfigError(
            f"aggregates.{spec.name}: no column {spec.column!r} in the events; pick one of {', '.join(sorted(types))}"
        )
    if spec.function in _TIMED:
        return _build_timed(spec, spec.column, types[spec.column], with_id=with_id)
    return _build_untimed(spec, spec.column, types[spec.column])


def build_custom(name: str, path: str, directory: str | None = None) -> Custom:
    """Return the aggregate of a user's class: by KIP-94's three methods, by `evaluate` or by `reducer`; ConfigError for none."""
    user = load_user(name, path, directory)
    missing = [part for part in KIP_94 if not callable(getattr(user, part, None))]
    if not missing:
        return Folded(name, path, directory, user)
    if callable(getattr(user, "evaluate", None)):
        return Evaluated(name, path, directory, user)
    if callable(getattr(user, "reducer", None)):
        return Reduced(name, path, directory, user)
    raise ConfigError(
        f"aggregates.{name}: {path!r} lacks {', '.join(missing)}; add these methods, or in their place reducer(left, right) or evaluate(key, rows)"
    )


def _build_timed(spec: AggregateSpec, column: str, type_: pa.DataType, *, with_id: bool) -> Aggregate:
    if spec.function == "collect":
        return Collect(spec.name, column, type_, int(spec.argument or 0))
    return Edge(spec.name, column, type_, latest=spec.function == "last", with_id=with_id)


def _build_untimed(spec: AggregateSpec, column: str, type_: pa.DataType) -> Aggregate:
    name = spec.name
    make: dict[str, Callable[[], Aggregate]] = {
        "count": lambda: Count(name, column),
        "sum": lambda: (DecimalSum if pa.types.is_decimal(type_) else Sum)(name, column, type_),
        "min": lambda: Extreme(name, column, type_, largest=False),
        "max": lambda: Extreme(name, column, type_, largest=True),
        "avg": lambda: Average(name, column, type_),
        "count_distinct": lambda: CountDistinct(name, column, type_, int(spec.argument or EXACT_DISTINCT)),
        "approx_count_distinct": lambda: CountDistinct(name, column, type_, APPROX_DISTINCT),
        "percentile": lambda: Percentile(name, column, type_, spec.argument or 0.0),
        "median": lambda: Quantile(name, "median", column, type_, _MEDIAN),
        "quantile": lambda: Quantile(name, "quantile", column, type_, spec.argument or 0.0),
    }
    return make[spec.function]()
