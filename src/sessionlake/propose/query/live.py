"""The SELECT over the live view that gives a query's columns under the query's names, in DuckDB's SQL, as `sessionlake sql` takes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa

from sessionlake.propose.query.fields import quoted_name
from sessionlake.sources.columns import TIMESTAMP

_SQL_TYPES = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    TIMESTAMP: "timestamptz",
}
_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1000),
    ("microsecond", 1),
)


@dataclass(frozen=True)
class Shown:
    """A column of the SELECT."""

    sql: str
    name: str

    @property
    def text(self) -> str:
        """The column as SQL has it."""
        own = identifier(self.name)
        return own if own == self.sql else f"{self.sql} as {own}"


@cache
def _reserved() -> frozenset[str]:
    """Return the words that DuckDB reads as a name in quotes alone."""
    query = "select keyword_name from duckdb_keywords() where keyword_category = 'reserved'"
    return frozenset(name for (name,) in duckdb.execute(query).fetchall())


def identifier(name: str) -> str:
    """Return a name as DuckDB has it: in quotes if it is no plain word."""
    plain = quoted_name(name) == name and name.lower() not in _reserved()
    return name if plain else '"' + name.replace('"', '""') + '"'


def select_over(view: str, columns: Sequence[Shown], conditions: Sequence[str] = ()) -> list[str]:
    """Return the lines of the SELECT."""
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return [f"select {', '.join(column.text for column in columns)}", f"from {view}{where}"]


def key_sql(column: str, kind: pa.DataType) -> str:
    """Return a key column, which the view has as text, in the events' type."""
    type_ = _SQL_TYPES.get(kind)
    return column if type_ is None else f"cast({column} as {type_})"


def interval(micros: int) -> str:
    """Return a single-unit interval, as both Spark and DuckDB read it."""
    unit, size = next((name, size) for name, size in _UNITS if micros % size == 0)
    amount = micros // size
    return f"interval {amount} {unit}{'' if amount == 1 else 's'}"


def struct_of(start: str, end: str) -> str:
    """Return Spark's struct of a window."""
    return f"{{'start': {start}, 'end': {end}}}"
