"""Parquet to typed rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from sessionlake.sources.blocks import closed_to_us
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoded import MAX_ROWS, Decoded, bad_row, in_halves, one_line, shown, typed, unreadable
from sessionlake.sources.raw import raw_text

_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError)
"""What reading damaged bytes raises; a lack of memory is none of it."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows as they were read, the first being row `before` + 1 of the file."""

    table: pa.Table
    before: int

    def text(self, row: int) -> str:
        """Give the needed columns of one row as a JSON object, cut where it is long."""
        values = {name: _plain(self.table.column(name)[row]) for name in self.table.column_names}
        return raw_text(json.dumps(values, ensure_ascii=False, default=str).encode())

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
    """Decode the needed columns of a Parquet file, at most MAX_ROWS rows at a time; one error row for each damaged row group."""
    try:
        with open_parquet(source) as file:
            there = set(file.schema_arrow.names)
            wanted = [name for name in columns.needed if name in there]
            if not wanted:
                yield from _all_null(file.metadata.num_rows, path, columns)
                return
            before = 0
            try:
                for read in _read(file, wanted):
                    yield from _decoded(read, before, path, columns)
                    before += len(read)
            except _DAMAGE:
                yield from _by_group(file, wanted, before, path, columns)
    except _DAMAGE as error:
        yield unreadable(path, columns, error)


def _read(file: pq.ParquetFile, wanted: list[str], groups: list[int] | None = None) -> Iterator[pa.Table]:
    for batch in file.iter_batches(MAX_ROWS, row_groups=groups, columns=wanted, use_threads=False):
        # By position, since a file may have two columns of one name.
        yield pa.table([batch.column(batch.schema.names.index(name)) for name in wanted], names=wanted)


def _by_group(
    file: pq.ParquetFile, wanted: list[str], given: int, path: str, columns: EventColumns
) -> Iterator[Decoded]:
    """Read on after the first `given` rows, each row group by itself: damage to one costs no row of another."""
    end = 0
    for group in range(file.num_row_groups):
        before, end = end, end + file.metadata.row_group(group).num_rows
        if end <= given:
            continue
        try:
            for read in _read(file, wanted, [group]):
                some = read.slice(max(0, given - before))
                yield from _decoded(some, before + len(read) - len(some), path, columns)
                before += len(read)
        except _DAMAGE as error:
            yield unreadable(path, columns, OSError(f"rows {max(before, given) + 1} to {end}: {one_line(error)}"))


def _all_null(rows: int, path: str, columns: EventColumns) -> Iterator[Decoded]:
    for before in range(0, rows, MAX_ROWS):
        count = min(MAX_ROWS, rows - before)
        nulls = pa.table([pa.nulls(count, field.type) for field in columns.schema], schema=columns.schema)
        yield from _decoded(nulls, before, path, columns)


def _decoded(read: pa.Table, before: int, path: str, columns: EventColumns) -> Iterator[Decoded]:
    def decode(first: int, last: int) -> Decoded:
        some = read.slice(first, last - first)
        table, error = typed(some, columns)
        return Decoded(table, error, path, _Batch(some, before + first))

    def failed(row: int, error: Exception) -> Decoded:
        return bad_row(f"bad row: {one_line(error)}", path, columns, _Batch(read.slice(row, 1), before + row))

    return in_halves(decode, failed, 0, len(read)) if len(read) else iter(())
