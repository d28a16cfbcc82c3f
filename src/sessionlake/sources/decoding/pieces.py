"""Files read in blocks, decompressed, and in parts by several tasks: row groups of Parquet, whole lines of JSON."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sessionlake.config.layouts import Format, Layout
from sessionlake.errors import SourceError
from sessionlake.warehouse.arrow_files import parquet_file

BOM = b"\xef\xbb\xbf"
# Small reads, so that almost all intact bytes of a truncated file are read.
_BLOCK_READ_BYTES = 256 << 10


def closed_to_us(source: str | bytes, error: OSError) -> SourceError:
    """Return the error for a missing or unpermitted local path."""
    cause = "it doesn't exist" if isinstance(error, FileNotFoundError) else "permission denied"
    return SourceError(f"can't open {source!r}: {cause}. Check the source's path and its permissions.")


def codec_of(path: str) -> str | None:
    """Return how a file is compressed, by its name's suffix; None if it is not."""
    try:
        return str(pa.Codec.detect(path).name)
    except (ValueError, TypeError):
        return None


def open_stream(source: str | bytes, path: str) -> pa.NativeFile:
    """Open a local path, or the given content of `path`. The file name's ending says the compression.

    Raises SourceError when a local path is missing or not permitted, OSError when it is damaged.
    """
    codec = codec_of(source if isinstance(source, str) else path)
    try:
        plain = pa.OSFile(source) if isinstance(source, str) else pa.BufferReader(source)
    except (FileNotFoundError, PermissionError) as error:
        raise closed_to_us(source, error) from error
    return plain if codec is None else pa.CompressedInputStream(plain, codec)


def read_blocks(stream: pa.NativeFile, size: int, *, begins: bool = True) -> Iterator[bytes]:
    """Read blocks of about `size` bytes, if the stream begins with the file without a byte order mark.

    Bytes read before an OSError are yielded first, then the error is raised.
    """
    first = begins
    failure: OSError | None = None
    while failure is None:
        pieces, length = [], 0
        try:
            while length < size and (piece := stream.read(min(_BLOCK_READ_BYTES, size))):
                pieces.append(piece)
                length += len(piece)
        except OSError as error:
            failure = error
        if not pieces and failure is None:
            return
        block = b"".join(pieces)
        yield block.removeprefix(BOM) if first else block
        first = False
    raise failure


_LEAST_BYTES = 4 << 20
"""The least number of bytes in a part: fewer bytes are read in less time than a task takes to start."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Part `number`, from 0 on, of a divided file. Every row of the file is in a single part, in the parts' order."""

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
    """Return a part's line number in its file; None if the lines before can't be counted any more."""
    before = 0 if part is None else part.lines_before
    return None if before is None else before + number


def line_range(path: str, piece: Piece) -> LineRange:
    """Return the lines that begin in a part of a file; SourceError for a missing or unpermitted file."""
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


def parts_of(path: str, size: int, form: Layout | Format, most: int) -> int:
    """Return the number of parts into which a local file may be cut, up to a limit; 1 if it can't be cut, or is small."""
    # In CSV a line break may be inside of a quoted field, so a reader can't find a record's begin in the middle of a file.
    # Neither can it find an element of a document. A compressed file can only be read from its begin.
    most, layout = min(most, size // _LEAST_BYTES), Layout.of(form)
    if most < 2 or layout.format == "csv" or layout.records:
        return 1
    if layout.format in ("json", "text"):
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
