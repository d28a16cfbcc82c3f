"""JSON documents with a list of rows: elements are found by their brackets, and decoded as lines of JSON are."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.column_names import name_of, parts_of
from sessionlake.config.layouts import Layout
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import (
    BLOCK_BYTES,
    MAX_ROWS,
    Decoded,
    Origin,
    bad_row,
    one_line,
    unreadable,
)
from sessionlake.sources.decoding.json_lines import BAD_JSON, decode_lines
from sessionlake.sources.decoding.lines import Lines, index_values
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES, LongLine, OpenLine, too_long
from sessionlake.sources.decoding.pieces import open_stream, read_blocks
from sessionlake.sources.decoding.rows import raw_text
from sessionlake.sources.decoding.whole import slices

_BAD = "bad document: "
_ENDS = "it ends within the list"
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb'[^\s,:"{}\[\]]*+')
_PLAIN = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# Whole strings are passed over at once, so that Python looks at brackets only.
_FLAT = rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+'
_OUTSIDE = re.compile(_FLAT, re.DOTALL)
_USUAL_DEPTH = 8


def _nested(depth: int) -> bytes:
    within = rb"(?:%b%b)*+" % (_nested(depth - 1), _FLAT) if depth > 1 else b""
    return rb"[{\[]%b%b[}\]]" % (_FLAT, within)


# In a tenth of the time in which Python looks at each bracket.
_MEMBER = re.compile(rb"[ \t\r\n]*+(%b)[ \t\r\n]*+," % _nested(_USUAL_DEPTH), re.DOTALL)
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COMMA = (*b'"\\', b"{[", b"}]", ord(","))


def parts_of_path(records: str) -> tuple[str, ...]:
    """Return the names of a path, none for the document itself; ValueError in words for a text that is no path.

    >>> parts_of_path("data.items"), parts_of_path("`a.b`.items"), parts_of_path(".")
    (('data', 'items'), ('a.b', 'items'), ())
    """
    if records == ".":
        return ()
    try:
        return parts_of(records or "[")  # an empty name is no path either
    except ValueError as error:
        told = "write a name such as 'Records', a path such as 'data.items', or '.'"
        raise ValueError(f"{records!r} is no path; {told}") from error


class BrokenError(Exception):
    """The text is no JSON from here on, or there is no such list; the message says why."""


@dataclass
class _Value:
    """The place within a value, by its brackets and quotes."""

    is_scalar: bool = False
    depth: int = 0
    in_string: bool = False

    def feed(self, data: bytes, at: int) -> tuple[int, bool]:
        """Return where the value ends, and True; or where to go on once there is more text, and False."""
        if self.is_scalar:
            end = _SCALAR.match(data, at).end()  # type: ignore[union-attr]
            return end, end < len(data)
        while True:
            if self.in_string:
                at = _IN_STRING.match(data, at).end()  # type: ignore[union-attr]
                if at == len(data) or data[at] == _BACKSLASH:
                    return at, False
                at, self.in_string = at + 1, False
            else:
                at = _OUTSIDE.match(data, at).end() if self.depth else at  # type: ignore[union-attr]
                if at == len(data):
                    return at, False
                character, at = data[at], at + 1
                self.in_string = character == _QUOTE
                if not self.in_string:
                    self.depth += 1 if character in _OPEN else -1
            if not self.depth and not self.in_string:
                return at, True


@dataclass(frozen=True)
class _Rest:
    """What is left of a document, as an origin of a row."""

    content: OpenLine
    number: int | None

    def text(self, row: int) -> str | None:
        """Return the text, cut if it is long."""
        if self.content.is_long:
            return self.content.past().text(row)
        return raw_text(self.content.whole().lstrip(b", \t\r\n")) or None

    def line(self, _row: int) -> int | None:
        """Return the number of the element that it begins with, if it is in the list."""
        return self.number


@dataclass
class Document:
    """A document that is read once, block by block: in memory are a block, and an element of at most `limit` bytes."""

    blocks: Iterator[bytes]
    path: tuple[str, ...]
    limit: int
    number: int = 0
    """The number of elements so far."""
    in_list: bool = False
    _data: bytes = b""
    _at: int = 0
    _left: int = 0
    """The begin of the text that is in no element so far."""
    _long: OpenLine | None = None
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _ready: list[Lines | LongLine] = field(default_factory=list)

    def elements(self) -> Iterator[Lines | LongLine]:
        """Yield the elements of the list, numbered from 1 on; BrokenError or OSError once those before a break were yielded."""
        try:
            if self._next() is None:
                return
            yield from self._within(self.path)
            if self._next() is not None:
                raise BrokenError("there is more text behind it")
        except (BrokenError, OSError):
            self._flush()
            yield from self._taken()
            raise

    def rest(self, lines: Lines | None = None, row: int = 0) -> Origin:
        """Return what is left of the text, from a row of the lines that were yielded last on; reads to the end."""
        rest = self._long or OpenLine(self.limit)
        number = self.number + 1
        if lines is not None:
            number = int(lines.numbers[row])
            rest.add(b",".join(lines.content(index) for index in range(row, len(lines))))
        # Elements that were found since then wait in memory.
        left = self._spans[0][0] if self._spans else self._left if self.in_list else self._at
        text = self._data[left:]
        rest.add(b"," + text if self._spans and lines is not None else text)
        try:
            for block in self.blocks:
                rest.add(block)
        except OSError:
            pass  # what can't be read is left out
        return _Rest(rest, number if self.in_list else None)

    def find_lists(self, at: str, found: dict[str, int]) -> None:
        """Add the size of each list of objects at a path or below it, outside of other lists; BrokenError at the end of the text."""
        character = self._next(_ENDS)
        start = self._at
        if character == _OPEN[1]:
            self._at += 1
            if self._next(_ENDS) == _OPEN[0]:
                found[at or "."] = len(self._data) - start
            self._at = start
            self._skip()
            if at in found:
                found[at] = self._at - start
            return
        if character != _OPEN[0]:
            self._skip()
            return
        self._at += 1
        more = self._next(_ENDS) != _CLOSE[0]
        while more:
            name = self._name()
            self.find_lists(f"{at}.{name_of([name])}" if at else name_of([name]), found)
            more = self._next(_ENDS) == _COMMA
            self._at += more
        self._expect(b"}", _ENDS)

    def _within(self, path: tuple[str, ...]) -> Iterator[Lines | LongLine]:
        """Yield the elements of the list at a path below the value that begins here."""
        above = ".".join(self.path[: len(self.path) - len(path)])
        named = repr(above) if above else "it"
        if not path:
            self._expect(b"[", f"{named} is no list")
            yield from self._list()
            return
        self._expect(b"{", f"{named} is no object")
        seen, more = False, self._next() != _CLOSE[0]
        while more:
            if (name := self._name()) != path[0]:
                self._skip()
            elif seen:
                raise BrokenError(f"{name!r} is there twice")
            else:
                seen = True
                yield from self._within(path[1:])
            more = self._next() == _COMMA
            self._at += more
        self._expect(b"}", "a comma or a bracket is missing")
        if not seen:
            raise BrokenError(f"there is no {'.'.join(self.path)!r}")

    def _list(self) -> Iterator[Lines | LongLine]:
        self.in_list, self._left = True, self._at
        more = self._next() != _CLOSE[1]
        while more:
            self._usual_elements()
            self._element()
            more = self._next(_ENDS) == _COMMA
            self._at += more
            if len(self._spans) >= MAX_ROWS:
                self._flush()
            yield from self._taken()
        self._expect(b"]", "a comma or a bracket is missing")
        self._flush()
        yield from self._taken()
        self.in_list = False

    def _usual_elements(self) -> None:
        """Go behind elements that are in memory as a whole, each with a comma."""
        while len(self._spans) < MAX_ROWS and (found := _MEMBER.match(self._data, self._at)) is not None:
            start, end = found.span(1)
            if end - start > self.limit:
                return
            self._spans.append((start, end))
            self.number += 1
            self._left, self._at = end, found.end()

    def _element(self) -> None:
        """Find the end of an element; its text stays until it is yielded, unless it is too long."""
        start, value = self._begin()
        while not self._fed(value):
            if self._long is not None or self._at - start > self.limit:
                self._long = self._long or OpenLine(self.limit)
                self._long.add(self._data[start : self._at])
                start = self._left = self._at
            self._read_on(start, "it ends within an element")
            start = 0
        is_long = self._long is not None or self._at - start > self.limit
        if is_long:
            self._flush()
        self.number += 1
        if is_long:
            long = self._long or OpenLine(self.limit)
            long.add(self._data[start : self._at])
            self._ready.append(replace(long.past(), number=self.number))
            self._long = None
        else:
            self._spans.append((start, self._at))
        self._left = self._at

    def _skip(self) -> None:
        """Go behind a value that is not read; BrokenError for a word that is no value."""
        start, value = self._begin()
        while not self._fed(value):
            kept = start if value.is_scalar else self._at
            self._read_on(kept, "it ends within a value")
            start = 0
        if value.is_scalar and not _PLAIN.fullmatch(self._data, start, self._at):
            raise BrokenError(f"{_shown(self._data[start : self._at])} is no value")

    def _name(self) -> str:
        """Go behind the name of a member and its colon; return the name."""
        if self._next() != _QUOTE:
            raise BrokenError("a name in double quotes is missing")
        start, value = self._at, _Value()
        while not self._fed(value):
            if self._at - start > self.limit:
                raise BrokenError("a name is too long")
            self._read_on(start, "it ends within a name")
            start = 0
        text = self._data[start : self._at]
        self._expect(b":", "a colon is missing")
        try:
            return str(json.loads(text))
        except ValueError as error:
            raise BrokenError(one_line(error)) from error

    def _begin(self) -> tuple[int, _Value]:
        character = self._next(_ENDS)
        if character is None or character in b",:}]":
            raise BrokenError("a value is missing")
        return self._at, _Value(is_scalar=character not in b'"{[')

    def _fed(self, value: _Value) -> bool:
        self._at, ended = value.feed(self._data, self._at)
        return ended

    def _expect(self, character: bytes, told: str) -> None:
        if self._next() != character[0]:
            raise BrokenError(told)
        self._at += 1

    def _next(self, ends: str | None = None) -> int | None:
        """Go to the next byte that is no white space, and return it; at the end None, or BrokenError if `ends` says why it can't be."""
        while (at := _SPACE.match(self._data, self._at).end()) == len(self._data):  # type: ignore[union-attr]
            self._at = at
            if not self._more(at):
                if ends is not None:
                    raise BrokenError(ends)
                return None
        self._at = at
        return self._data[at]

    def _read_on(self, kept: int, told: str) -> None:
        if not self._more(kept):
            raise BrokenError(told)

    def _more(self, kept: int) -> bool:
        """Read a block on, and forget the text before `kept`; return whether there was one."""
        self._flush()
        block = next(self.blocks, None)
        self._data = self._data[kept:] + (block or b"")
        self._at, self._left = self._at - kept, max(0, self._left - kept)
        return block is not None

    def _flush(self) -> None:
        """Make the elements in the text ready to be yielded."""
        if self._spans:
            starts, ends = np.array(self._spans, np.int64).T
            lines = index_values(slices(self._data, starts, ends))
            self._ready.append(replace(lines, numbers=lines.numbers + self.number - len(starts)))
            self._spans = []

    def _taken(self) -> Iterator[Lines | LongLine]:
        ready, self._ready = self._ready, []
        yield from ready


def _shown(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))


def lists_in(head: bytes) -> dict[str, int]:
    """Return, by path, the lists of objects in the begin of a document, and how many bytes of it each has."""
    found: dict[str, int] = {}
    with suppress(BrokenError, RecursionError):
        Document(iter((head,)), (), len(head)).find_lists("", found)
    return found


def document(source: str | bytes, path: str, layout: Layout, block_bytes: int, limit: int = MAX_LINE_BYTES) -> Document:
    """Open a file as a document."""
    return Document(_blocks(source, path, block_bytes), parts_of_path(layout.records), limit)


def element_texts(source: str | bytes, path: str, layout: Layout | None, limit: int) -> Iterator[pa.Array]:
    """Yield the texts of a document's elements, cut if they are long, and of what follows a break."""
    if layout is None:
        return
    found = document(source, path, layout, BLOCK_BYTES, limit)
    try:
        for lines in found.elements():
            count = 1 if isinstance(lines, LongLine) else len(lines)
            yield pa.array([lines.text(row) for row in range(count)], pa.string())
    except BrokenError:
        yield pa.array([found.rest().text(0)], pa.string())


def _blocks(source: str | bytes, path: str, block_bytes: int) -> Iterator[bytes]:
    with open_stream(source, path) as stream:
        yield from read_blocks(stream, block_bytes)


def decode_document(
    source: str | bytes,
    path: str,
    columns: EventColumns,
    layout: Layout,
    block_bytes: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Decoded]:
    """Decode the elements of a document's list; each is a row, bad or not, and what follows a break is one bad row."""
    found = document(source, path, layout, block_bytes, max_line_bytes)
    try:
        for lines in found.elements():
            if isinstance(lines, LongLine):
                yield bad_row(too_long(lines.length, max_line_bytes), path, columns, lines)
                continue
            for part in decode_lines(lines, path, columns, max_line_bytes):
                row, reason = _broken(part)
                yield replace(part, table=part.table[:row], error=part.error[:row])
                if reason is not None:
                    first = int(part.origin.numbers[row] - lines.numbers[0]) if isinstance(part.origin, Lines) else 0
                    yield bad_row(f"{_BAD}{reason}", path, columns, found.rest(lines, first))
                    return
    except BrokenError as error:
        yield bad_row(f"{_BAD}{error}", path, columns, found.rest())
    except OSError as error:
        yield unreadable(path, columns, error)


def _broken(part: Decoded) -> tuple[int, str | None]:
    """Return the first row that is no JSON at all, so that rows behind it may begin anywhere, and why; without such a row the number of rows."""
    if part.error.null_count == len(part.error) or not isinstance(part.origin, Lines):
        return len(part.error), None
    for row in pc.indices_nonzero(pc.fill_null(pc.starts_with(part.error, BAD_JSON), fill_value=False)).to_pylist():
        try:
            json.loads(part.origin.content(row).decode(errors="replace"))
        except RecursionError:
            continue
        except ValueError as error:
            return row, one_line(error)
    return len(part.error), None
