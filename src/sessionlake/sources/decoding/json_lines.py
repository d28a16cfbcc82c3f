"""Newline-delimited JSON to typed rows."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from sessionlake.column_names import parts_of
from sessionlake.sources.columns import EventColumns
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
from sessionlake.sources.decoding.json_alike import read_alike
from sessionlake.sources.decoding.json_rows import SPECIAL_DOUBLES, Converter, Row, parse_object
from sessionlake.sources.decoding.lines import Lines, index_lines
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES, LongLine, OpenLine, in_slices, too_long
from sessionlake.sources.decoding.nested import flattened, is_flat, nested_schema
from sessionlake.sources.decoding.pieces import WHOLE, LineRange, Piece, line_range, open_stream, read_blocks

BAD_JSON = "bad JSON: "
"""The begin of the reason of a line that is no JSON object."""
# Below this many lines a call of Arrow costs less than numpy's many calls.
_FEW_LINES = 512
# Below this many lines a call of Arrow costs more than Python's parser on each line.
_LEAF_LINES = 48
# If Arrow turns down this many pieces of a chunk, Python reads the rest of it.
_CHUNK_LINES = 4096
_REFUSALS = 16
_ROW_OF_ERROR = re.compile(r"in row (\d+)$")
_OTHER_KIND = re.compile(r"changed from (string to number|number to string)")
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SPECIAL = rb'"(?:' + "|".join(SPECIAL_DOUBLES).encode() + rb')"'
# Before such a name, a quote that ends a text can't be taken for a beginning one.
_PLAIN_NAME = re.compile(r'[^\s,:{}\[\]"\\]+')


def decode_json(
    source: str | bytes,
    path: str,
    columns: EventColumns,
    block_bytes: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
    piece: Piece = WHOLE,
) -> Iterator[Decoded]:
    """Decode a JSON lines file, or a part of a local file; each non-blank line is a row, bad or not."""
    try:
        part = line_range(source, piece) if isinstance(source, str) and piece.parts > 1 else None
        for lines in json_lines(source, path, block_bytes, max_line_bytes, part):
            if isinstance(lines, LongLine):
                yield bad_row(too_long(lines.length, max_line_bytes), path, columns, lines)
            else:
                yield from decode_lines(lines, path, columns, max_line_bytes)
    except OSError as error:
        yield unreadable(path, columns, error)


def json_lines(
    source: str | bytes,
    path: str,
    block_bytes: int,
    max_line_bytes: int = MAX_LINE_BYTES,
    part: LineRange | None = None,
    most_blocks: int | None = None,
    index: Callable[..., tuple[Lines, int]] = index_lines,
) -> Iterator[Lines | LongLine]:
    """Read the lines of a file or a part of it, at most MAX_ROWS at a time; a line cut off by an OSError is left out.

    After `most_blocks` blocks, if it is given, the rest is left out, perhaps within a line. `index` finds the lines of a block.
    """
    seen = 0
    with open_stream(source, path) if part is None else part.open() as stream:
        begins = part is None or part.start == 0
        blocks = islice(read_blocks(stream, block_bytes, begins=begins), most_blocks)
        for block in _whole_lines(blocks, max_line_bytes):
            if isinstance(block, LongLine):
                seen += 1
                yield replace(block, number=seen, part=part)
                continue
            lines, count = index(block, seen, max_line_bytes, part)
            seen += count
            for first in range(0, len(lines), MAX_ROWS):
                yield lines.part(first, first + MAX_ROWS)


def _whole_lines(blocks: Iterator[bytes], limit: int) -> Iterator[bytes | LongLine]:
    """Cut blocks after their last line break; a file's last line needs none. A long line comes without its bytes."""
    tail = OpenLine(limit)
    for read in in_slices(blocks):
        block, first = read, read.find(b"\n")
        if first < 0:
            tail.add(block)
            continue
        if tail.length + first > limit:
            tail.add(block[:first])
            yield tail.past()
            tail, block = OpenLine(limit), block[first + 1 :]
        cut = block.rfind(b"\n") + 1
        yield tail.whole(block[:cut])
        tail = OpenLine(limit)
        tail.add(block[cut:])
    if tail.length:
        yield tail.past() if tail.is_long else tail.whole()


def _transport(kind: pa.DataType) -> pa.DataType:
    """JSON has no times, so they are read as text; Arrow's JSON reader lets decimals overflow their precision."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_list(kind):
        return pa.list_(_transport(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _transport(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _transport(field.type)) for field in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(at).type) for at in range(kind.num_fields))


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """Put numbers into quotes where text is asked for, and take them from NaN and infinities where a double is, as Arrow's reader needs it.

    The places are found by the names of columns and fields. If a name occurs elsewhere, too, either nobody reads the changed value, or
    Arrow turns it down once more.
    """

    numbers: re.Pattern[bytes] | None
    specials: re.Pattern[bytes] | None

    @classmethod
    def of(cls, pinned: pa.Schema) -> "_Rewriting":
        return cls(_values(pinned, pa.string(), _NUMBER), _values(pinned, pa.float64(), _SPECIAL))

    def __call__(self, content: bytes) -> bytes:
        if self.numbers is not None:
            content = self.numbers.sub(rb'\1"\2"', content)
        return content if self.specials is None else self.specials.sub(lambda found: found[1] + found[2][1:-1], content)


def _values(pinned: pa.Schema, kind: pa.DataType, value: bytes) -> re.Pattern[bytes] | None:
    """Return the pattern of values in columns of a type: their names, then the values."""
    last = [parts_of(field.name)[-1] for field in pinned if field.type == kind]
    names = [re.escape(name) for name in dict.fromkeys(last) if _PLAIN_NAME.fullmatch(name)]
    if not names:
        return None
    return re.compile(rb'("(?:' + "|".join(names).encode() + rb')"\s*:\s*)(' + value + rb")(?=\s*[,}])")


class _RefusedError(Exception):
    """Arrow turned the lines down, because of the one `at` lines in, or it doesn't say which (None)."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        self.at = at


@dataclass
class _Reader:
    """Read lines of equal layout by place, others with Arrow, and with Python the lines that Arrow refuses.

    Arrow alone can't be trusted with any input: a leading top-level null crashes it, a later one reads
    as a row of nulls, and it takes several objects on a line or one over several lines as they come.
    When every line is braced, nothing spans lines (strings can't, and `}` before `{` is an error
    elsewhere), so as many rows as lines means one object on each.
    """

    lines: Lines
    schema: pa.Schema
    pinned: pa.Schema
    all_utf8: bool
    max_line_bytes: int
    nested: pa.Schema | None = None
    """The schema of the lines if columns of `schema` are fields of others."""
    errors: dict[int, str] = field(default_factory=dict)
    _pieces: list[pa.Table] = field(default_factory=list)
    _slow_rows: list[Row] = field(default_factory=list)
    _refusals_left: int = 0
    _rewriting: _Rewriting | None = None
    """Once Arrow has turned down a number in place of a text, or the other way round."""

    def read(self) -> pa.Table:
        """Read all lines; `errors` has the reasons of bad lines."""
        if self.all_utf8 and len(self.lines) >= _FEW_LINES:
            alike = read_alike(self.lines, self.schema)
            if alike is not None:
                return alike
        convert = Converter(self.schema, self.pinned)
        if any(map(_has_map, self.schema.types)):
            # Arrow reads no object as a map.
            self._slow(0, len(self.lines), convert)
            self._flush()
            return pa.concat_tables(self._pieces)
        try:
            return self._fast(0, len(self.lines))
        except _RefusedError:
            pass
        for first in range(0, len(self.lines), _CHUNK_LINES):
            self._refusals_left = _REFUSALS
            self._chunk(first, min(first + _CHUNK_LINES, len(self.lines)), convert)
        self._flush()
        return pa.concat_tables(self._pieces)

    def _chunk(self, first: int, last: int, convert: Converter) -> None:
        """Read lines first..last, last excluded: what Arrow takes, then the bad line, and on after it."""
        while last - first > _LEAF_LINES and self._refusals_left:
            try:
                table = self._fast(first, last)
            except _RefusedError as refused:
                self._refusals_left -= 1
                bad = (first + last) // 2 if refused.at is None else first + refused.at
                self._chunk(first, bad, convert)
                if refused.at is not None:
                    self._slow(bad, bad + 1, convert)
                first = bad + (refused.at is not None)
            else:
                self._flush()
                self._pieces.append(table)
                return
        self._slow(first, last, convert)

    def _fast(self, first: int, last: int) -> pa.Table:
        braced = self.lines.braced[first:last]
        if not braced.all():
            raise _RefusedError(int(np.argmin(braced)))
        start, end = int(self.lines.starts[first]), int(self.lines.ends[last - 1])
        if not self.all_utf8 and not is_utf8(self.lines.block[start:end]):
            raise _RefusedError(None)
        try:
            table = self._parsed(start, end)
        except (pa.ArrowException, UnicodeError) as error:
            named = _ROW_OF_ERROR.search(str(error))
            # Only a hint: with several objects on a line it counts too far.
            at = int(named.group(1)) if named else last
            raise _RefusedError(at if at < last - first else None) from error
        if len(table) != last - first:
            raise _RefusedError(None)
        return table

    def _parsed(self, start: int, end: int) -> pa.Table:
        """Parse a part of the block; if a value is a number in place of a text, or the other way round, once more, rewritten."""
        if self._rewriting is None:
            try:
                return self._of(pa.py_buffer(self.lines.block).slice(start, end - start))
            except pa.ArrowInvalid as error:
                if _OTHER_KIND.search(str(error)) is None:
                    raise
            self._rewriting = _Rewriting.of(self.pinned)
        return self._of(pa.py_buffer(self._rewriting(self.lines.block[start:end])))

    def _of(self, content: pa.Buffer) -> pa.Table:
        if self.nested is None:
            return _parse(content, self.schema)
        return flattened(_parse(content, self.nested), self.schema.names)

    def _slow(self, first: int, last: int, convert: Converter) -> None:
        for row in range(first, last):
            values, reason = self._one(row, convert)
            self._slow_rows.append(values)
            if reason is not None:
                self.errors[row] = reason

    def _one(self, row: int, convert: Converter) -> tuple[Row, str | None]:
        if row in self.lines.lengths:
            return {}, too_long(self.lines.lengths[row], self.max_line_bytes)
        try:
            return convert(parse_object(self.lines.content(row)))
        except ValueError as error:
            if any(map(_has_map, self.schema.types)):
                return {}, f"{BAD_JSON}{error}"
            return self._second_opinion(row, f"{BAD_JSON}{error}")

    def _second_opinion(self, row: int, reason: str) -> tuple[Row, str | None]:
        """Give Arrow this line alone, so that a row's result never depends on other rows."""
        try:
            return self._fast(row, row + 1).to_pylist()[0], None
        except _RefusedError:
            return {}, reason

    def _flush(self) -> None:
        if self._slow_rows:
            self._pieces.append(pa.Table.from_pylist(self._slow_rows, self.schema))
            self._slow_rows = []


def _parse(content: pa.Buffer, schema: pa.Schema) -> pa.Table:
    read_options = pj.ReadOptions(use_threads=False, block_size=content.size + 1)
    parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pj.read_json(pa.BufferReader(content), read_options, parse_options)


def decode_lines(lines: Lines, path: str, columns: EventColumns, max_line_bytes: int) -> Iterator[Decoded]:
    """Decode lines of a file; each is a row, bad or not."""

    def decode(first: int, last: int) -> Decoded:
        some = lines.part(first, last)
        read, errors = read_lines(some, columns.schema, max_line_bytes)
        table, error = typed(read, columns, errors)
        return Decoded(table, error, path, some, some.whole if columns.whole else None)

    def failed(row: int, error: Exception) -> Decoded:
        return bad_row(f"{BAD_JSON}{one_line(error)}", path, columns, lines.part(row, row + 1))

    return in_halves(decode, failed, 0, len(lines))


def read_lines(
    lines: Lines, pinned: pa.Schema, max_line_bytes: int = MAX_LINE_BYTES
) -> tuple[pa.Table, dict[int, str]]:
    """Read each line's row, before it has the pinned types; and the reasons of lines that are no JSON object."""
    schema = pa.schema([(column.name, _transport(column.type)) for column in pinned])
    nested = None if is_flat(schema.names) else nested_schema(schema)
    reader = _Reader(lines, schema, pinned, is_utf8(lines.block), max_line_bytes, nested)
    return reader.read(), reader.errors


def is_utf8(content: bytes) -> bool:
    """Return whether all bytes are UTF-8."""
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
