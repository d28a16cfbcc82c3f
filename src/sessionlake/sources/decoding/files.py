"""Files of events, decoded if they are ones that may be read."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sessionlake.config.sources import Format
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decode import Decoded, decode
from sessionlake.sources.decoding.decoded import Nowhere, bad_row
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES
from sessionlake.sources.decoding.pieces import WHOLE, Piece
from sessionlake.sources.decoding.rows import BATCH, Origin, Rows, no_text, rank_of

PATH, CONTENT, NUMBER, PARTS = "path", "content", "number", "parts"
"""A row of a source of files: a file's path, its content if workers can't open the path, the number of one part of the file,
and the number of parts. The last two exist only in batches with files in parts, or with files that are gone since the batch
was planned. A file that is gone has 0 parts."""
GONE = "file is gone: it was there when the batch was planned"
LINK = "a link in the source's directory, which is not followed"
NO_FILE = "not a regular file"
_SCHEME = re.compile(r"^file:(//)?")


@dataclass(frozen=True)
class FileDecoder:
    """Decode files of one format; see `Decoder` for the methods."""

    columns: EventColumns
    format: Format
    place: str
    """The source's path: local files are read only below it."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A line of a text file that is longer is refused."""
    few: bool = False
    """Whether the reader needs the first rows only, so that they come in small parts."""

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: files hold no corrections."""
        return table, None

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield each file's rows, piece by piece."""
        for row in table.to_pylist():
            for found in self._decoded(**row):
                yield Rows(found.table, found.error, found.raw, found.position, whole=found.whole)

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield each file's rows, ordered by the file's rank, the part of the file, and within that as they stand."""
        del part
        for row in table.to_pylist():
            rank, piece = rank_of(files, row[PATH]), row.get(NUMBER) or 0
            for number, found in enumerate(self._decoded(**row)):
                origin = Origin(0, (rank, piece, number))
                yield Rows(found.table, found.error, found.raw, found.position, origin, whole=found.whole)

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield each file's rows with the batch that read it."""
        for row in table.to_pylist():
            batch_id = row.pop(BATCH)
            for found in self._decoded(**row):
                yield batch_id, Rows(found.table, found.error, no_text, no_text)

    def file_rows(self, path: str, content: bytes | None, piece: Piece = WHOLE) -> Iterator[Decoded]:
        """Decode a local file or a part of it, or the content of a remote one; a file that may not be read is one error row."""
        reason = refusal(path, self.place or "/") if content is None else None
        if reason is None:
            source = path if content is None else content
            yield from decode(source, path, self.format, self.columns, self.max_line_bytes, piece, few=self.few)
        elif piece.number == 0:
            yield bad_row(reason, path, self.columns, Nowhere())

    def _decoded(self, path: str, content: bytes | None = None, number: int = 0, parts: int = 1) -> Iterator[Decoded]:
        if parts == 0:
            yield bad_row(GONE, path, self.columns, Nowhere())
        else:
            yield from self.file_rows(path, content, Piece(number, parts))


def is_local(path: str) -> bool:
    """Say whether workers can open the path themselves."""
    return "://" not in path or path.startswith("file://")


def refusal(path: str, source: str) -> str | None:
    """Say why a local file is not read: who may write to the source must not make the driver read other files; else None."""
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(os.path.realpath(base_of(source))) or first_link(path, source) is not None:
        return LINK
    # To open a pipe would wait for a writer.
    return NO_FILE if os.path.exists(real) and not os.path.isfile(real) else None  # noqa: PTH110, PTH113 (a path per file read)


def local_path(uri: str) -> str:
    """Return a local path without its scheme."""
    return _SCHEME.sub("", uri)


def first_link(path: str, source: str) -> str | None:
    """Return the first link on the way from a source's directory, which may itself be one, to a local file; None if there is none."""
    at, below = base_of(source), Path(path)
    for part in below.relative_to(at).parts if below.is_relative_to(at) else ():
        at /= part
        if at.is_symlink():
            return str(at)
    return None


def base_of(source: str) -> Path:
    """Return a local source's directory."""
    return Path(local_path(source))
