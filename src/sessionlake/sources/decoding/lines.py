"""Finding the lines of a block of text without looking at each in Python."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.sources.decoding.pieces import LineRange, in_file
from sessionlake.sources.decoding.rows import raw_text
from sessionlake.sources.decoding.whole import json_rows, slices

Offsets = npt.NDArray[np.int64]
_SPACES = b" \t\r"
_IS_SPACE = np.isin(np.arange(256), list(_SPACES))
_TRIM_STEPS = 16
_OPEN, _CLOSE = b"{}"


@dataclass(frozen=True, slots=True)
class Lines:
    """Hold the lines of `block` that aren't blank: line i is block[starts[i]:ends[i]], trimmed.

    `numbers` are their 1-based line numbers, blank lines counted; `braced` says whether a
    line begins and ends as a JSON object does; `lengths` has, by row, the bytes of lines that are too long to be looked
    at, which are not braced. It is an origin of decoded rows, row i being line i.
    """

    block: bytes
    starts: Offsets
    ends: Offsets
    numbers: Offsets
    braced: npt.NDArray[np.bool_]
    lengths: Mapping[int, int] = field(default_factory=dict)
    within: LineRange | None = None
    """The part of the file in which `numbers` count; None for the whole file."""

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, first: int, last: int) -> "Lines":
        """Give lines first..last, last excluded."""
        rows = slice(first, last)
        lengths = {row - first: length for row, length in self.lengths.items() if first <= row < last}
        columns = (self.starts[rows], self.ends[rows], self.numbers[rows], self.braced[rows])
        return Lines(self.block, *columns, lengths, self.within)

    def content(self, row: int) -> bytes:
        """Return a line's bytes."""
        return self.block[self.starts[row] : self.ends[row]]

    def text(self, row: int) -> str:
        """Return a line, cut if it is long. Bytes outside of UTF-8 become replacement characters."""
        return raw_text(self.content(row))

    def whole(self, at: Offsets) -> pa.Table:
        """Return some lines, which must be UTF-8, as the archive keeps them."""
        return json_rows(slices(self.block, self.starts[at], self.ends[at]))

    def line(self, row: int) -> int | None:
        """Return a line's 1-based number in its file; None if it is no longer known."""
        return in_file(int(self.numbers[row]), self.within)


def index_lines(
    block: bytes, lines_before: int, limit: int, within: LineRange | None = None, *, comment: bytes | None = None
) -> tuple[Lines, int]:
    """Find the lines of a block that ends with a line; also count all its lines, blank ones too.

    `lines_before` are the lines before it in the file, or in the part of it that it is `within`.

    A line of more than `limit` bytes, its break not counted, is too long. White space around JSON is trimmed. With
    `comment` the lines are text: nothing is trimmed but a carriage return before the break, and lines that begin with
    `comment` are left out, unless it is empty.
    """
    content = np.frombuffer(block, np.uint8)
    breaks = np.flatnonzero(content == ord("\n")).astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), breaks + 1])
    ends = np.append(breaks, len(block))
    if len(starts) and starts[-1] == len(block):
        starts, ends = starts[:-1], ends[:-1]
    numbers = np.arange(1, len(starts) + 1) + lines_before
    sizes = ends - starts
    longest = sizes.max(initial=0)
    if comment is None:
        _trim(block, content, starts, ends)
        filled = starts < ends
    else:
        filled = _trim_text(content, starts, ends, comment)
    first, last = content[starts[filled]], content[ends[filled] - 1]
    braced = (first == _OPEN) & (last == _CLOSE)
    lengths: dict[int, int] = {}
    if longest > limit:
        sizes = sizes[filled]
        long = np.flatnonzero(sizes > limit)
        lengths = dict(zip(long.tolist(), sizes[long].tolist(), strict=True))
        braced[long] = False
    return Lines(block, starts[filled], ends[filled], numbers[filled], braced, lengths, within), len(starts)


def index_values(values: pa.Array) -> Lines:
    """Lay binary values, none null, out as lines; blank ones too, so that line i is value i.

    A line break within a value becomes a tab: in JSON both are space between tokens, and neither may stand in a string.
    """
    count = len(values)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, count], values.cast(pa.binary())), b"\n")[0].as_buffer()
    block = joined.to_pybytes()
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    # Each value takes its length and a line break.
    ends = np.cumsum(lengths + 1) - 1
    starts = ends - lengths
    content = np.frombuffer(block, np.uint8)
    if block.count(b"\n") >= count or b"\r" in block:
        within = (content == ord("\n")) | (content == ord("\r"))
        within[ends[:-1]] = False
        content = np.where(within, np.uint8(ord("\t")), content)
        block = content.tobytes()
    _trim(block, content, starts, ends)
    filled = starts < ends
    braced = np.zeros(count, np.bool_)
    braced[filled] = (content[starts[filled]] == _OPEN) & (content[ends[filled] - 1] == _CLOSE)
    return Lines(block, starts, ends, np.arange(1, count + 1), braced)


def _trim_text(content: npt.NDArray[np.uint8], starts: Offsets, ends: Offsets, comment: bytes) -> npt.NDArray[np.bool_]:
    """Move ends before a carriage return; return which lines are neither empty nor a comment."""
    rows = np.flatnonzero(starts < ends)
    ends[rows] -= content[ends[rows] - 1] == ord("\r")
    begins = (starts + len(comment) <= ends) & bool(comment)
    for place, byte in enumerate(comment):
        rows = np.flatnonzero(begins)
        begins[rows] = content[starts[rows] + place] == byte
    return (starts < ends) & ~begins


def _trim(block: bytes, content: npt.NDArray[np.uint8], starts: Offsets, ends: Offsets) -> None:
    """Move starts and ends past JSON whitespace: all lines a step at a time, then the long ones alone."""
    rows = np.arange(len(starts))
    for _ in range(_TRIM_STEPS):
        rows = rows[starts[rows] < ends[rows]]
        head = _IS_SPACE[content[starts[rows]]]
        starts[rows[head]] += 1
        tail = _IS_SPACE[content[ends[rows] - 1]] & (starts[rows] < ends[rows])
        ends[rows[tail]] -= 1
        rows = rows[head | tail]
        if not len(rows):
            return
    for row in rows.tolist():
        line = block[starts[row] : ends[row]]
        starts[row] += len(line) - len(line.lstrip(_SPACES))
        ends[row] = starts[row] + len(line.strip(_SPACES))
