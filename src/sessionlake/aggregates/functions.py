"""The functions of aggregates by name: how many columns and which literals each takes, and what builds it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate
from sessionlake.aggregates.full import Quantile
from sessionlake.aggregates.logic import Bits, CountIf, Logical
from sessionlake.aggregates.numeric import (
    Average,
    Count,
    DecimalSum,
    ExactAverage,
    Extreme,
    PositionEdge,
    Product,
    Sum,
    WholeSum,
    number_type,
)
from sessionlake.aggregates.ordered import Collect, Edge, ValueBy
from sessionlake.aggregates.scalars import DOUBLE
from sessionlake.aggregates.sets import CollectSet, Mode, StringAgg
from sessionlake.aggregates.sketches import (
    APPROX_DISTINCT,
    EXACT_DISTINCT,
    CountDistinct,
    Histogram,
    HyperLogLog,
    Percentile,
)
from sessionlake.aggregates.spread import Comoments, Moments

Literal = float | str
MEDIAN = 0.5


@dataclass(frozen=True)
class Asked:
    """A function call, with its columns' types."""

    name: str
    """The aggregate's name."""
    function: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    literals: tuple[Literal, ...]
    with_id: bool
    """Whether events have an id, which breaks ties."""

    @property
    def number(self) -> float:
        """The first literal, which is a number."""
        return float(self.literals[0])


@dataclass(frozen=True)
class Number:
    """A literal after the columns: a number within bounds, which are inclusive."""

    low: float
    high: float
    example: str
    role: str = "number"
    """The word for it in errors."""
    default: float | None = None
    whole: bool = True
    optional: bool = False
    """Whether it may be left out, and there is none then."""

    @property
    def is_required(self) -> bool:
        """Whether a call must have it."""
        return self.default is None and not self.optional

    def read(self, text: str | None) -> float | None:
        """Return the number, None for a text that is none within the bounds."""
        try:
            number = float(text) if text is not None else self.default
        except ValueError:
            return None
        wrong = number is None or not self.low <= number <= self.high or (self.whole and number != int(number))
        return None if wrong else number

    def wanted(self) -> str:
        """Return what must be written, for an error."""
        return f"a number from {self.low} to {self.high}"


@dataclass(frozen=True)
class Text:
    """A literal after the columns: a text in quotes."""

    example: str
    role: str = "text"
    is_required: bool = True

    def read(self, text: str | None) -> str | None:
        """Return the text without its quotes, None if it has none; a backslash stands before a quote and itself."""
        if text is None or len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
            return None
        inside = iter(text[1:-1])
        return "".join(_escaped(next(inside, "")) if c == "\\" else c for c in inside)

    def wanted(self) -> str:
        """Return what must be written, for an error."""
        return "a text in quotes"


def _escaped(character: str) -> str:
    return {"n": "\n", "t": "\t"}.get(character, character)


@dataclass(frozen=True)
class Function:
    """How a function is called, and what it is then."""

    build: Callable[[Asked], Aggregate]
    literals: tuple[Number | Text, ...] = ()
    columns: int = 1
    least: int | None = None
    """The fewest columns, if not all of them."""
    filtered: bool = True
    """Whether it takes FILTER."""

    def example(self, name: str, given: Sequence[str] = ()) -> str:
        """Return a call, for errors; it begins with the arguments that are given."""
        whole = [*("column", "other")[: self.columns], *(literal.example for literal in self.literals)]
        return f"{name}({', '.join([*given, *whole[len(given) :]])})"


def _extreme(*, largest: bool) -> Callable[[Asked], Aggregate]:
    return lambda a: Extreme(a.name, a.columns[0], a.types[0], largest=largest)


def _edge(*, latest: bool) -> Callable[[Asked], Aggregate]:
    return lambda a: Edge(a.name, a.columns[0], a.types[0], latest=latest, with_id=a.with_id)


def _position(*, latest: bool) -> Function:
    return Function(lambda a: PositionEdge(a.name, latest=latest), columns=0, filtered=False)


def _sum(a: Asked) -> Aggregate:
    name, column, type_ = a.name, a.columns[0], a.types[0]
    if pa.types.is_decimal(type_):
        return DecimalSum(name, column, type_)
    return (Sum if number_type(name, "sum", column, type_) == DOUBLE else WholeSum)(name, column)


def _avg(a: Asked) -> Aggregate:
    type_ = a.types[0]
    is_double = number_type(a.name, "avg", a.columns[0], type_) == DOUBLE
    return (Average if is_double else ExactAverage)(a.name, a.columns[0], type_)


def _quantile(a: Asked) -> Aggregate:
    fraction = a.number if a.literals else MEDIAN
    return Quantile(a.name, a.function, a.columns[0], a.types[0], fraction)


def _distinct(a: Asked) -> Aggregate:
    bound = int(a.number) if a.literals else APPROX_DISTINCT
    return CountDistinct(a.name, a.columns[0], a.types[0], bound)


def _collect(a: Asked) -> Aggregate:
    return Collect(a.name, a.columns[0], a.types[0], int(a.number))


def _approximate(a: Asked) -> Aggregate:
    # With one argument it stays the sketch of its first release: stored states have this form.
    return HyperLogLog(a.name, a.columns[0], a.types[0], a.number) if a.literals else _distinct(a)


def _logical(*, largest: bool) -> Function:
    return Function(lambda a: Logical(a.name, a.function, a.columns[0], a.types[0], largest=largest))


def _by(*, largest: bool) -> Function:
    return Function(lambda a: ValueBy(a.name, a.columns, a.types, largest=largest, with_id=a.with_id), columns=2)


def _joined(a: Asked) -> Aggregate:
    separator, limit = a.literals
    return StringAgg(a.name, a.columns[0], a.types[0], str(separator), int(limit))


_BITS = Function(lambda a: Bits(a.name, a.function, a.columns[0], a.types[0]))
_MOMENTS = Function(lambda a: Moments(a.name, a.function, a.columns[0], a.types[0]))
_OF_TWO = Function(lambda a: Comoments(a.name, a.function, a.columns, a.types), columns=2)
_FRACTION = (Number(0.0, 1.0, "0.99", "fraction", whole=False),)
_LIMIT = Number(1, 1_000_000, "100", "limit")
_ERROR = Number(0.0021, 0.26, "0.02", whole=False, optional=True)

FUNCTIONS: Mapping[str, Function] = {
    "count": Function(lambda a: Count(a.name, *(a.columns or (None,))), least=0),
    "count_if": Function(lambda a: CountIf(a.name, a.columns[0], a.types[0])),
    "sum": Function(_sum),
    "min": Function(_extreme(largest=False)),
    "max": Function(_extreme(largest=True)),
    "avg": Function(_avg),
    "product": Function(lambda a: Product(a.name, a.columns[0], a.types[0])),
    "first": Function(_edge(latest=False)),
    "last": Function(_edge(latest=True)),
    "any_value": Function(_edge(latest=False)),
    "min_by": _by(largest=False),
    "max_by": _by(largest=True),
    "mode": Function(lambda a: Mode(a.name, a.columns[0], a.types[0])),
    "bool_and": _logical(largest=False),
    "bool_or": _logical(largest=True),
    "bit_and": _BITS,
    "bit_or": _BITS,
    "bit_xor": _BITS,
    "variance": _MOMENTS,
    "var_pop": _MOMENTS,
    "stddev": _MOMENTS,
    "stddev_pop": _MOMENTS,
    "skewness": _MOMENTS,
    "kurtosis": _MOMENTS,
    "corr": _OF_TWO,
    "covar_samp": _OF_TWO,
    "covar_pop": _OF_TWO,
    "regr_slope": _OF_TWO,
    "regr_intercept": _OF_TWO,
    "count_distinct": Function(_distinct, (Number(1, 1_000_000, "4096", default=EXACT_DISTINCT),)),
    "approx_count_distinct": Function(_approximate, (_ERROR,)),
    "percentile": Function(lambda a: Percentile(a.name, a.columns[0], a.types[0], a.number), _FRACTION),
    "quantile": Function(_quantile, _FRACTION),
    "median": Function(_quantile),
    "histogram": Function(lambda a: Histogram(a.name, a.columns[0], a.types[0])),
    "collect": Function(_collect, (_LIMIT,)),
    "collect_set": Function(lambda a: CollectSet(a.name, a.columns[0], a.types[0], int(a.number)), (_LIMIT,)),
    "string_agg": Function(_joined, (Text("' > '", "separator"), _LIMIT)),
    "first_position": _position(latest=False),
    "last_position": _position(latest=True),
}
ALIASES: Mapping[str, str] = {
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "arg_min": "min_by",
    "arg_max": "max_by",
    "var_samp": "variance",
    "stddev_samp": "stddev",
    "array_agg": "collect",
    "collect_list": "collect",
    "listagg": "string_agg",
}
"""Other names of functions."""
