"""Translated parts of an expression, and the walk over its tree that makes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from sessionlake.columnar.expressions import CLOCK
from sessionlake.columnar.sql_places import SqlError

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
"""The types of parts, as DuckDB calls them; `months` (of intervals) and `null` are two more, which it needs no name for."""


@dataclass(frozen=True)
class Typed:
    """A part in DuckDB's words, and its type in Spark's.

    An `interval`, of days and less, is its microseconds in a bigint. `months`, of months and years, is DuckDB's interval.
    """

    sql: str
    type: str


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
        """Return parts of a node that stand for one another as parts of one type, and that."""

    def error(self, node: exp.Expression, told: str) -> SqlError:
        """Return an error that names the node, and its place."""


Rule = Callable[[Walk, exp.Expression], Typed]


@dataclass(frozen=True)
class Function:
    """A function whose arguments are of fixed types, several joined by `|` if any of them will do."""

    sql: str
    gives: str
    takes: tuple[str, ...] = ()


def column_type(type_: pa.DataType) -> str | None:
    """Return the type of a column's values; None if expressions can't read them."""
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


def whole(node: exp.Expression) -> int | None:
    """Return the whole number that a node is, which has no sign; None for another node. The parser's `is_int` is also true of `-1`."""
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None


def quoted(text: str) -> str:
    """Return a text as a literal of DuckDB's."""
    return "'" + text.replace("'", "''") + "'"
