"""SQL expressions of a config, computed over Arrow columns in tasks: DuckDB runs what `columnar/spark_sql` made of Spark's SQL.

The driver translates an expression once, and the tasks get it as text. DuckDB is imported where one is computed, and not
before: a pipeline without expressions has no need of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from sessionlake.columnar.arrays import combined, plain_text

if TYPE_CHECKING:
    import duckdb

Result = Literal["boolean", "timestamp", "interval", "bigint", "double", "string", "date"]
"""What an expression may be: an interval is its microseconds, as int64."""
TIME = pa.timestamp("us", "UTC")
_ARROW: Mapping[Result, pa.DataType] = {
    "boolean": pa.bool_(),
    "timestamp": TIME,
    "interval": pa.int64(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
}
KEY, EVENT_TIME = "key", "event_time"
"""What expressions over an event see beside the source's columns: the key as text, and the time in UTC. A column of the source
that is called so is hidden by them."""
CLOCK = "clock_us"
"""The parameter that stands for now()."""
_LOCK = Lock()


@dataclass(frozen=True)
class Expression:
    """A translated expression."""

    text: str
    """As the config has it."""
    sql: str
    """DuckDB's, over a table `rows` whose columns are called c0, c1, ... in the order of `columns`."""
    columns: tuple[str, ...]
    """The columns that it reads."""
    result: Result
    uses_clock: bool = False

    def evaluate(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int, clock_us: int = 0) -> pa.Array:
        """Return its value for each of so many rows: null where SQL says so, and where Spark would fail at the row.

        `columns` has at least those that it reads, times in UTC; `clock_us` is what now() means, microseconds since 1970.
        Intervals come as int64 microseconds, times as microseconds in UTC.
        """
        type_ = _ARROW[self.result]
        if not rows:
            return pa.array([], type_)
        arrays = [_plain(combined(columns[name])) for name in self.columns] or [pa.nulls(rows, pa.bool_())]
        table = pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
        with _LOCK:
            connection = _connection()
            connection.register("rows", table)
            try:
                query = f"select {self.sql} as value from rows"  # noqa: S608 (it is made of a tree that was checked)
                found = connection.sql(query, params={CLOCK: clock_us} if self.uses_clock else None).to_arrow_table()
            finally:
                connection.unregister("rows")
        return _of_type(combined(found["value"]), type_)


@cache
def _connection() -> "duckdb.DuckDBPyConnection":
    """Return the process's one database, which has no tables: to make another takes 20 ms."""
    import duckdb  # noqa: PLC0415 (see the module)

    # A task has one core, and one thread returns rows in their order.
    return duckdb.connect(config={"threads": 1, "enable_external_access": False})


def _plain(array: pa.Array) -> pa.Array:
    """Return a column as DuckDB computes on it best: times without their zone, which is UTC, and no dictionaries."""
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    return plain_text(array)


def _of_type(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values.cast(pa.timestamp("us")).cast(pa.int64()).cast(type_) if type_ == TIME else values.cast(type_)
