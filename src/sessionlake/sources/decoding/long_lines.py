"""Lines longer than a limit: their bytes are counted and hashed as they come, never held."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from sessionlake.sources.decoding.pieces import LineRange, in_file
from sessionlake.sources.decoding.rows import MAX_RAW_BYTES, cut_text, raw_text

MAX_LINE_BYTES = 16 << 20
"""Default of source.max_line_bytes."""
_MANY_LINES = 1_000_000
_SLICE_BYTES = 1 << 20


def too_long(length: int, limit: int) -> str:
    """Return the reason of a line beyond the limit."""
    return f"line too long: {length} bytes, source.max_line_bytes is {limit}"


@dataclass(frozen=True, slots=True)
class LongLine:
    """A skipped line; a row's origin."""

    head: bytes
    length: int
    sha256: str
    number: int = 0
    """The line's 1-based number in its file, or in the read part of it."""
    part: LineRange | None = None

    def text(self, _row: int) -> str:
        """Return the line's begin, length and hash."""
        return raw_text(self.head) if self.length <= MAX_RAW_BYTES else cut_text(self.head, self.length, self.sha256)

    def line(self, _row: int) -> int | None:
        """Return the line's number in its file; None if it is no longer known."""
        return in_file(self.number, self.part)


@dataclass
class OpenLine:
    """A line whose end has not been read yet: held as long as it is not longer than `limit` bytes."""

    limit: int
    length: int = 0
    _pieces: list[bytes] = field(default_factory=list)
    _head: bytes = b""
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    @property
    def is_long(self) -> bool:
        """Whether the line is too long by now, and its bytes are gone."""
        return self.length > self.limit

    def add(self, piece: bytes) -> None:
        """Go on with the line."""
        self.length += len(piece)
        self._pieces.append(piece)
        if self.is_long:
            self._head = (self._head + b"".join(p[:MAX_RAW_BYTES] for p in self._pieces))[:MAX_RAW_BYTES]
            for held in self._pieces:
                self._digest.update(held)
            self._pieces = []

    def whole(self, end: bytes = b"") -> bytes:
        """Return the line, which is not too long, and the bytes after it."""
        return b"".join([*self._pieces, end])

    def past(self) -> LongLine:
        """Return the known part of a line beyond the limit."""
        return LongLine(self._head, self.length, self._digest.hexdigest())


def in_slices(blocks: Iterable[bytes], breaks: bytes = b"\n") -> Iterator[bytes]:
    """Cut blocks with very many lines, anywhere: the data kept for each line must not be much larger than the block."""
    for block in blocks:
        # In a third of the time of bytes.count, which stops at each.
        content = np.frombuffer(block, np.uint8)
        many = any(np.count_nonzero(content == end) > _MANY_LINES for end in breaks)
        step = _SLICE_BYTES if many else max(1, len(block))
        for at in range(0, len(block), step):
            yield block[at : at + step]
