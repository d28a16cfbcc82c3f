"""JSON lines of equal layout, as one program writes them: values are cut out by place, and no line is parsed."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionlake.column_names import name_of, parts_of
from sessionlake.sources.decoding.lines import Lines

_CHUNK_LINES = 16_384
"""Lines that are looked at together: a few megabytes, which stay in the processor's cache."""
_QUOTE, _ZERO, _MINUS, _POINT, _FIRST_PRINTABLE = b'"0-. '
_MOST_DIGITS, _EXACT_DIGITS, _LONGEST_TEXT = 18, 15, 256
_MARGIN = _LONGEST_TEXT
_OPENING, _COMMA, _CLOSING = (re.compile(rb"\s*" + mark) for mark in (rb"\{", rb",", rb"\}"))
_NAME = re.compile(rb'\s*"[^"]*"\s*:')
_PAIR = re.compile(rb'(\s*"[^"]*"\s*:\s*)(?:("[^"]*")|-?\d+(?:\.\d+)?)(?=\s*[,}])')

_TYPES = {pa.string(): (str,), pa.int64(): (int,), pa.float64(): (int, float)}

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class _NotAlikeError(Exception):
    """A line has another layout, or has a value whose validity only a parser can check."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """All lines' common text: `before[i]` stands before value i, its opening quote included, and `end` after the last."""

    before: tuple[bytes, ...]
    end: bytes
    names: tuple[str, ...]
    texts: tuple[bool, ...]
    """Whether a value is text; else it is a number."""

    @property
    def quotes(self) -> int:
        """Count the quotes of a line; values hold none."""
        return sum(text.count(b'"') for text in (*self.before, self.end))


def read_alike(lines: Lines, schema: pa.Schema) -> pa.Table | None:
    """Read lines, which must be UTF-8, as Arrow's JSON reader does, but for int64, float64 and strings only.

    None if the lines are not all laid out as the first is, or if any value, asked for or not, is neither text without
    escapes nor a number of few digits without an exponent: such lines are for the reader.
    """
    if not len(lines) or not lines.braced.all() or any(kind not in _TYPES for kind in schema.types):
        return None
    try:
        layout = _layout(lines.content(0), schema)
        parts = [lines.part(at, at + _CHUNK_LINES) for at in range(0, len(lines), _CHUNK_LINES)]
        return pa.concat_tables([_read(part, layout, schema) for part in parts])
    except _NotAlikeError:
        return None


def _layout(line: bytes, schema: pa.Schema) -> _Layout:
    asked = {parts_of(field.name): _TYPES[field.type] for field in schema}
    above = {parts[:length] for parts in asked for length in range(1, len(parts))}
    scan = _Scan(line, asked, above)
    try:
        scan.walk(json.loads(line, object_pairs_hook=_Pairs), ())
    except (ValueError, RecursionError) as error:
        raise _NotAlikeError from error
    if b"\\" in line or not scan.names:
        raise _NotAlikeError
    return _Layout(tuple(scan.before), scan.pending + line[scan.at :], tuple(scan.names), tuple(scan.texts))


class _Pairs(list[tuple[str, Any]]):
    """An object's names and values."""


@dataclass
class _Scan:
    """The texts around the values of a line, in the order of the line."""

    line: bytes
    asked: dict[tuple[str, ...], tuple[type, ...]]
    """The Python types of the values that are asked for."""
    above: set[tuple[str, ...]]
    """The columns and fields with fields that are asked for."""
    at: int = 0
    pending: bytes = b""
    """The text since the last value."""
    before: list[bytes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    texts: list[bool] = field(default_factory=list)

    def walk(self, pairs: _Pairs, path: tuple[str, ...]) -> None:
        """Pass an object, from its brace to its brace."""
        if len({name for name, _ in pairs}) < len(pairs):
            raise _NotAlikeError
        self._pass(_OPENING)
        for number, (name, value) in enumerate(pairs):
            if number:
                self._pass(_COMMA)
            parts = (*path, name)
            if isinstance(value, _Pairs) and parts not in self.asked:
                self._pass(_NAME)
                self.walk(value, parts)
            elif parts in self.above:
                raise _NotAlikeError
            else:
                self._value(parts, value)
        self._pass(_CLOSING)

    def _pass(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self.line, self.at)
        if found is None:
            raise _NotAlikeError
        self.pending += found[0]
        self.at = found.end()

    def _value(self, parts: tuple[str, ...], value: object) -> None:
        pair = _PAIR.match(self.line, self.at)
        if pair is None or type(value) not in self.asked.get(parts, (str, int, float)):
            raise _NotAlikeError
        quote = b'"' * (pair[2] is not None)
        self.before.append(self.pending + pair[1] + quote)
        self.names.append(name_of(parts))
        self.texts.append(type(value) is str)
        self.pending, self.at = quote, pair.end()


def _read(lines: Lines, layout: _Layout, schema: pa.Schema) -> pa.Table:
    first = int(lines.starts[0])
    body = np.frombuffer(lines.block, np.uint8)[first : int(lines.ends[-1])]
    # With margins at both ends, a window of bytes may reach beyond any value.
    content = np.zeros(len(body) + 2 * _MARGIN, np.uint8)
    content[_MARGIN:-_MARGIN] = body
    starts, ends = lines.starts - first + _MARGIN, lines.ends - first + _MARGIN
    _check_bytes(content[_MARGIN:-_MARGIN], content, starts, ends)
    quotes = _quotes(content, starts, ends, layout.quotes)
    asked, found = {field.name: field.type for field in schema}, {}
    at, seen = starts, 0
    for i, (name, before, is_text) in enumerate(zip(layout.names, layout.before, layout.texts, strict=True)):
        _check_fixed(content, at, before)
        at, seen = at + len(before), seen + before.count(b'"')
        if is_text:
            until = quotes[:, seen]
            if name in asked:
                found[name] = _texts(content, at, until)
        else:
            last = i + 1 == len(layout.names)
            until = ends - len(layout.end) if last else quotes[:, seen] - layout.before[i + 1].index(b'"')
            number = _numbers(content, at, until, asked.get(name))
            if number is not None:
                found[name] = pa.array(number)
        at = until
    _check_fixed(content, at, layout.end)
    if not np.array_equal(at + len(layout.end), ends):
        raise _NotAlikeError
    columns = [found[f.name] if f.name in found else pa.nulls(len(lines), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _check_bytes(body: Bytes, content: Bytes, starts: Positions, ends: Positions) -> None:
    """Raise unless the lines hold neither escapes nor control characters, which stand between lines only."""
    between = starts[1:] - ends[:-1]
    outside = content[ends[:-1]], content[starts[1:] - 1]  # of a break of one or two bytes, all of them
    if (
        (body == ord("\\")).any()
        or between.max(initial=0) > 2
        or any(place.max(initial=0) >= _FIRST_PRINTABLE for place in outside)
        or np.count_nonzero(body < _FIRST_PRINTABLE) != between.sum()
    ):
        raise _NotAlikeError


def _quotes(content: Bytes, starts: Positions, ends: Positions, each: int) -> Positions:
    """Return the places of the quotes, a row for each line."""
    quote_places = np.flatnonzero(content == _QUOTE)
    if len(quote_places) != len(starts) * each:
        raise _NotAlikeError
    quotes = quote_places.reshape(len(starts), each)
    if (quotes[:, 0] < starts).any() or (quotes[:, -1] >= ends).any():
        raise _NotAlikeError
    return quotes


def _windows(content: Bytes, at: Positions, width: int) -> Bytes:
    """Return the `width` bytes from each place on, as rows."""
    window = np.ndarray((len(content) - width + 1,), f"V{width}", content, 0, (1,))
    return window[at].view(np.uint8).reshape(len(at), width)


def _check_fixed(content: Bytes, at: Positions, text: bytes) -> None:
    if len(text) > _MARGIN or _windows(content, at, len(text)).tobytes() != text * len(at):
        raise _NotAlikeError


def _texts(content: Bytes, at: Positions, until: Positions) -> pa.Array:
    lengths = until - at
    width = int(lengths.max())
    if width > _LONGEST_TEXT:
        raise _NotAlikeError
    rows = _windows(content, at, max(1, width))
    if lengths.min() < width:
        rows = rows[np.arange(width) < lengths[:, None]]
    elif not width:
        rows = rows[:, :0]
    offsets = np.zeros(len(at) + 1, np.int32)
    # Texts lie one after the other: each ends where the lengths so far do.
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())])


def _numbers(
    content: Bytes, at: Positions, until: Positions, kind: pa.DataType | None
) -> npt.NDArray[np.int64 | np.float64] | None:
    """Read numbers of so few digits that no precision is lost; None if `kind` is, since nobody asks for them.

    Raise if a number is not as JSON has it, or of another kind.
    """
    negative = content[at] == _MINUS
    first = at + negative
    lengths = until - first
    width = int(lengths.max())
    if lengths.min() < 1 or width > _MOST_DIGITS:
        raise _NotAlikeError
    rows = _windows(content, until - width, width)
    if lengths.min() < width:
        rows = np.where(np.arange(width) < (width - lengths)[:, None], _ZERO, rows)
    points = rows == _POINT
    decimals = _decimals(points, lengths) if points.any() else None
    padded = (content[first] == _ZERO) & (lengths > 1) & (content[first + 1] != _POINT)
    digits = rows - np.uint8(_ZERO)
    if padded.any() or ((digits > 9) & ~points).any() or (decimals is not None and kind == pa.int64()):
        raise _NotAlikeError
    if kind is None:
        return None
    value = np.zeros(len(at), np.int64)
    for column in range(width):
        shifted = value * 10 + digits[:, column]
        value = shifted if decimals is None else np.where(points[:, column], value, shifted)
    if kind == pa.int64():
        return np.where(negative, -value, value)
    # Both are exact, so that the quotient is the double nearest to the number.
    number = value if decimals is None else value / 10.0**decimals
    return np.where(negative, -1.0, 1.0) * number


def _decimals(points: npt.NDArray[np.bool_], lengths: Positions) -> Positions:
    """Return how many digits stand after the point, 0 if there is none; raise if there is none on both its sides."""
    width, each = points.shape[1], points.sum(axis=1)
    after = np.where(each > 0, width - 1 - points.argmax(axis=1), 0)
    if width > _EXACT_DIGITS + 1 or (each > 1).any() or ((each > 0) & ((after < 1) | (after > lengths - 2))).any():
        raise _NotAlikeError
    return after
