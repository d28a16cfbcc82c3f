"""Parquet to typed rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from sessionlake.sources.blocks import closed_to_us
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoded import MAX_ROWS, Decoded, shown, typed, unreadable


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows as they were read, the first being row `before` + 1 of the file."""

    table: pa.Table
    before: int

    def text(self, row: int) -> str:
        """Give the needed columns of one row as a JSON object."""
        values = {name: _plain(self.table.column(name)[row]) for name in self.table.column_names}
        return json.dumps(values, ensure_ascii=False, default=str)

    def line(self, row: int) -> int:
        """Give the 1-based number of one row."""
        return self.before + row + 1


def _plain(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return shown(value)


def open_parquet(source: str | bytes) -> pq.ParquetFile:
    """Open a local path or content; raises SourceError when a path is missing or not permitted."""
    try:
        return pq.ParquetFile(source if isinstance(source, str) else pa.BufferReader(source))
    except (FileNotFoundError, PermissionError) as error:
        raise closed_to_us(source, error) from error


def decode_parquet(source: str | bytes, path: str, columns: EventColumns) -> Iterator[Decoded]:
    """Decode the needed columns of a Parquet file, at most MAX_ROWS rows at a time."""
    before = 0
    try:
        with open_parquet(source) as file:
            there = set(file.schema_arrow.names)
            wanted = [name for name in columns.needed if name in there]
            if not wanted:
                yield from _all_null(file.metadata.num_rows, path, columns)
                return
            for batch in file.iter_batches(MAX_ROWS, columns=wanted, use_threads=False):
                # By position, since a file may have two columns of one name.
                read = pa.table([batch.column(batch.schema.names.index(name)) for name in wanted], names=wanted)
                yield _decoded(read, before, path, columns)
                before += len(read)
    except (pa.ArrowException, OSError) as error:
        yield unreadable(path, columns, error)


def _all_null(rows: int, path: str, columns: EventColumns) -> Iterator[Decoded]:
    for before in range(0, rows, MAX_ROWS):
        count = min(MAX_ROWS, rows - before)
        nulls = pa.table([pa.nulls(count, field.type) for field in columns.schema], schema=columns.schema)
        yield _decoded(nulls, before, path, columns)


def _decoded(read: pa.Table, before: int, path: str, columns: EventColumns) -> Decoded:
    table, error = typed(read, columns)
    return Decoded(table, error, path, _Batch(read, before))
