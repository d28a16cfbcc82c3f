"""Parquet to typed rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sessionlake.column_names import parts_of, roots_of
from sessionlake.columnar.arrays import combined
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import (
    MAX_ROWS,
    Decoded,
    bad_row,
    in_halves,
    one_line,
    plain,
    typed,
    unreadable,
)
from sessionlake.sources.decoding.nested import as_object, flattened, leaves, type_at
from sessionlake.sources.decoding.pieces import WHOLE, Piece, closed_to_us
from sessionlake.sources.decoding.rows import raw_text
from sessionlake.sources.decoding.safe_cast import TEXTS
from sessionlake.sources.decoding.whole import is_kept, text_rows
from sessionlake.warehouse.arrow_files import parquet_file

_LARGE_GROUP = 50_000
_DICTIONARIES = ("PLAIN_DICTIONARY", "RLE_DICTIONARY")
_BATCH_BYTES = 128 << 20
"""Rows that are read at once have at most about so many bytes, as far as a file says before they are read."""
_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError)
"""Errors from damaged bytes; a lack of memory is not among them."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows as they were read, the first being row `before` + 1 of the file."""

    table: pa.Table
    before: int

    def text(self, row: int) -> str:
        """Return a row's needed columns as a JSON object, cut if it is long."""
        values = {name: plain(self.table.column(name)[row]) for name in self.table.column_names}
        return raw_text(json.dumps(as_object(values), ensure_ascii=False, default=str).encode())

    def line(self, row: int) -> int:
        """Return a row's 1-based number."""
        return self.before + row + 1


def open_parquet(source: str | bytes, **options: Any) -> pq.ParquetFile:
    """Open a local path or content; raises SourceError when a path is missing or not permitted."""
    try:
        return parquet_file(source, **options)
    except (FileNotFoundError, PermissionError) as error:
        raise closed_to_us(source, error) from error


def decode_parquet(
    source: str | bytes, path: str, columns: EventColumns, piece: Piece = WHOLE, most_rows: int = MAX_ROWS
) -> Iterator[Decoded]:
    """Decode a Parquet file's needed columns, at most `most_rows` rows at a time; an error row for each damaged row group."""
    try:
        with _opened(source, columns) as file:
            groups = piece.within(file.num_row_groups)
            sizes = [file.metadata.row_group(group).num_rows for group in range(groups.stop)]
            first = before = sum(sizes[: groups.start])
            wanted = [name for name in columns.needed if type_at(file.schema_arrow, name) is not None]
            if columns.whole:
                more = (name for name in leaves(file.schema_arrow) if is_kept(type_at(file.schema_arrow, name)))
                wanted = list(dict.fromkeys((*wanted, *more)))
            if not wanted:
                yield from _all_null(range(first, sum(sizes)), path, columns)
                return
            try:
                most = min(most_rows, _rows_at_once(source, file, wanted, groups))
                for read in _read(file, wanted, list(groups), most):
                    yield from _decoded(read, before, path, columns)
                    before += len(read)
            except _DAMAGE:
                yield from _by_group(source, file, wanted, groups, before, path, columns)
    except _DAMAGE as error:
        if piece.number == 0:  # the other parts' tasks meet it, too
            yield unreadable(path, columns, error)


def _opened(source: str | bytes, columns: EventColumns) -> pq.ParquetFile:
    """Open a file. Keys stored as a dictionary are read as a dictionary, which saves laying out and hashing each."""
    file = open_parquet(source)
    key = columns.lone_key
    try:
        encoded = key is not None and _has_dictionary(file, key)
    except BaseException:
        file.close()
        raise
    if key is None or not encoded:
        return file
    with file:
        return open_parquet(source, read_dictionary=[_path(key)], metadata=file.metadata)


def _path(name: str) -> str:
    """Return a column or field as Parquet calls it: one path may be both."""
    return ".".join(parts_of(name))


def _has_dictionary(file: pq.ParquetFile, name: str) -> bool:
    """Say whether a text column is a dictionary in the file, in row groups that are not small: a batch ends with each."""
    file_metadata = file.metadata
    if not file_metadata.num_row_groups or file_metadata.num_rows / file_metadata.num_row_groups < _LARGE_GROUP:
        return False
    places = [at for at in range(file_metadata.num_columns) if file_metadata.schema.column(at).path == _path(name)]
    if len(places) != 1 or type_at(file.schema_arrow, name) not in TEXTS:
        return False
    return any(kind in _DICTIONARIES for kind in file_metadata.row_group(0).column(places[0]).encodings)


def _rows_at_once(source: str | bytes, file: pq.ParquetFile, wanted: list[str], groups: range) -> int:
    """Return how many rows to read at once. A long value that a dictionary has once may be every row's."""
    most, schema = MAX_ROWS, file.metadata.schema
    paths = {_path(name) for name in wanted}
    within = tuple(f"{path}." for path in paths)
    every = ((at, schema.column(at).path) for at in range(file.metadata.num_columns))
    places = [at for at, path in every if path in paths or path.startswith(within)]
    for group in groups:
        group_metadata = file.metadata.row_group(group)
        chunks = [group_metadata.column(at) for at in places]
        bytes_of_row = sum(chunk.total_uncompressed_size for chunk in chunks) / max(1, group_metadata.num_rows)
        names = [
            chunk.path_in_schema
            for chunk in chunks
            if chunk.physical_type == "BYTE_ARRAY"
            and chunk.path_in_schema in paths
            and any(kind in _DICTIONARIES for kind in chunk.encodings)
        ]
        if names:
            bytes_of_row = max(bytes_of_row, _longest(source, file, names, group))
        most = min(most, max(1, int(_BATCH_BYTES / max(1.0, bytes_of_row))))
    return most


def _longest(source: str | bytes, file: pq.ParquetFile, names: list[str], group: int) -> int:
    """Return the bytes of the longest values in the dictionaries of a row group's columns, together."""
    with open_parquet(source, read_dictionary=names, metadata=file.metadata, pre_buffer=False) as encoded:
        first = next(encoded.iter_batches(1, row_groups=[group], columns=names, use_threads=False), None)
    if first is None:
        return 0
    names = list(dict.fromkeys(first.schema.names))
    read = pa.table([first.column(first.schema.names.index(name)) for name in names], names=names)
    every = flattened(read, leaves(read.schema))
    arrays = [array for array in map(combined, every.columns) if isinstance(array, pa.DictionaryArray)]
    return sum(pc.max(pc.binary_length(array.dictionary)).as_py() or 0 for array in arrays)


def _read(file: pq.ParquetFile, wanted: list[str], groups: list[int], most: int) -> Iterator[pa.Table]:
    columns, roots = [*map(_path, wanted)], roots_of(wanted)
    for batch in file.iter_batches(most, row_groups=groups, columns=columns, use_threads=False):
        # By position, since a file may have two columns of equal name.
        arrays = [batch.column(batch.schema.names.index(name)) for name in roots]
        read = flattened(pa.table(arrays, names=roots), wanted)
        _check_indices([combined(column) for column in read.columns])
        yield read


def _check_indices(arrays: list[pa.Array]) -> None:
    """Raise if damaged bytes number a value that a dictionary does not have, which Arrow reads as it comes."""
    for array in arrays:
        if isinstance(array, pa.DictionaryArray):
            bounds = pc.min_max(array.indices)
            least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
            if least is not None and not 0 <= least <= greatest < len(array.dictionary):
                raise pa.ArrowInvalid(f"value {greatest} of a dictionary of {len(array.dictionary)}")


def _by_group(
    source: str | bytes,
    file: pq.ParquetFile,
    wanted: list[str],
    groups: range,
    given: int,
    path: str,
    columns: EventColumns,
) -> Iterator[Decoded]:
    """Read on after the file's first `given` rows, each row group alone: damage to a group costs no row of another."""
    end = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
    for group in groups:
        before, end = end, end + file.metadata.row_group(group).num_rows
        if end <= given:
            continue
        try:
            for read in _read(file, wanted, [group], _rows_at_once(source, file, wanted, range(group, group + 1))):
                some = read.slice(max(0, given - before))
                yield from _decoded(some, before + len(read) - len(some), path, columns)
                before += len(read)
        except _DAMAGE as error:
            yield unreadable(path, columns, OSError(f"rows {max(before, given) + 1} to {end}: {one_line(error)}"))


def _all_null(rows: range, path: str, columns: EventColumns) -> Iterator[Decoded]:
    for before in rows[::MAX_ROWS]:
        count = min(MAX_ROWS, rows.stop - before)
        nulls = pa.table([pa.nulls(count, field.type) for field in columns.schema], schema=columns.schema)
        yield from _decoded(nulls, before, path, columns)


def _decoded(read: pa.Table, before: int, path: str, columns: EventColumns) -> Iterator[Decoded]:
    needed = [name for name in columns.needed if name in read.column_names]

    def decode(first: int, last: int) -> Decoded:
        some = read.slice(first, last - first)
        table, error = typed(some, columns)
        whole = (lambda at: text_rows(some.take(pa.array(at)))) if columns.whole else None
        return Decoded(table, error, path, _Batch(some.select(needed), before + first), whole)

    def failed(row: int, error: Exception) -> Decoded:
        return bad_row(
            f"bad row: {one_line(error)}", path, columns, _Batch(read.select(needed).slice(row, 1), before + row)
        )

    return in_halves(decode, failed, 0, len(read)) if len(read) else iter(())
