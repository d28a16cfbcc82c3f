"""Parts of a large file, so that several tasks read it in parallel: row groups of Parquet, whole lines of JSON."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sessionlake.config.sources import Format
from sessionlake.sources.decoding.blocks import closed_to_us, codec_of
from sessionlake.warehouse.parquet import parquet_file

_LEAST_BYTES = 4 << 20
"""The least number of bytes in a part: fewer bytes are read in less time than a task takes to start."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Part `number`, from 0 on, of a file in several parts. Every row of the file is in one part, in the order of the parts."""

    number: int = 0
    parts: int = 1

    def within(self, count: int) -> range:
        """Return which of `count` things in a row are this part's."""
        return range(count * self.number // self.parts, count * (self.number + 1) // self.parts)


WHOLE = Piece()


@dataclass(frozen=True)
class LineRange:
    """The bytes [start, end) of a file: whole lines."""

    path: str
    start: int
    end: int

    @cached_property
    def lines_before(self) -> int | None:
        """The number of lines before this part, counted at the first use; None if they can't be read."""
        with suppress(OSError), Path(self.path).open("rb") as file:
            return sum(block.count(b"\n") for block in _blocks(file.read, self.start))
        return None

    def open(self) -> pa.NativeFile:
        """Open these bytes as a stream."""
        return pa.OSFile(self.path).get_stream(self.start, self.end - self.start)


def in_file(number: int, part: LineRange | None) -> int | None:
    """Return the number in its file of a line of a part; None if the lines before can't be counted any more."""
    before = 0 if part is None else part.lines_before
    return None if before is None else before + number


def line_range(path: str, piece: Piece) -> LineRange:
    """Return the lines that begin in a part of a file's bytes; SourceError if it is missing or not permitted."""
    try:
        with Path(path).open("rb") as file:
            cuts = piece.within(file.seek(0, io.SEEK_END))
            return LineRange(path, _line_from(file, cuts.start), _line_from(file, cuts.stop))
    except (FileNotFoundError, PermissionError) as error:
        raise closed_to_us(path, error) from error


def _line_from(file: BinaryIO, at: int) -> int:
    """Return the start of the first line at or after a byte."""
    if at == 0:
        return 0
    begin = file.seek(at - 1)  # behind a break it begins at the byte itself
    while read := file.readline(_READ_BYTES):
        begin += len(read)
        if read.endswith(b"\n"):
            break
    return begin


def parts_of(path: str, size: int, format_: Format, most: int) -> int:
    """Return the number of parts into which a local file may be cut, up to a limit; 1 if it can't be cut, or is small."""
    # In CSV a line break may be inside of a quoted field, so a reader can't find a record's begin in the middle of a file.
    # A compressed file can only be read from its begin.
    most = min(most, size // _LEAST_BYTES)
    if most < 2 or format_ == "csv":
        return 1
    if format_ == "json":
        return most if codec_of(path) is None else 1
    try:
        with parquet_file(path) as file:
            return max(1, min(most, file.num_row_groups))
    except (pa.ArrowException, OSError):
        return 1  # the file's reader reports the error


def _blocks(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    while length > 0 and (block := read(min(_READ_BYTES, length))):
        length -= len(block)
        yield block
