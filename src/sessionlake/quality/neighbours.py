"""Checks across rows of one key, by a few numbers for each row. Spark's window would sort whole rows by text, at several scans' cost.

Keys are compared by 64-bit hashes. Two keys with the same hash may look like sessions that are too near; they never
hide such sessions. Among 10 million keys that happens with a probability of 3 in a million. A sender who looks for equal
hashes on purpose can make this check red, and never green.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import whole

_ROWS_A_TASK = 1_000_000
Columns = dict[str, Ints]
Count = Callable[[Columns], tuple[int, int]]


def crowded(tables: Tables, versions: DataFrame, rows: int, until: Column | None) -> tuple[int, int]:
    """Count rows that begin while the key's previous row is open, if rows stay open, and rows that the snapshot has twice.

    `until` is the time up to which a row is open, in microseconds; a row with null is never near. `versions` are the
    rows of `views.row_versions`, and the newest version of each row counts.
    """
    # A bool, and not the column: the function is sent to workers, and a column can't be pickled.
    looks = until is not None

    def count(columns: Columns) -> tuple[int, int]:
        places = [columns[name] for name in reversed(identity)]
        order = np.lexsort((-columns["batch"], *places))
        key, start, open_until, kind = (columns[name][order] for name in ("key", "start", "until", "kind"))
        newest = np.append(True, ~_same([columns[name][order] for name in identity]))
        # A row's versions are adjacent, the newest first: count the snapshot's.
        in_snapshot = np.add.reduceat(kind == _SNAPSHOT, np.flatnonzero(newest), dtype=np.int64)
        current = newest & (kind != _DELETE)
        key, start, open_until = key[current], start[current], open_until[current]
        near = ((key[1:] == key[:-1]) & (start[1:] <= open_until[:-1])).sum() if looks else 0
        return int(near), int((in_snapshot > 1).sum())

    kind = F.when(F.col("op") == "snapshot", _SNAPSHOT).when(F.col("op") == "delete", _DELETE).otherwise(_UPSERT)
    places = _places(tables.changelog)
    identity = ("key", *places)
    numbers = {
        **places,
        "start": whole(tables.changelog, tables.changelog.start),
        "until": F.lit(0) if until is None else until,
        "batch": F.col("batch_id"),
        "kind": kind,
    }
    return _counted(tables, versions, rows, numbers, count)


def repeated(tables: Tables, changes: DataFrame, rows: int) -> int:
    """Count changes beyond the first of a row and batch, without emitted events."""

    def count(columns: Columns) -> tuple[int, int]:
        order = np.lexsort(tuple(columns.values()))
        return int(_same([column[order] for column in columns.values()]).sum()), 0

    numbers = {**_places(tables.changelog), "batch": F.col("batch_id")}
    return _counted(tables, changes.where("op != 'emit'"), rows, numbers, count)[0]


_SNAPSHOT, _UPSERT, _DELETE = 0, 1, 2


def _places(of: Changelog) -> dict[str, F.Column]:
    """Return the columns that identify a key's row, as numbers."""
    if of.one_per_key:
        return {}
    if of.numbers:
        return {name: F.col(name) for name in of.numbers}
    return {"start": whole(of, of.start)}


def _same(columns: list[Ints]) -> Bools:
    """Say which rows, from the second on, are as the row before."""
    return np.logical_and.reduce([column[1:] == column[:-1] for column in columns])


def _counted(
    tables: Tables, frame: DataFrame, rows: int, numbers: dict[str, F.Column], count: Count
) -> tuple[int, int]:
    """Bring the rows of each key together as numbers, and add up the counts of `count`."""
    columns = {"key": F.xxhash64(tables.changelog.key), **numbers}
    # A row without a time is another check's business.
    narrow = frame.select(*(column.cast("bigint").alias(name) for name, column in columns.items())).na.drop()

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(list(batches) or [pa.RecordBatch.from_pylist([], schema=schema)])
        counts = count({name: table[name].to_numpy() for name in schema.names}) if table.num_rows else (0, 0)
        yield pa.RecordBatch.from_pydict({"first": [counts[0]], "second": [counts[1]]})

    schema = pa.schema([(name, pa.int64()) for name in columns])
    tasks = max(tables.spark.sparkContext.defaultParallelism, -(-rows // _ROWS_A_TASK))
    parts = map_in_arrow(narrow.repartition(tasks, "key"), run, "first bigint, second bigint")
    first, second = parts.agg(F.sum("first"), F.sum("second")).collect()[0]
    return first, second
