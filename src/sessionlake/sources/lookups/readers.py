"""The newest version of a lookup table, and its rows, by Spark."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.errors import SourceError, first_line
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import CONTENT, PATH, FileDecoder, is_local
from sessionlake.sources.delta import outside_error
from sessionlake.sources.files import path_for_spark, source_files
from sessionlake.sources.lookups.making import UNREAD
from sessionlake.sources.lookups.tables import TableToLookUp, changelog_of_table
from sessionlake.warehouse.filesystem import as_name
from sessionlake.warehouse.outside_files import outside_of_snapshot
from sessionlake.warehouse.spark_columns import map_in_arrow, source_column
from sessionlake.warehouse.tables import Table, Tables, spark_schema
from sessionlake.warehouse.views import merged_rows, pinned_versions


class ChangedError(SourceError):
    """Files have changed since their version was named: rows read from them may be from both."""


class Reader(Protocol):
    """Reads versions of a table."""

    def newest(self) -> str:
        """Return the name of the newest version, letters and digits; SourceError if there is none."""

    def rows(self, version: str, types: Mapping[str, pa.DataType]) -> DataFrame:
        """Return columns of a version's rows, in these types, and perhaps UNREAD; SourceError if it can't be read any more."""

    def check(self, version: str) -> None:
        """Raise ChangedError if what was read just now need not be the version."""


def reader_of(spark: SparkSession, table: TableToLookUp) -> Reader:
    """Return the reader of a table."""
    if table.upstream is not None:
        tables = Tables(spark, table.upstream.warehouse, changelog_of_table(table.upstream))
        return PipelineReader(tables, table)
    return FilesReader(spark, table) if table.config.source.entry.opens_files else DeltaReader(spark, table)


class DeltaReader:
    """Reads a Delta table by its log's versions; see `Reader` for the methods."""

    def __init__(self, spark: SparkSession, table: TableToLookUp) -> None:
        self._of, self._table = table, Table(Tables.of(spark, table.config), table.config.source.path)
        self._checked: str | None = None

    def newest(self) -> str:
        """Return the log's last version."""
        if not self._table.exists():
            raise SourceError(
                f"{self._of.place_at}: {self._of.place!r} is no readable Delta table; create it or correct the path"
            )
        return str(self._table.latest_version())

    def rows(self, version: str, types: Mapping[str, pa.DataType]) -> DataFrame:
        """Return the rows as of the version."""
        if self._checked != version and not self._of.config.source.shallow_clones:
            if (found := outside_of_snapshot(self._table, int(version))) is not None:
                raise outside_error(self._of.config, found)
            self._checked = version
        return _read(self._of, lambda: _typed(self._table.read(int(version)), types))

    def check(self, version: str) -> None:
        """Do nothing: a version of a table stays as it is."""
        del version


class PipelineReader:
    """Reads the rows of a pipeline by the versions of its changelog and its snapshot; see `Reader` for the methods.

    The changelog's version alone does not name the rows: a later snapshot has changes of later batches.
    """

    def __init__(self, tables: Tables, table: TableToLookUp) -> None:
        self._of, self._tables = table, tables

    def newest(self) -> str:
        """Return the last versions of both."""
        if not self._tables[self._tables.changelog.changes].exists():
            raise SourceError(f"{self._of.place_at}: {self._of.place!r} has no rows yet; run that pipeline first")
        snapshot, changelog = pinned_versions(self._tables, None, None)
        return f"{changelog}s{snapshot}"

    def rows(self, version: str, types: Mapping[str, pa.DataType]) -> DataFrame:
        """Return the latest row of each key as of the version."""
        changelog, snapshot = map(int, version.split("s"))
        merged = partial(merged_rows, self._tables, changelog_version=changelog, snapshot_version=snapshot)
        return _read(self._of, lambda: _typed(merged(), types))

    def check(self, version: str) -> None:
        """Do nothing: a version of a table stays as it is."""
        del version


class FilesReader:
    """Reads a directory of files, with the hash of their names, sizes and times as version; see `Reader` for the methods."""

    def __init__(self, spark: SparkSession, table: TableToLookUp) -> None:
        self._spark, self._of, self._path = spark, table, table.config.source.path

    def newest(self) -> str:
        """Return the version of the existing files; SourceError if there are none: a missing table has no rows either."""
        if not (listed := self._listed()):
            raise SourceError(f"{self._of.place_at}: {self._of.place!r} has no files; write one, or correct the path")
        return hashlib.sha256("\n".join(sorted(map(str, listed))).encode()).hexdigest()[:16]

    def rows(self, version: str, types: Mapping[str, pa.DataType]) -> DataFrame:
        """Return the files' rows, if the files are still the version's."""
        paths = [path for path, *_ in self._listed()]
        self.check(version)
        schema = pa.schema([*types.items(), (UNREAD, pa.string())])
        return map_in_arrow(self._files(paths).coalesce(1), _decoding(self._of, types, schema), spark_schema(schema))

    def check(self, version: str) -> None:
        """Raise ChangedError if the files are not the version's."""
        if self.newest() != version:
            raise ChangedError(
                f"{self._of.place_at}: files of {self._of.place!r} have changed since the version {version!r}"
            )

    def _listed(self) -> list[tuple[str, int, int]]:
        """Return path, bytes and time of each file."""
        if is_local(self._path):
            try:
                return [(path, *_stat(path)) for path in source_files(self._of.config)]
            except FileNotFoundError as error:
                raise ChangedError(f"{self._of.place_at}: files of {self._of.place!r} are being removed") from error
        found = _read(
            self._of,
            lambda: self._binary([path_for_spark(self._spark, self._of.config)]).select(
                "path", "length", F.unix_micros("modificationTime")
            ),
        )
        return [(row[0], row[1], row[2]) for row in found.collect()]

    def _files(self, paths: list[str]) -> DataFrame:
        if is_local(self._path):
            return self._spark.createDataFrame([(path,) for path in paths], f"{PATH} string")
        return self._binary([as_name(path) for path in paths]).select(
            F.col("path").alias(PATH), F.col("content").alias(CONTENT)
        )

    def _binary(self, paths: list[str]) -> DataFrame:
        return self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)


def _stat(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_size, status.st_mtime_ns


def _decoding(
    table: TableToLookUp, types: Mapping[str, pa.DataType], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for a task that decodes files as a source of files does."""
    columns = EventColumns(None, None, None, None, tuple(types), types)
    decoder = cast("FileDecoder", table.source.decoder(columns))

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for rows in decoder.decode(pa.Table.from_batches([batch])):
                unread = pa.nulls(rows.table.num_rows, pa.string())
                if rows.error is not None and rows.error.null_count < len(rows.error):
                    wrong = pc.is_valid(rows.error).to_numpy(zero_copy_only=False)
                    unread = pc.if_else(pa.array(wrong), rows.source(np.arange(len(wrong))), unread)
                table = rows.table.append_column(UNREAD, unread)
                yield from table.cast(schema).combine_chunks().to_batches()

    return decode


def _typed(rows: DataFrame, types: Mapping[str, pa.DataType]) -> DataFrame:
    return rows.select(
        *(source_column(f.name).cast(f.dataType).alias(f.name) for f in spark_schema(pa.schema(list(types.items()))))
    )


def _read(table: TableToLookUp, action: Callable[[], DataFrame]) -> DataFrame:
    """Return a DataFrame; an unreadable table or version is a one-line error."""
    try:
        return action()
    except (AnalysisException, Py4JJavaError) as error:
        raise SourceError(f"{table.place_at}: {table.place!r} can't be read ({first_line(error)})") from error
