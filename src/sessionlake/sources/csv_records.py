"""Finding the records of CSV text, as Arrow's parser sees them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sessionlake.sources.blocks import open_stream, read_blocks
from sessionlake.sources.lines import Offsets

# A quote opens a field only as its first character; after it closes, the rest of the field is literal.
# Possessive throughout, so that an unclosed quote fails in one pass.
_FIELD = rb'(?:[^",\r\n][^,\r\n]*+|"[^"]*+(?:""[^"]*+)*+"[^,\r\n]*+|)'
_FIELDS = rb"%b(?:,%b)*+" % (_FIELD, _FIELD)
_RECORD = re.compile(rb"(%b)(?:\r\n?+|\n)" % _FIELDS)
_RECORDS = re.compile(rb"(?:%b(?:\r\n?+|\n))*+" % _FIELDS)
_LINE = re.compile(rb"[^\r\n]*+(?:\r\n?+|\n)?+")


@dataclass(frozen=True)
class Records:
    """Hold whole records, each with its line break, or one line whose quote never closes."""

    content: bytes
    lines_before: int
    unclosed: bool = False

    @cached_property
    def _spans(self) -> tuple[Offsets, Offsets]:
        spans = [found.span(1) for found in _RECORD.finditer(self.content)]
        starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
        filled = starts < ends
        return starts[filled], ends[filled]

    @cached_property
    def _breaks(self) -> Offsets:
        return np.flatnonzero(np.frombuffer(self.content, np.uint8) == ord("\n")).astype(np.int64)

    def text(self, row: int) -> str:
        """Give one record, blank lines not counted, with replacement characters for what isn't UTF-8."""
        if self.unclosed:
            return self.content.rstrip(b"\r\n").decode(errors="replace")
        starts, ends = self._spans
        return self.content[starts[row] : ends[row]].decode(errors="replace")

    def line(self, row: int) -> int:
        """Give the 1-based number of the first line of one record."""
        start = 0 if self.unclosed else self._spans[0][row]
        return self.lines_before + 1 + int(np.searchsorted(self._breaks, start))


def read_records(source: str | bytes, path: str, block_bytes: int) -> Iterator[Records]:
    """Read a file in blocks of whole records; a record is taken to be at most `block_bytes` long.

    A line with a quote that doesn't close within that, or before the end of the file, comes alone.
    """
    lines_before = 0
    for content, unclosed in _cut(source, path, block_bytes):
        yield Records(content, lines_before, unclosed)
        lines_before += content.count(b"\n")


def _cut(source: str | bytes, path: str, block_bytes: int) -> Iterator[tuple[bytes, bool]]:
    rest = b""
    with open_stream(source, path) as stream:
        for block in read_blocks(stream, block_bytes):
            rest += block
            if end := _records_end(rest):
                yield rest[:end], False
                rest = rest[end:]
            while len(rest) > block_bytes and b'"' in rest and not _records_end(rest):
                line = _first_line(rest)
                yield line, True
                rest = rest[len(line) :]
    rest += b"" if rest.endswith(b"\n") or not rest else b"\n"
    while rest:
        end = _records_end(rest)
        content = rest[:end] if end else _first_line(rest)
        yield content, not end
        rest = rest[len(content) :]


def _records_end(content: bytes) -> int:
    """Give the end of the last whole record."""
    if b'"' not in content:
        return content.rfind(b"\n") + 1
    found = _RECORDS.match(content)
    return found.end() if found else 0


def _first_line(content: bytes) -> bytes:
    found = _LINE.match(content)
    return found.group() if found and found.group() else content


def split_header(records: Records) -> tuple[bytes, Records]:
    """Take the first record that isn't blank; what follows keeps its line numbers."""
    for found in _RECORD.finditer(records.content):
        if found.group(1):
            lines = records.content.count(b"\n", 0, found.end())
            return found.group(1), Records(records.content[found.end() :], records.lines_before + lines)
    return b"", Records(b"", records.lines_before)
