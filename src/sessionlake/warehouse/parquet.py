"""The one place that opens Parquet files, with any library: a test forbids others.

Spark by default, Hive and Impala write a time as INT96: a day, and nanoseconds of it. Libraries give nanoseconds in 64 bits, which wrap around
silently outside of 1677 to 2262, unless they are asked for microseconds. `valid_to` is often 9999-12-31.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from arro3.core import RecordBatchReader
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset

_UNIT = "us"
_DATAFUSION = {
    "datafusion.execution.parquet.coerce_int96": _UNIT,
    # Names of columns as they are: otherwise Name means name.
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_NAME, _FEW_ROWS = "delta_table", "16"


def parquet_file(source: str | bytes, **options: Any) -> pq.ParquetFile:
    """Open a local path or content, with the options of pyarrow.parquet.ParquetFile."""
    opened = source if isinstance(source, str) else pa.BufferReader(source)
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit=_UNIT, **options)


def delta_rows(
    table: "DeltaTable", columns: Sequence[str] | None = None, condition: str | None = None, most: int | None = None
) -> "RecordBatchReader":
    """Return rows of a table at its version, read as they are asked for; deletion vectors are heeded.

    `columns` are one name at least; None means all. `condition` is SQL of DataFusion, which leaves out files and row groups by
    their statistics. Times in it are written by `moment_sql`. `most` is the greatest number of rows,
    whichever they are; then they come in small parts.
    """
    # Workers open Parquet files, too, and need no deltalake.
    from deltalake import QueryBuilder

    selected = "*" if columns is None else ", ".join(_quoted(name) for name in columns)
    where = "" if condition is None else f" where {condition}"
    limit = "" if most is None else f" limit {most}"
    query = f"select {selected} from {_NAME}{where}{limit}"  # noqa: S608 (quoted names)
    settings = _DATAFUSION if most is None else {**_DATAFUSION, "datafusion.execution.batch_size": _FEW_ROWS}
    return QueryBuilder(settings).register(_NAME, table).execute(query)


def delta_files(table: "DeltaTable") -> "Dataset":
    """Return a table's files as a dataset of Arrow; DeltaProtocolError if its rows are not simply those of its files."""
    from pyarrow.dataset import ParquetReadOptions

    return table.to_pyarrow_dataset(parquet_read_options=ParquetReadOptions(coerce_int96_timestamp_unit=_UNIT))


def moment_sql(time_us: int) -> str:
    r"""Return a time, microseconds since the epoch, as SQL of DataFusion.

    >>> moment_sql(0)
    'arrow_cast(0, \'Timestamp(Microsecond, Some("UTC"))\')'
    """
    # A text such as TIMESTAMPTZ '9999-12-31' would be nanoseconds, and an error.
    return f"arrow_cast({time_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
