"""A Delta table as a source: each version's new rows."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from sessionlake.column_names import names_of
from sessionlake.columnar.column_types import type_name
from sessionlake.config.load import Config
from sessionlake.errors import MissingColumnsError, SessionlakeError, SourceError
from sessionlake.sources.base import Offsets, PlannedInput, RankedInput, Versioned, limits_of, same
from sessionlake.sources.columns import EventColumns, normal_type
from sessionlake.sources.decoding.nested import leaves, type_at
from sessionlake.sources.decoding.tables import BLOCK, FILE, WHOLE, TableDecoder
from sessionlake.sources.decoding.whole import is_kept
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.outside_files import outside_of_snapshot, outside_of_version
from sessionlake.warehouse.own_paths import is_link_out, is_outside
from sessionlake.warehouse.spark_columns import source_column
from sessionlake.warehouse.streamed_files import BATCH, are_gone, read_files, streamed_files
from sessionlake.warehouse.tables import Table, Tables, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_GREW = ("DELTA_SCHEMA_CHANGED", "DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART")
"""Signs of a query ended by Spark because the table's schema has changed since its begin."""


class DeltaSource:
    """See `Source` for the methods."""

    name: ClassVar[str] = "delta"
    one_row_a_file: ClassVar[bool] = False

    def __init__(self, spark: "SparkSession", config: Config, number: int = 0) -> None:
        self._spark, self._config, self._number = spark, config, number

    def check(self) -> None:
        """Do nothing: for an unreadable table, reading its columns raises an error."""

    def watch(self) -> None:
        """Do nothing: Spark reads all of a table, or fails."""

    def grew(self, told: str) -> bool:
        """Say whether Spark has ended the query because the table's schema is another one."""
        return any(sign in told for sign in _GREW)

    def explained(self, told: str) -> SessionlakeError | None:
        """Return the error for rows that were not read yet and are gone."""
        path = self._config.source.path
        if not are_gone(told, path):
            return None
        return SourceError(
            f"{self._config.source.place_at}: files or versions of {path!r} that were not read yet are gone; put them back, or use "
            "`sessionlake rebuild`, and keep them longer there (VACUUM, delta.logRetentionDuration)"
        )

    def columns(self) -> list[str]:
        """Return the table's columns."""
        return names_of(self._schema().names)

    @property
    def _meta(self) -> Mapping[str, pa.DataType]:
        """The columns of rows besides the table's."""
        return {}

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return column types as the table declares them, and the types of further columns."""
        del identity  # nothing is inferred
        schema, meta = self._schema(), self._meta
        found = {name: type_at(schema, name) for name in needed}
        missing = [name for name in needed if found[name] is None and name not in meta]
        if missing:
            raise MissingColumnsError(
                f"{self._config.source.place_at}: {self._config.source.place!r} has no column {missing[0]!r}; pick one of {', '.join(schema.names)}",
                missing,
                schema.names,
            )
        return {name: meta[name] if type_ is None else normal_type(type_) for name, type_ in found.items()}

    def decoder(self, columns: EventColumns) -> TableDecoder:
        """Return the decoder, which takes the rows as they are."""
        return TableDecoder(columns, self._config.source.path)

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return the rows that versions add; versions that change or remove rows are passed over.

        Raises SourceError if the table has no column that is read, or has it in another type.
        """
        self._check_types(columns)
        limits = limits_of(self._config.source, everything_at_once=everything_at_once)
        reader = self._spark.readStream.format("delta").option("skipChangeCommits", "true").options(**limits)
        # Spark knows no column `_metadata` in a stream of a Delta table.
        place = [F.substring_index(F.input_file_name(), "/", -1).alias(FILE), F.input_file_block_start().alias(BLOCK)]
        others = [*(place if columns.ordered else []), *(self._whole() if columns.whole else [])]
        return self._needed(reader.load(self._config.source.path), columns, *others)

    def planned(self, tables: Tables, column: Callable[[str], str] = same) -> PlannedInput | None:
        """Return the check of the versions that batches read: Spark reads all files that their log names."""
        del column
        return None if self._config.source.shallow_clones else CheckedVersions(tables, self._config, self._number)

    def is_small(self, before: str, planned: str) -> bool:
        """Return False: positions don't say how many rows the files between them have."""
        del before, planned
        return False

    def versioned(self) -> Versioned | None:
        """Return None: Spark's positions say all."""
        return None

    def ranked(self, tables: Tables) -> RankedInput | None:
        """Return the files' order by the table's log."""
        return VersionedFiles(tables, self._config, self._number)

    def replay(
        self, tables: Tables, columns: EventColumns, offsets: Offsets, needed: Collection[int]
    ) -> "DataFrame | None":
        """Return the rows of the needed batches' files."""
        table = Table(tables, self._config.source.path)
        files = streamed_files(table, offsets, needed)
        outside = (f.path for f in files if is_outside(f.path) or is_link_out(table.uri, f.path))
        if not self._config.source.shallow_clones and (found := next(outside, None)):
            raise outside_error(self._config, found)
        return self._needed(read_files(table, files), columns, BATCH) if files else None

    def _check_types(self, columns: EventColumns) -> None:
        for name, found in self.types(columns.needed).items():
            pinned = normal_type(columns.types[name])
            if found != pinned:
                raise SourceError(
                    f"{self._config.source.place_at}: column {name!r} of {self._config.source.place!r} is now {type_name(found)}, and was "
                    f"{type_name(pinned)}; bring the old type back, or give the new values a column of their own"
                )

    def _needed(self, rows: "DataFrame", columns: EventColumns, *others: "str | Column") -> "DataFrame":
        return rows.select(
            *(source_column(f.name).cast(f.dataType).alias(f.name) for f in spark_schema(columns.schema)), *others
        )

    def _whole(self) -> "list[Column]":
        schema = self._schema()
        names = [name for name in leaves(schema) if is_kept(type_at(schema, name))]
        return [F.struct(*(source_column(name).alias(name) for name in names)).alias(WHOLE)]

    def _schema(self) -> pa.Schema:
        path = self._config.source.path
        try:
            return spark_names.to_arrow_schema(self._spark.read.format("delta").load(path).schema)
        except spark_names.AnalysisException as error:
            raise SourceError(
                f"{self._config.source.AT}.path: {path!r} is no readable Delta table; create it or correct the path"
            ) from error


class CheckedVersions:
    """A table's versions that batches read, each looked at once before its rows are read; see `PlannedInput` for the methods."""

    def __init__(self, tables: Tables, config: Config, number: int) -> None:
        self._tables, self._config, self._number = tables, config, number
        self._table = Table(tables, config.source.path)
        self._checked: int | None = None
        """The version up to which all are checked, inclusive."""

    def rows(self, rows: "DataFrame", batch_id: int, offsets: str | None) -> "DataFrame":
        """Return the rows unchanged; SourceError if the batch's versions name a file outside of the table."""
        now = _offset_of(offsets, self._number)
        if now is not None:
            self._check(now, batch_id)
        return rows

    def gone(self, batch_id: int) -> list[str]:
        """Return no names: Spark itself says which files are gone."""
        del batch_id
        return []

    def reached(self, batch_id: int) -> int:
        """Return -1: the source has no log in the checkpoint."""
        del batch_id
        return -1

    def _check(self, now: Mapping[str, Any], batch_id: int) -> None:
        end = int(now["reservoirVersion"]) - (int(now["index"]) < 0)
        if self._checked is None:
            text = self._tables.read_text(f"{self._config.checkpoint}/offsets/{batch_id - 1}") if batch_id else None
            before = _offset_of(text, self._number)
            # The version of a last offset may have been read in part, and so is looked at again.
            first = end if before is None else int(before["reservoirVersion"])
            if before is None or before.get("isStartingVersion"):
                self._require_own(outside_of_snapshot(self._table, first))
            self._checked = first - 1
        for version in range(self._checked + 1, end + 1):
            self._require_own(outside_of_version(self._table, version))
        self._checked = max(self._checked, end)

    def _require_own(self, found: str | None) -> None:
        if found is not None:
            raise outside_error(self._config, found)


def outside_error(config: Config, found: str) -> SourceError:
    """Return the error for a table with a file outside of it."""
    at = config.source.AT
    return SourceError(
        f"{config.source.place_at}: {config.source.place!r} names a file outside of the table, {found!r}; write the rows into the table itself, "
        f"or set {at}.shallow_clones = true if everyone who may write it may have all files of this account read"
    )


class VersionedFiles:
    """The files added by a table's versions, in the stream's order."""

    def __init__(self, tables: Tables, config: Config, number: int) -> None:
        self._tables, self._source, self._checkpoint = tables, Table(tables, config.source.path), config.checkpoint
        self._number = number

    def ranks(self, batch_id: int) -> Mapping[str, int]:
        """Return a batch's files by name; SourceError if the table's log no longer has the versions that it read."""
        offsets = [(batch, self._offset(batch)) for batch in (batch_id - 1, batch_id) if batch >= 0]
        files = streamed_files(self._source, offsets, {batch_id})
        return {file.name: rank for rank, file in enumerate(files)}

    def _offset(self, batch_id: int) -> dict[str, Any] | None:
        return _offset_of(self._tables.read_text(f"{self._checkpoint}/offsets/{batch_id}"), self._number)


def _offset_of(text: str | None, number: int) -> dict[str, Any] | None:
    """Return an offset file's entry for an event input; None if nothing of it was read yet."""
    lines = (text or "").splitlines()[2:]
    line = lines[number] if len(lines) > number else "-"
    offset: dict[str, Any] | None = None if line == "-" else json.loads(line)
    return offset
