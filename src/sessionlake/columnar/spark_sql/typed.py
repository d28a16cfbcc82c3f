"""The known nodes of the SQL parser, and the translated parts of an expression with the walk over its tree.

`EXPRESSIONS` lists each node that is read, with every known argument (docs/rules.md, rule 464). Minor versions of the parser give nodes
new arguments: `not like` became an argument of `Like` in 30.8. An unread argument would silently change the meaning of the SQL.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from sessionlake.columnar.column_types import sql_type_of
from sessionlake.columnar.expressions import CLOCK
from sessionlake.columnar.sql_places import SqlError
from sessionlake.sql_types import SqlType, parse_type

Known = Mapping[type[exp.Expression], tuple[str, ...]]
"""The read arguments by class, in the order of a function's operands."""

_DIALECT: Known = {
    **dict.fromkeys((exp.DPipe, exp.Div, exp.TsOrDsToDate, exp.TryCast), ("safe",)),
    **dict.fromkeys((exp.Greatest, exp.Least), ("ignore_nulls",)),
    exp.Coalesce: ("is_nvl", "is_null"),
    exp.Concat: ("safe", "coalesce"),
    exp.ConcatWs: ("safe", "coalesce", "flatten"),
    exp.RegexpExtract: ("null_if_pos_overflow",),
    exp.Bracket: ("safe",),
    exp.ArraySlice: ("is_length",),
}
"""Arguments that tell other dialects the behaviour of Spark's function: no text of Spark's SQL can change them."""
_BINARY = ("this", "expression")

EXPRESSIONS: Known = {
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _BINARY),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _BINARY),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.DPipe), _BINARY),
    **dict.fromkeys((exp.Is, exp.Nullif, exp.Escape, exp.RegexpLike, exp.JSONExtractScalar), _BINARY),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains, exp.DateDiff), _BINARY),
    **dict.fromkeys((exp.Not, exp.Neg, exp.Paren, exp.Abs, exp.Floor, exp.Ceil, exp.Sqrt, exp.Ln), ("this",)),
    **dict.fromkeys((exp.Exp, exp.Length, exp.IsNan, exp.TsOrDsToDate, exp.Year, exp.Quarter, exp.Month), ("this",)),
    **dict.fromkeys((exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Hour, exp.Minute), ("this",)),
    **dict.fromkeys((exp.Second, exp.UnixMicros, exp.UnixMillis, exp.UnixSeconds), ("this",)),
    **dict.fromkeys((exp.Null, exp.CurrentTimestamp, exp.CurrentDate, exp.JSONPathRoot), ()),
    **dict.fromkeys((exp.Boolean, exp.Var, exp.Column, exp.DataTypeParam, exp.JSONPathKey), ("this",)),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least, exp.Anonymous, exp.In), ("this", "expressions")),
    **dict.fromkeys((exp.Concat, exp.ConcatWs, exp.JSONPath, exp.Tuple), ("expressions",)),
    **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to")),
    exp.DataType: ("this", "expressions"),
    exp.Literal: ("this", "is_string"),
    exp.Identifier: ("this", "quoted"),
    **dict.fromkeys((exp.Like, exp.ILike), ("this", "expression", "negate")),
    **dict.fromkeys((exp.Any, exp.All), ("this",)),
    exp.Between: ("this", "low", "high"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Interval: ("this", "unit"),
    exp.Trim: ("this", "position", "expression"),
    exp.Substring: ("this", "start", "length"),
    exp.Replace: ("this", "expression", "replacement"),
    exp.StrPosition: ("this", "substr"),
    exp.SplitPart: ("this", "delimiter", "part_index"),
    exp.RegexpExtract: ("this", "expression", "group"),
    exp.TimestampTrunc: ("this", "unit"),
    exp.TsOrDsAdd: ("this", "expression", "unit"),
    exp.Bracket: ("this", "expressions", "offset"),
    **dict.fromkeys((exp.Dot, exp.ArrayContains, exp.ArrayPosition, exp.ArrayFilter, exp.Transform), _BINARY),
    **dict.fromkeys((exp.Exists, exp.PropertyEQ, exp.RegexpSplit), _BINARY),
    **dict.fromkeys((exp.ArraySize, exp.ArrayMin, exp.ArrayMax, exp.MapKeys), ("this",)),
    **dict.fromkeys((exp.Array, exp.Struct), ("expressions",)),
    exp.Lambda: ("this", "expressions"),
    exp.ArrayToString: ("this", "expression", "null"),
    exp.ArraySort: ("this", "asc", "nulls_first"),
    exp.ArraySlice: ("this", "start", "end"),
    exp.MapContainsKey: ("this", "key"),
}


def operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a function, in the order of the table."""
    given = [node.args.get(name) for name in EXPRESSIONS[type(node)]]
    parts = [part for one in given for part in (one if isinstance(one, list) else [one])]
    return [part for part in parts if isinstance(part, exp.Expression)]


def unread(node: exp.Expression, known: Known = EXPRESSIONS) -> str | None:
    """Return a node's first unread argument, as SQL or by name; None if all are known.

    The class of the node is in the table.

    >>> import sqlglot
    >>> unread(sqlglot.parse_one("a between symmetric 1 and 2", read="spark"))
    'symmetric'
    """
    return next(_unread(node, known), None)


def _unread(node: exp.Expression, known: Known) -> Iterator[str]:
    for name, value in node.args.items():
        if name not in known[type(node)] and name not in _DIALECT.get(type(node), ()):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, exp.Expression):
                    yield part.sql("spark")
                elif part:
                    yield name


_NAME = re.compile("[ck][0-9]+")
COMPUTED = ("boolean", "bigint", "double", "string", "date", "timestamp")
"""The plain types that computed columns have."""
CLOCK_SQL = f"make_timestamp(${CLOCK}::bigint)"
PAGE = "docs/expressions.md lists all of them"
DUCK = {
    "boolean": "boolean",
    "bigint": "bigint",
    "double": "double",
    "decimal": "decimal",
    "string": "varchar",
    "date": "date",
    "timestamp": "timestamp",
    "interval": "bigint",
}
"""The plain types of parts, as DuckDB calls them; `months` (of intervals) and `null` are two more, which it needs no name for.

A list, struct or map has Spark's text as its type (`composed_type`).
"""


@dataclass(frozen=True)
class Typed:
    """A part in DuckDB's words, and its type in Spark's.

    An `interval`, of days and less, is its microseconds in a bigint. `months`, of months and years, is DuckDB's interval.
    """

    sql: str
    type: str
    digits: tuple[int, int] = (0, 0)
    """Of a number the digits that it has in Spark, and of these the ones behind the point; zeros if that is not known."""


class Walk(Protocol):
    """One walk over a tree, as rules see it."""

    uses_clock: bool

    def of(self, node: exp.Expression) -> Typed:
        """Translate a part."""

    def boolean(self, node: exp.Expression) -> str:
        """Translate a part that must be true, false or null."""

    def text(self, node: exp.Expression) -> str:
        """Translate a part that must be text."""

    def seen(self, node: exp.Expression) -> exp.Expression:
        """Return a part that a rule reads itself, without translating it."""

    def column(self, node: exp.Expression) -> Typed:
        """Translate a column."""

    def unified(self, node: exp.Expression, parts: list[Typed]) -> tuple[list[str], str]:
        """Return interchangeable parts of a node cast to a common type, and this type."""

    def fresh(self) -> str:
        """Return a name for a variable of DuckDB's that nothing else has."""

    def naming(self, name: str, part: Typed) -> AbstractContextManager[None]:
        """Give a lambda's variable its meaning for as long as the body is translated."""

    def variable(self, node: exp.Expression) -> Typed:
        """Return the meaning of a lambda's variable."""

    def error(self, node: exp.Expression, told: str) -> SqlError:
        """Return an error with the node's name and place."""


Rule = Callable[[Walk, exp.Expression], Typed]


@dataclass(frozen=True)
class Function:
    """A function whose arguments are of fixed types, several joined by `|` if any of them will do."""

    sql: str
    gives: str
    takes: tuple[str, ...] = ()


def column_type(type_: pa.DataType) -> str | None:
    """Return the type of a column's values; None if expressions can't read them."""
    if pa.types.is_nested(type_):
        composed = sql_type_of(type_)
        return None if composed is None else str(composed)
    kinds: list[tuple[Callable[[pa.DataType], bool], str]] = [
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "bigint"),
        (pa.types.is_floating, "double"),
        (pa.types.is_decimal, "decimal"),
        (pa.types.is_string, "string"),
        (pa.types.is_date32, "date"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_null, "null"),
    ]
    return next((name for is_it, name in kinds if is_it(type_)), None)


def composed_type(type_: str) -> SqlType | None:
    """Return a part's type if it is a list, a struct or a map; None for any other."""
    return parse_type(type_) if "<" in type_ else None


def plain_type(type_: str) -> SqlType | None:
    """Return a part's type, plain or composed, as a column may have it; None if no column may, as for an interval."""
    return parse_type(type_) if "<" in type_ or type_ in COMPUTED else None


def part_type(type_: SqlType) -> str:
    """Return the type of a part that is taken from a list, a struct or a map."""
    return type_.name if type_.name == "decimal" else str(type_)


def duck_type(type_: str) -> str:
    """Return DuckDB's text for a part's type."""
    composed = composed_type(type_)
    return DUCK[type_] if composed is None else composed.duck


def whole(node: exp.Expression) -> int | None:
    """Return a node's whole number, which has no sign; None for another node. The parser's `is_int` is also true of `-1`."""
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None


def number(walk: Walk, node: exp.Expression) -> int | None:
    """Return a node's whole number, which may have a sign; None for another node."""
    if not isinstance(node, exp.Neg):
        return whole(walk.seen(node))
    least = whole(walk.seen(walk.seen(node).this))
    return None if least is None else -least


def once(template: str, sql: str, *others: str) -> str:
    """Return SQL of a template in which `{0}` stands for what is computed once, and `{1}` and so on for others.

    >>> once("case when {0} > 0 then {0} end", "c0")
    '(case when c0 > 0 then c0 end)'
    """
    if _NAME.fullmatch(sql):
        return f"({template.format(sql, *others)})"
    return f"list_transform([{sql}], lambda v: {template.format('v', *others)})[1]"


def quoted(text: str) -> str:
    """Return a text as a literal of DuckDB's."""
    return "'" + text.replace("'", "''") + "'"
