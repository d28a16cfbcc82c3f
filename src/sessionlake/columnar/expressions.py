"""SQL expressions of a config, computed over Arrow columns in tasks: DuckDB runs the translation by `columnar/spark_sql`.

The driver translates an expression once, and the tasks get it as text. DuckDB is imported if one is computed, and not
before: a pipeline without expressions has no need of it.
"""

import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.columnar.arrays import combined, plain_text
from sessionlake.columnar.column_types import TIME, arrow_of, sql_type_of, type_named
from sessionlake.columnar.lenient_json import FUNCTION, lenient_json
from sessionlake.columnar.lenient_times import DATE_FUNCTION, TIME_FUNCTION, lenient_dates, lenient_times
from sessionlake.columnar.letter_cases import (
    INITCAP_FUNCTION,
    LOWER_FUNCTION,
    REVERSE_FUNCTION,
    UPPER_FUNCTION,
    initial_case,
    lower_case,
    reversed_texts,
    upper_case,
)
from sessionlake.columnar.plain_numbers import PLAIN_FUNCTION, plain_numbers
from sessionlake.columnar.zones import FROM_UTC_FUNCTION, TO_UTC_FUNCTION, from_utc, to_utc

if TYPE_CHECKING:
    import duckdb

KEY, EVENT_TIME = "key", "event_time"
"""Columns that expressions over an event have besides those of the source: the key as text, and the time in UTC. They hide
the source's columns of the same names."""
OWN_KEY, OWN_TIME = "\0key", "\0event_time"
"""The names under which a computation over events is given the two: no column of a source has them."""
CLOCK = "clock_us"
"""The parameter that stands for now()."""
LENIENT: Mapping[str, tuple[Callable[..., pa.Array], tuple[str, ...], str]] = {
    FUNCTION: (lenient_json, ("varchar", "varchar"), "varchar"),
    TIME_FUNCTION: (lenient_times, ("varchar",), "bigint"),
    DATE_FUNCTION: (lenient_dates, ("varchar",), "integer"),
    LOWER_FUNCTION: (lower_case, ("varchar",), "varchar"),
    UPPER_FUNCTION: (upper_case, ("varchar",), "varchar"),
    INITCAP_FUNCTION: (initial_case, ("varchar",), "varchar"),
    REVERSE_FUNCTION: (reversed_texts, ("varchar",), "varchar"),
    PLAIN_FUNCTION: (plain_numbers, ("varchar",), "varchar"),
    FROM_UTC_FUNCTION: (from_utc, ("bigint", "varchar"), "bigint"),
    TO_UTC_FUNCTION: (to_utc, ("bigint", "varchar"), "bigint"),
}
"""Functions that the process's database has besides DuckDB's, where DuckDB has none that does as Spark: the types of their arguments
and results. SQL for another database must not call them."""
_LOCK = Lock()


def result_type(result: str) -> pa.DataType:
    """Return the Arrow type of an expression's values.

    >>> result_type("interval"), result_type("array<string>")
    (DataType(int64), ListType(list<item: string>))
    """
    return pa.int64() if result == "interval" else type_named(result)


@dataclass(frozen=True)
class Expression:
    """A translated expression."""

    text: str
    """As the config has it."""
    sql: str
    """DuckDB's, over a table `rows` whose columns are called c0, c1, ... in the order of `columns`."""
    columns: tuple[str, ...]
    """The columns that it reads."""
    result: str
    """The type of its values, in Spark's words; an interval is microseconds, as int64."""
    uses_clock: bool = False

    def evaluate(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int, clock_us: int = 0) -> pa.Array:
        """Return the expression's value for each row: null if SQL's rules give null, or if Spark would fail at the row.

        `columns` has at least the columns that the expression reads, times in UTC. `clock_us` is the value of now(), in
        microseconds since 1970. Intervals are returned as int64 microseconds, times as microseconds in UTC.
        """
        type_ = result_type(self.result)
        if not rows:
            return pa.array([], type_)
        query = f"select {self.sql} as value from rows"  # noqa: S608 (it is made of a tree that was checked)
        table = _registered(self.columns, columns, rows)
        answer = _answer(query, table, {CLOCK: clock_us} if self.uses_clock else None)
        return _of_type(combined(answer["value"]), type_)


@dataclass(frozen=True)
class Step:
    """A column of a `Computation`."""

    sql: str
    """DuckDB's SQL, over the computation's columns c0, c1, ... and the earlier steps' columns k0, k1, ... ."""
    result: str
    level: int
    """0 if it reads no other step, else one more than the greatest step it reads."""


@dataclass(frozen=True)
class Computation:
    """Several expressions as one query. Later expressions read earlier ones."""

    columns: tuple[str, ...]
    """The columns that it reads."""
    steps: tuple[Step, ...]
    outputs: Mapping[str, int]
    """The names of its result columns, with their steps."""
    unknown: tuple[str, ...] = ()
    """The null columns of `columns`, whose types are not known yet."""

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the result columns."""
        return {name: result_type(self.steps[step].result) for name, step in self.outputs.items()}

    def evaluate(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> dict[str, pa.Array]:
        """Return its columns, each as `Expression.evaluate` returns one; `columns` has at least the columns it reads."""
        if not rows or not self.outputs:
            return {name: pa.array([], type_) for name, type_ in self.types.items()}
        given = {**columns, **dict.fromkeys(self.unknown, pa.nulls(rows))}
        answer = _answer(self._query, _registered(self.columns, given, rows), None)
        return {name: _of_type(combined(answer[f"k{step}"]), self.types[name]) for name, step in self.outputs.items()}

    @cached_property
    def _query(self) -> str:
        source = "rows"
        for level in range(1 + max(step.level for step in self.steps)):
            new = ", ".join(f"{step.sql} as k{i}" for i, step in enumerate(self.steps) if step.level == level)
            source = f"(select *, {new} from {source})"  # noqa: S608 (it is made of trees that were checked)
        chosen = ", ".join(f"k{step}" for step in dict.fromkeys(self.outputs.values()))
        return f"select {chosen} from {source}"  # noqa: S608


def computed(sql: str, column: pa.Array) -> pa.Array:
    """Return the values of SQL over one column, which is called c0 there."""
    query = f"select {sql} as value from rows"  # noqa: S608 (as above)
    return combined(_answer(query, _registered(["c0"], {"c0": column}, len(column)), None)["value"])


def _registered(names: Sequence[str], columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.Table:
    """Return the named columns as c0, c1, ...; a table needs at least one."""
    arrays = [_plain(combined(columns[name])) for name in names] or [pa.nulls(rows, pa.bool_())]
    return pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


def _answer(query: str, table: pa.Table, parameters: Mapping[str, int] | None) -> pa.Table:
    """Return the result of a query over `rows`."""
    with _LOCK:
        connection = _connection()
        connection.register("rows", table)
        try:
            return connection.sql(query, params=parameters).to_arrow_table()
        finally:
            connection.unregister("rows")


@cache
def _connection() -> "duckdb.DuckDBPyConnection":
    """Return the process's one database, which has no tables: to make another takes 20 ms."""
    import duckdb  # noqa: PLC0415 (see the module)

    # A task has a single core, and a single thread returns rows in their order.
    connection = duckdb.connect(config={"threads": 1})
    # Without a directory to spill to: expressions could write to it, and other accounts could read it.
    connection.execute("set temp_directory = ''; set enable_external_access = false")
    for name, (function, takes, gives) in LENIENT.items():
        types, type_ = [duckdb.sqltype(type_) for type_ in takes], duckdb.sqltype(gives)
        connection.create_function(name, function, types, type_, type="arrow", null_handling="special")  # type: ignore[call-overload]
    # DuckDB complains at a process's end about a remaining connection.
    atexit.register(_connection.cache_clear)
    atexit.register(connection.close)
    return connection


def _plain(array: pa.Array) -> pa.Array:
    """Return a column as DuckDB computes on it best: times without their zone, which is UTC, and no dictionaries."""
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    if pa.types.is_nested(array.type):
        known = sql_type_of(array.type)
        return array if known is None else array.cast(_pairs(arrow_of(known)))
    return plain_text(array)


def _pairs(type_: pa.DataType) -> pa.DataType:
    """Return a type as DuckDB is given it: a map as a list with its pairs, and times without their zone."""
    if pa.types.is_map(type_):
        return pa.list_(pa.struct([("key", pa.string()), ("value", _pairs(type_.item_type))]))
    if pa.types.is_list(type_):
        return pa.list_(_pairs(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _pairs(field.type)) for field in type_])
    return pa.timestamp("us") if pa.types.is_timestamp(type_) else type_


def _mapped(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array with the maps of a type, which are lists with their pairs so far. Arrow has no such cast."""
    if pa.types.is_map(type_):
        pairs = values.values
        items = _mapped(pairs.field(1), type_.item_type)
        entries = pa.StructArray.from_arrays([pairs.field(0), items], fields=[type_.key_field, type_.item_field])
        return pa.Array.from_buffers(type_, len(values), values.buffers()[:2], -1, values.offset, [entries])
    if pa.types.is_list(type_):
        inner = _mapped(values.values, type_.value_type)
        return pa.Array.from_buffers(type_, len(values), values.buffers()[:2], -1, values.offset, [inner])
    if pa.types.is_struct(type_):
        fields = [_mapped(values.field(i), field.type) for i, field in enumerate(type_)]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=values.is_null())
    return values.cast(type_)


def _of_type(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_nested(type_):
        return _mapped(values.cast(_pairs(type_)), type_)
    return values.cast(pa.timestamp("us")).cast(pa.int64()).cast(type_) if type_ == TIME else values.cast(type_)
