"""Lines of text to typed rows, by a regular expression whose named groups are the columns."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints
from sessionlake.config.layouts import Layout
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import (
    BLOCK_BYTES,
    Decoded,
    bad_row,
    in_halves,
    one_line,
    typed,
    unreadable,
)
from sessionlake.sources.decoding.json_lines import is_utf8, json_lines
from sessionlake.sources.decoding.lines import Lines, index_lines
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES, LongLine, too_long
from sessionlake.sources.decoding.pieces import WHOLE, Piece, line_range
from sessionlake.sources.decoding.safe_cast import cast_each
from sessionlake.sources.decoding.whole import slices, text_rows

NO_MATCH, NOT_UTF8 = "bad text: does not match the pattern", "bad text: not UTF-8"


@cache
def columns_of(pattern: str) -> tuple[str, ...]:
    """Return the named groups of a pattern; ValueError in words for one that is no pattern, or whose groups are no columns."""
    try:
        names = [field.name for field in pc.extract_regex(pa.array([], pa.string()), pattern).type]
    except pa.ArrowInvalid as error:
        if "unnamed groups" in str(error):
            raise ValueError(
                "has a group without a name; write (?P<name>..) for a column, (?:..) for no column"
            ) from error
        told = one_line(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"is no regular expression of RE2: {told}; correct it") from error
    if not names:
        raise ValueError("has no named group; write (?P<name>..) around the text of each column")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"has two groups {twice!r}; name each column once")
    return tuple(names)


def decode_text(
    source: str | bytes,
    path: str,
    columns: EventColumns,
    layout: Layout,
    block_bytes: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
    piece: Piece = WHOLE,
) -> Iterator[Decoded]:
    """Decode a file of lines, or a part of a local file; each line that is not empty and no comment is a row, bad or not."""
    comment = layout.comment.encode()
    try:
        part = line_range(source, piece) if isinstance(source, str) and piece.parts > 1 else None
        index = partial(index_lines, comment=comment)
        for lines in json_lines(source, path, block_bytes, max_line_bytes, part, index=index):
            if not isinstance(lines, LongLine):
                yield from _decode_lines(lines, path, columns, layout, max_line_bytes)
            elif not comment or not lines.head.startswith(comment):
                yield bad_row(too_long(lines.length, max_line_bytes), path, columns, lines)
    except OSError as error:
        yield unreadable(path, columns, error)


def _decode_lines(
    lines: Lines, path: str, columns: EventColumns, layout: Layout, max_line_bytes: int
) -> Iterator[Decoded]:
    wanted = [name for name in columns_of(layout.pattern) if name in columns.needed]

    def decode(first: int, last: int) -> Decoded:
        some = lines.part(first, last)
        read, errors = read_groups(some, layout.pattern, wanted)
        errors |= {row: too_long(length, max_line_bytes) for row, length in some.lengths.items()}
        table, error = typed(read, columns, errors)
        return Decoded(table, error, path, some, partial(_whole, some, layout.pattern) if columns.whole else None)

    def failed(row: int, error: Exception) -> Decoded:
        return bad_row(f"bad text: {one_line(error)}", path, columns, lines.part(row, row + 1))

    return in_halves(decode, failed, 0, len(lines))


def read_groups(lines: Lines, pattern: str, wanted: list[str]) -> tuple[pa.Table, dict[int, str]]:
    """Return the texts of some groups in each line, null in those that do not match; and the reasons of these lines."""
    texts = slices(lines.block, lines.starts, lines.ends).cast(pa.binary())
    texts = texts.cast(pa.string()) if is_utf8(lines.block) else cast_each(texts, pa.string())
    if lines.lengths:
        long = np.isin(np.arange(len(texts)), list(lines.lengths))
        texts = pc.if_else(pa.array(long), pa.scalar(None, pa.string()), texts)
    found = pc.extract_regex(texts, pattern)
    groups = {name: _within(found, pc.struct_field(found, name)) for name in wanted}
    empty = [pc.fill_null(pc.equal(values, ""), fill_value=False) for values in groups.values()]
    if any(pc.any(rows).as_py() for rows in empty):
        groups = _without_absent(groups, texts, pattern)
    no_match = found.is_null().to_numpy(zero_copy_only=False)
    reasons = {row: NOT_UTF8 if texts[row].as_py() is None else NO_MATCH for row in np.flatnonzero(no_match).tolist()}
    return pa.table({"": pa.nulls(len(texts)), **groups}), reasons


def _within(found: pa.StructArray, values: pa.Array) -> pa.Array:
    return pc.if_else(found.is_valid(), values, pa.scalar(None, pa.string())) if found.null_count else values


def _without_absent(groups: dict[str, pa.Array], texts: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """Return groups with null in place of those that are in no match: their text is empty, but they have no place."""
    spans = pc.extract_regex_span(texts, pattern)
    absent = {name: pc.is_null(pc.struct_field(spans, name)) for name in groups}
    return {name: pc.if_else(absent[name], pa.scalar(None, pa.string()), values) for name, values in groups.items()}


def _whole(lines: Lines, pattern: str, at: Ints) -> pa.Table:
    """Return some lines, all of which match, with all columns."""
    read, _ = read_groups(lines, pattern, list(columns_of(pattern)))
    return text_rows(read.select(columns_of(pattern)).take(pa.array(at)))
