"""Finding the records of CSV text, as Arrow's parser sees them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from sessionlake.config.layouts import Layout
from sessionlake.sources.decoding.lines import Offsets
from sessionlake.sources.decoding.long_lines import LongLine, OpenLine, in_slices
from sessionlake.sources.decoding.pieces import open_stream, read_blocks
from sessionlake.sources.decoding.rows import raw_text

_BREAK = re.compile(rb"\r\n?+|\n")


@dataclass(frozen=True)
class Grammar:
    """The records of a layout of CSV, as Arrow's parser sees them."""

    record: re.Pattern[bytes]
    """Blank lines, then a record, and its line break."""
    records: re.Pattern[bytes]
    """Any number of records and comments, each with its line break."""
    marks: tuple[bytes, ...]
    """The characters behind which a line break need not end a record."""
    comment: bytes
    comments: re.Pattern[bytes]
    """A comment, where each line is a record."""
    record_or_comment: re.Pattern[bytes]

    @staticmethod
    @cache
    def of(layout: Layout) -> "Grammar":
        """Return the grammar of a layout."""
        marks = [re.escape(mark.encode()) for mark in (layout.quote, layout.escape) if mark]
        quote, escape = (re.escape(mark.encode()) for mark in (layout.quote, layout.escape))
        delimiter, comment = re.escape(layout.delimiter.encode()), re.escape(layout.comment.encode())
        # A quote opens a field only as its first character; after it closes, the rest of the field is literal.
        # Possessive throughout, so that an unclosed quote fails in one pass.
        escaped = rb"|%b(?s:.)" % escape if escape else b""
        rest = rb"(?:[^%b\r\n%b]++%b)*+" % (delimiter, escape, escaped)
        field = rest
        if quote:
            inner = rb"(?:[^%b%b]++|%b%b%b)*+" % (quote, escape, quote, quote, escaped)
            field = rb"(?:%b%b%b%b|(?!%b)%b)" % (quote, inner, quote, rest, quote, rest)
        fields = rb"%b(?:%b%b)*+" % (field, delimiter, field)
        line = rb"(?:%b[^\r\n]*+|%b)" % (comment, fields) if comment else fields
        return Grammar(
            re.compile(rb"[\r\n]*+(%b)(?:\r\n?+|\n)" % fields),
            re.compile(rb"(?:%b(?:\r\n?+|\n))*+" % line),
            tuple(mark[-1:] for mark in marks),
            layout.comment.encode(),
            re.compile(rb"(?:\A|(?<=[\r\n]))%b[^\r\n]*+" % comment),
            re.compile(rb"([\r\n]*+)(?:(%b[^\r\n]*+)|%b)(?:\r\n?+|\n)" % (comment, fields)),
        )

    def has_marks(self, content: bytes, start: int = 0, stop: int | None = None) -> bool:
        """Return whether a line break in the content need not end a record."""
        return any(content.find(mark, start, stop) >= 0 for mark in self.marks)

    def without_comments(self, content: bytes) -> bytes:
        """Return whole records with a blank line in place of each comment."""
        if not self.comment or self.comments.search(content) is None:
            return content
        if not self.has_marks(content):
            return self.comments.sub(b"", content)
        parts, end = [], 0
        for found in self.record_or_comment.finditer(content):
            if found[2] is not None:
                parts.append(content[end : found.start(2)])
                end = found.end(2)
        return b"".join([*parts, content[end:]])


@dataclass(frozen=True)
class Records:
    """Hold whole records, each with its line break, or a single line with an unclosed quote."""

    content: bytes
    lines_before: int
    grammar: Grammar
    unclosed: bool = False

    @cached_property
    def _spans(self) -> tuple[Offsets, Offsets]:
        spans = [found.span(1) for found in self.grammar.record.finditer(self.content)]
        starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
        filled = starts < ends
        return starts[filled], ends[filled]

    @property
    def rows(self) -> int:
        """Count the records, blank lines left out."""
        return len(self._spans[0])

    def part(self, first: int, last: int) -> "Records":
        """Give records first..last, last excluded."""
        starts, _ = self._spans
        begin = int(starts[first])
        end = int(starts[last]) if last < len(starts) else len(self.content)
        return replace(
            self, content=self.content[begin:end], lines_before=self.lines_before + self.content.count(b"\n", 0, begin)
        )

    @cached_property
    def _breaks(self) -> Offsets:
        return np.flatnonzero(np.frombuffer(self.content, np.uint8) == ord("\n")).astype(np.int64)

    def text(self, row: int) -> str:
        """Return a record, blank lines not counted, cut if it is long. Bytes outside of UTF-8 become replacement characters."""
        if self.unclosed:
            return raw_text(self.content.rstrip(b"\r\n"))
        starts, ends = self._spans
        return raw_text(self.content[starts[row] : ends[row]])

    def line(self, row: int) -> int:
        """Return the 1-based number of a record's first line."""
        start = 0 if self.unclosed else self._spans[0][row]
        # The line breaks before the record are the lines before it.
        return self.lines_before + 1 + int(np.searchsorted(self._breaks, start))


def read_records(
    source: str | bytes, path: str, layout: Layout, block_bytes: int, limit: int
) -> Iterator[Records | LongLine]:
    """Read a file in blocks of whole records, each of at most `limit` bytes, its break not counted. Comments are blank lines in them.

    If a longer one begins, its line comes alone: one with a quote that doesn't close within the limit, or before the
    end of the file; or a line that is too long itself, whose bytes are not held.
    """
    lines_before, grammar = 0, Grammar.of(layout)
    for content, unclosed in _cut(source, path, grammar, block_bytes, limit):
        if not isinstance(content, LongLine):
            yield Records(grammar.without_comments(content), lines_before, grammar, unclosed)
            lines_before += content.count(b"\n")
        elif not grammar.comment or not content.head.startswith(grammar.comment):
            yield replace(content, number=lines_before + 1)


def _cut(
    source: str | bytes, path: str, grammar: Grammar, block_bytes: int, limit: int
) -> Iterator[tuple[bytes | LongLine, bool]]:
    cutter = _Cutter(grammar, limit)
    with open_stream(source, path) as stream:
        for block in in_slices(read_blocks(stream, block_bytes), b"\r\n"):
            yield from cutter.feed(block)
    yield from cutter.end()


class _Cutter:
    """Cut what it is fed with into whole records."""

    def __init__(self, grammar: Grammar, limit: int) -> None:
        self._grammar, self._limit = grammar, limit
        self._rest = b""
        self._long: OpenLine | None = None

    def feed(self, block: bytes) -> Iterator[tuple[bytes | LongLine, bool]]:
        """Return the records that are complete so far."""
        if self._long is not None:
            line_break = _BREAK.search(block)
            self._long.add(block[: line_break.start()] if line_break else block)
            if not line_break:
                return
            yield self._long.past(), False
            self._long, block = None, block[line_break.start() :]
        yield from self._records(self._rest + block, ended=False)

    def end(self) -> Iterator[tuple[bytes | LongLine, bool]]:
        """Return the rest at the end of the file: the last record needs no line break."""
        if self._long is not None:
            yield self._long.past(), False
        elif self._rest:
            yield from self._records(self._rest + (b"" if self._rest.endswith(b"\n") else b"\n"), ended=True)

    def _records(self, content: bytes, *, ended: bool) -> Iterator[tuple[bytes | LongLine, bool]]:
        start = at = 0
        while at < len(content):
            if end := _records_end(self._grammar, content, at, at + self._limit + 1):
                at = end
                continue
            if len(content) - at <= self._limit and not ended:
                break
            if at > start:
                yield content[start:at], False
            line_break = _BREAK.search(content, at)
            line = content[at : line_break.start() if line_break else len(content)]
            start = at = line_break.end() if line_break else len(content)
            if len(line) <= self._limit:
                yield content[start - len(line) - len(line_break.group() if line_break else b"") : start], True
                continue
            long = OpenLine(self._limit)
            long.add(line)
            if line_break:
                # The break stays, as a blank line that counts.
                start = at = line_break.start()
                yield long.past(), False
            else:
                self._long = long
        if at > start:
            yield content[start:at], False
        self._rest = content[at:]


def _records_end(grammar: Grammar, content: bytes, at: int, stop: int) -> int:
    """Return the end of the last whole record from `at` on and before `stop`; 0 if there is none."""
    if not grammar.has_marks(content, at, stop):
        return content.rfind(b"\n", at, stop) + 1 or content.rfind(b"\r", at, stop) + 1
    whole_records = grammar.records.match(content, at, stop)
    return whole_records.end() if whole_records and whole_records.end() > at else 0


def first_record(records: Records) -> tuple[bytes, Records]:
    """Return the first non-blank record, and later records, with their line numbers."""
    for match in records.grammar.record.finditer(records.content):
        if match.group(1):
            lines = records.content.count(b"\n", 0, match.end())
            later = replace(records, content=records.content[match.end() :], lines_before=records.lines_before + lines)
            return match.group(1), later
    return b"", replace(records, content=b"")
