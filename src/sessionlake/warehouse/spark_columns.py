"""Columns and times as Spark takes them: the only place where a user's column name becomes a Spark column."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.column_names import parts_of
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.dialects import SPARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Batches = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
UNNAMABLE = "column {!r} has a character that Delta's writer refuses: a space, a tab, a line break or one of ,;{{}}()=; choose another name for it"
_UNNAMABLE = frozenset(" ,;{}()\n\t=")


def column(name: str) -> "Column":
    """Return the column of a name, in which dots and backquotes mean nothing."""
    return F.col(SPARK.named(name))


def source_column(name: str) -> "Column":
    """Return a source's column or field (rule 460)."""
    return F.col(".".join(map(SPARK.named, parts_of(name))))


def columns(names: Iterable[str]) -> "list[Column]":
    """Return the columns of some names, in their order."""
    return [column(name) for name in names]


def unnamable(names: Iterable[str]) -> str | None:
    """Return the first name with a character for which Delta on Spark refuses each change of a table's columns and properties.

    It takes rows of such a table, which deltalake made, all the same.

    >>> unnamable(["a.b", "e f"])
    'e f'
    """
    return next((name for name in names if _UNNAMABLE & {*name}), None)


def map_in_arrow(rows: "DataFrame", run: Batches, schema: "StructType | str") -> "DataFrame":
    """Return `rows.mapInArrow(run, schema)`, for columns of any names."""
    if not any(mark in name for name in rows.columns for mark in ".`"):
        return rows.mapInArrow(run, schema)

    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return run(pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)

    # PySpark looks the columns up by their names as they are, in which a dot means a field.
    return rows.select(F.struct(*columns(rows.columns)).alias("row")).mapInArrow(unpacked, schema)


_AS_ARROW: Mapping[str, str] = {
    # By default it is INT96, which most readers without Spark take as nanoseconds: 9999-12-31 is then in 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Otherwise days before 1582-10-15 may be in the Julian calendar.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def write_times_plainly(spark: "SparkSession") -> None:
    """Let a session write times and dates as Arrow does, whatever its settings were, from now on.

    The settings stay, because another thread may write in the same session.
    """
    for name, value in _AS_ARROW.items():
        spark.conf.set(name, value)
