"""CSV to typed rows."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from sessionlake.columnar.arrays import Ints
from sessionlake.config.layouts import Layout
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.csv_records import Records, first_record, read_records
from sessionlake.sources.decoding.decoded import (
    BLOCK_BYTES,
    MAX_ROWS,
    Decoded,
    bad_row,
    in_halves,
    one_line,
    typed,
    unreadable,
)
from sessionlake.sources.decoding.json_lines import is_utf8
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES, LongLine, too_long
from sessionlake.sources.decoding.whole import text_rows

_REPLACEMENT = "\ufffd"
CSV = Layout("csv")


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows from number `before` on of a block of records."""

    records: Records
    before: int

    def text(self, row: int) -> str:
        return self.records.text(self.before + row)

    def line(self, row: int) -> int:
        return self.records.line(self.before + row)


def decode_csv(
    source: str | bytes,
    path: str,
    columns: EventColumns,
    block_bytes: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
    layout: Layout = CSV,
) -> Iterator[Decoded]:
    """Decode a CSV file; an empty field is null, `""` an empty text.

    A record with another number of fields is a bad row; a quote that never closes, or not within `max_line_bytes`,
    makes one of its line.
    """
    try:
        for header, records in with_header(source, path, layout, block_bytes, max_line_bytes):
            if isinstance(records, LongLine):
                yield bad_row(too_long(records.length, max_line_bytes), path, columns, records)
            elif records.unclosed:
                yield bad_row(f"bad CSV: {_unclosed(layout)}", path, columns, records)
            elif records.content:
                yield from _decode_records(header, records, path, columns, layout)
    except (pa.ArrowInvalid, OSError) as error:
        yield unreadable(path, columns, error)


def _unclosed(layout: Layout) -> str:
    return "a quote or an escape that is never closed" if layout.escape else "a quote that is never closed"


def with_header(
    source: str | bytes, path: str, layout: Layout, block_bytes: int, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[list[str], Records | LongLine]]:
    """Give each block of records with the names of the columns; OSError if the first record, which names or counts them, is not whole."""
    header = list(layout.names)
    for records in read_records(source, path, layout, block_bytes, max_line_bytes):
        if header:
            yield header, records
            continue
        if isinstance(records, LongLine):
            raise OSError(f"{_first(layout)}: {too_long(records.length, max_line_bytes)}")
        if records.unclosed:
            raise OSError(f"{_first(layout)} has {_unclosed(layout)}")
        line, after = first_record(records)
        if line:
            header = _names(line, layout)
            yield header, after if layout.header else records


def _first(layout: Layout) -> str:
    return "the header" if layout.header else "the first record"


def _names(line: bytes, layout: Layout) -> list[str]:
    """Name the columns as a file's first record does, or by their numbers; the first of two equal names has it."""
    if not layout.header:
        return [f"c{number}" for number in range(1, len(fields_of(line, layout)) + 1)]
    quoting = {"quotechar": layout.quote} if layout.quote else {"quoting": csv.QUOTE_NONE}
    style: dict[str, Any] = {"delimiter": layout.delimiter, "escapechar": layout.escape or None, **quoting}
    try:
        header = next(csv.reader([line.decode(errors="replace")], **style), [])
    except csv.Error as error:
        raise OSError(f"the header can't be read: {error}") from error
    names: dict[str, None] = {}
    for position, name in enumerate(header):
        names[f"{name}#{position + 1}" if name in names else name] = None
    return list(names)


def fields_of(record: bytes, layout: Layout) -> list[str]:
    """Return the fields of a record; OSError if it is none."""
    content = record.decode(errors="replace").encode() + b"\n"
    count = len(_parsed(content, layout, autogenerate_column_names=True).column_names)
    names = list(map(str, range(count)))
    texts = pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    row = _parsed(content, layout, texts, column_names=names)
    return [str(values[0]) for values in row.columns]


def _parsed(content: bytes, layout: Layout, convert: pcsv.ConvertOptions | None = None, **names: Any) -> pa.Table:
    options = pcsv.ReadOptions(use_threads=False, block_size=len(content) + 1, **names)
    try:
        return pcsv.read_csv(pa.BufferReader(content), options, _parsing(layout), convert)
    except pa.ArrowInvalid as error:
        raise OSError(f"{_first(layout)} can't be read: {error}") from error


def _parsing(layout: Layout, **more: Any) -> pcsv.ParseOptions:
    return pcsv.ParseOptions(
        delimiter=layout.delimiter,
        quote_char=layout.quote or False,
        escape_char=layout.escape or False,
        newlines_in_values=True,
        **more,
    )


def read_text(
    header: list[str], content: bytes, wanted: list[str], layout: Layout = CSV
) -> tuple[pa.Table, dict[int, str]]:
    """Read columns as text; a bad row is a row of nulls with a reason."""
    broken: dict[int, str] = {}

    def skip(row: pcsv.InvalidRow) -> str:
        broken[row.number - 1] = f"bad CSV: {row.actual_columns} fields, not {row.expected_columns}"
        return "skip"

    whole = is_utf8(content)
    clean = content if whole else content.decode(errors="replace").encode()
    include = wanted or header[:1]
    table = pcsv.read_csv(
        pa.BufferReader(clean),
        pcsv.ReadOptions(column_names=header, use_threads=False, block_size=len(clean) + 1),
        _parsing(layout, invalid_row_handler=skip),
        pcsv.ConvertOptions(
            column_types=dict.fromkeys(include, pa.string()),
            include_columns=include,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    table = _with_gaps(table, broken)
    return (table if whole else _without_replaced(table, broken)), broken


def _with_gaps(table: pa.Table, broken: dict[int, str]) -> pa.Table:
    """Put a row of nulls if a bad row was skipped."""
    if not broken:
        return table
    good = np.ones(len(table) + len(broken), np.bool_)
    good[list(broken)] = False
    # The k-th good row is row k of the table; a bad row is null.
    return table.take(pa.array(np.cumsum(good) - 1, mask=~good))


def _without_replaced(table: pa.Table, broken: dict[int, str]) -> pa.Table:
    """Null the values that weren't UTF-8, as their replacement characters show, and say so."""
    arrays = []
    for name in table.column_names:
        values = table.column(name)
        replaced = pc.match_substring(values, _REPLACEMENT)
        arrays.append(pc.if_else(pc.fill_null(replaced, fill_value=False), pa.scalar(None, pa.string()), values))
        for row in pc.indices_nonzero(replaced).to_pylist():
            broken.setdefault(row, f"bad CSV: {name} is not UTF-8")
    return pa.table(arrays, names=table.column_names)


def _whole(every: Callable[[], pa.Table], before: int, at: Ints) -> pa.Table:
    """Return some rows, counted from row `before` on, with all columns."""
    return text_rows(every().take(pa.array(at + before)))


def _decode_records(
    header: list[str], records: Records, path: str, columns: EventColumns, layout: Layout
) -> Iterator[Decoded]:
    there = set(header)
    wanted = [name for name in columns.needed if name in there]

    def decode(some: Records) -> Iterator[Decoded]:
        read, broken = read_text(header, some.content, wanted, layout)

        # Read again: in an unneeded column a value outside of UTF-8 must refuse no row.
        @cache
        def every() -> pa.Table:
            return read_text(header, some.content, header, layout)[0]

        for before in range(0, len(read), MAX_ROWS):
            part = read.slice(before, MAX_ROWS)
            errors = {row - before: reason for row, reason in broken.items() if before <= row < before + MAX_ROWS}
            table, error = typed(part.select(wanted), columns, errors)
            whole = partial(_whole, every, before) if columns.whole else None
            yield Decoded(table, error, path, _Part(some, before), whole)

    def failed(row: int, error: Exception) -> list[Decoded]:
        return [bad_row(f"bad CSV: {one_line(error)}", path, columns, records.part(row, row + 1))]

    try:
        yield from list(decode(records))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 (as in_halves)
        for parts in in_halves(lambda a, b: list(decode(records.part(a, b))), failed, 0, records.rows):
            yield from parts
