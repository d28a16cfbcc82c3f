"""Files in tasks, as pyarrow reads and writes them, on a disk or in an object store. The one place that opens Parquet: a test forbids others.

By default Spark, Hive and Impala write a time as INT96: a day, and its nanoseconds. Libraries return nanoseconds in 64 bits, which
silently wrap around outside of 1677 to 2262, unless asked for microseconds. `valid_to` is often 9999-12-31.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sessionlake.warehouse.delta_log import LogFiles

if TYPE_CHECKING:
    from arro3.core import RecordBatchReader
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset


_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it. Object stores take credentials as their SDKs do."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return fs.LocalFileSystem(), local_path(uri) or uri
    system, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    return system, path


def local_path(uri: str) -> str | None:
    """Return a path or URI as the path on this machine's disks; None if it lies elsewhere.

    >>> local_path("file:///lake"), local_path("/lake"), local_path("s3a://lake")
    ('/lake', '/lake', None)
    """
    if uri.startswith("file:"):
        return "/" + uri.removeprefix("file:").lstrip("/")
    return None if "://" in uri else uri


class ArrowFiles(LogFiles):
    """Small files anywhere, read without Spark; OSError if they can't be."""

    def names(self, uri: str) -> list[str]:
        """Return the names in a directory; none if it is not there."""
        system, path = file_system(uri)
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [info.base_name for info in infos]

    def read_text(self, uri: str) -> str | None:
        """Return a file's text, or None if there is none."""
        system, path = file_system(uri)
        try:
            with system.open_input_file(path) as source:
                return str(source.read().decode())
        except FileNotFoundError:
            return None


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
    """Return a table's files as an Arrow dataset; DeltaProtocolError if its rows are not simply its files' rows."""
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
