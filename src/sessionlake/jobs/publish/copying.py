"""Rows to a table of PostgreSQL: the columns in its types, and the tasks that copy rows to it side by side."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from io import BytesIO
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.spark_columns import column, map_in_arrow
from sessionlake.warehouse.visible import CHANGED_IN

_TYPES: dict[type[T.DataType], str] = {
    T.StringType: "text",
    T.LongType: "bigint",
    T.IntegerType: "integer",
    T.DoubleType: "double precision",
    T.FloatType: "real",
    T.BooleanType: "boolean",
    T.DateType: "date",
    T.TimestampType: "timestamptz",
    T.BinaryType: "bytea",
}
_MOST_KEY_BYTES = 2000
"""An entry of an index may have 2,704 bytes."""
_ZERO = r"(?<!\\)(\\\\)*\\u0000"
"""A zero byte in JSON. After an even number of backslashes `u0000` are five letters of a text."""
_REFUSED = "_refused"
_COUNTED = "copied bigint, refused bigint"


@dataclass(frozen=True)
class Columns:
    """The columns of a table."""

    fields: Sequence[T.StructField]
    identity: Sequence[str]
    """Those that name a row."""

    @property
    def names(self) -> list[str]:
        """The columns, quoted."""
        return [quoted(field.name) for field in self.fields]

    @property
    def key(self) -> list[str]:
        """The columns that name a row, quoted."""
        return [quoted(name) for name in self.identity]

    @property
    def declared(self) -> list[str]:
        """The columns with their types."""
        return [f"{quoted(field.name)} {_type(field.dataType)}" for field in self.fields]

    def copied(self, rows: DataFrame, url: str, table: str) -> tuple[int, int]:
        """Copy signed rows to a table that has these columns, then SIGN and CHANGED_IN; return how many were copied, and how many PostgreSQL can't store.

        A task that is tried again copies its rows again.
        """
        texts = [column(f.name) for f in self.fields if isinstance(f.dataType, T.StringType)]
        jsons = [_as_text(field) for field in self.fields if _is_nested(field.dataType)]
        zero = [F.contains(text, F.lit("\0")) for text in texts] + [F.rlike(j, F.lit(_ZERO)) for j in jsons]
        long = [F.octet_length(F.col(n).cast("string")) > _MOST_KEY_BYTES for n in self.identity]
        refused = F.coalesce(reduce(or_, (F.coalesce(one, F.lit(False)) for one in [*zero, *long])), F.lit(False))
        given = rows.select(*map(_as_text, self.fields), SIGN, CHANGED_IN, refused.alias(_REFUSED))
        target = f"copy {table} ({', '.join([*self.names, SIGN, CHANGED_IN])}) from stdin (format csv)"

        def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from copy_batches(batches, url, target)

        counted = map_in_arrow(given, copy, _COUNTED).agg(F.sum("copied"), F.sum("refused")).head()
        return (0, 0) if counted is None else (counted[0] or 0, counted[1] or 0)


def copy_batches(batches: Iterable[pa.RecordBatch], url: str, target: str) -> Iterator[pa.RecordBatch]:
    """Copy a task's rows, in one transaction, and yield how many."""
    import psycopg  # noqa: PLC0415 (an extra)

    copied = refused = 0
    with psycopg.connect(url) as connection, connection.cursor() as cursor, cursor.copy(target) as copying:
        for batch in batches:
            kept = batch.filter(pc.invert(batch[_REFUSED])).drop_columns([_REFUSED])
            copied, refused = copied + kept.num_rows, refused + batch.num_rows - kept.num_rows
            content = BytesIO()
            csv.write_csv(pa.Table.from_batches([kept]), content, csv.WriteOptions(include_header=False))
            copying.write(content.getvalue())
    yield pa.RecordBatch.from_pydict({"copied": [copied], "refused": [refused]})


def quoted(name: str) -> str:
    """Return a name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _type(kind: T.DataType) -> str:
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision}, {kind.scale})"
    return "jsonb" if _is_nested(kind) else _TYPES[type(kind)]


def _is_nested(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType | T.StructType | T.MapType)


def _as_text(field: T.StructField) -> Column:
    """Return a column as it is copied: lists as JSON, bytes in hexadecimal digits, all else as it is."""
    value: Column = column(field.name)
    if _is_nested(field.dataType):
        value = F.to_json(value)
    elif isinstance(field.dataType, T.BinaryType):
        value = F.concat(F.lit("\\x"), F.hex(value))
    return value.alias(field.name)
