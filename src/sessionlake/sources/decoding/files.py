"""Files of events, decoded if they may be read."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sessionlake.config.layouts import Format, Layout
from sessionlake.errors import SourceError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.csv_rows import decode_csv
from sessionlake.sources.decoding.decoded import BLOCK_BYTES, MAX_ROWS, Decoded, Nowhere, bad_row, unreadable
from sessionlake.sources.decoding.documents import decode_document
from sessionlake.sources.decoding.json_lines import decode_json
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES
from sessionlake.sources.decoding.parquet_rows import decode_parquet
from sessionlake.sources.decoding.pieces import WHOLE, Piece
from sessionlake.sources.decoding.rows import BATCH, Origin, Rows, no_text, rank_of
from sessionlake.sources.decoding.text_rows import decode_text

_FEW_BYTES, _FEW_ROWS = 256 << 10, 1000
"""Bytes of a text file, and rows of a Parquet file, decoded at once for a reader of a few rows."""


def decode(
    source: str | bytes,
    path: str,
    form: Layout | Format,
    columns: EventColumns,
    max_line_bytes: int = MAX_LINE_BYTES,
    piece: Piece = WHOLE,
    *,
    few: bool = False,
) -> Iterator[Decoded]:
    """Decode a local path, or the content of `path`, into typed rows in file order, block by block.

    A bad row is a row with an error, and so is a line of JSON or text, or a record of CSV, of more than `max_line_bytes`, which is
    read past; a file that can't be read (on) ends with one error row, its position the path alone. JSON, CSV and text may be
    compressed, by the suffix of the local path, or of `path` for content. Whatever the bytes are, nothing is raised but
    SourceError, for a local path that is missing or not permitted, for that may pass, and MemoryError.
    Of a local file that `pieces.parts_of` says may be cut, `piece` is the part to decode. With `few` the rows come in small
    parts, for a reader that needs the first ones only.
    """
    block_bytes, most_rows = (_FEW_BYTES, _FEW_ROWS) if few else (BLOCK_BYTES, MAX_ROWS)
    layout = Layout.of(form)
    try:
        if layout.format == "parquet":
            yield from decode_parquet(source, path, columns, piece, most_rows)
        elif layout.records:
            yield from decode_document(source, path, columns, layout, block_bytes, max_line_bytes)
        elif layout.format == "json":
            yield from decode_json(source, path, columns, block_bytes, max_line_bytes, piece)
        elif layout.format == "csv":
            yield from decode_csv(source, path, columns, block_bytes, max_line_bytes, layout)
        elif layout.format == "text":
            yield from decode_text(source, path, columns, layout, block_bytes, max_line_bytes, piece)
        else:
            raise SourceError(f"unknown format {layout.format!r}: write json, csv or parquet, or text for logs")
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 (whatever a file's bytes can make a parser raise)
        yield unreadable(path, columns, error)


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
    """Decode files of one layout; see `Decoder` for the methods."""

    columns: EventColumns
    layout: Layout | Format
    place: str
    """The source's path: local files are read only below it."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line of a text file is refused."""
    few: bool = False
    """Whether the reader needs the first rows only, so that they come in small parts."""

    def part(self, table: pa.Table) -> tuple[pa.Table, None]:
        """Return all: files hold no corrections."""
        return table, None

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield each file's rows, piece by piece."""
        for row in table.to_pylist():
            for decoded in self._decoded(**row):
                yield Rows(decoded.table, decoded.error, decoded.raw, decoded.position, whole=decoded.whole)

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield each file's rows, by the file's rank, by its part, and within a part as they stand."""
        del part
        for row in table.to_pylist():
            rank, piece = rank_of(files, row[PATH]), row.get(NUMBER) or 0
            for number, decoded in enumerate(self._decoded(**row)):
                origin = Origin(0, (rank, piece, number))
                yield Rows(decoded.table, decoded.error, decoded.raw, decoded.position, origin, whole=decoded.whole)

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield each file's rows with the batch that read it."""
        for row in table.to_pylist():
            batch_id = row.pop(BATCH)
            for decoded in self._decoded(**row):
                yield batch_id, Rows(decoded.table, decoded.error, no_text, no_text)

    def file_rows(self, path: str, content: bytes | None, piece: Piece = WHOLE) -> Iterator[Decoded]:
        """Decode a local file, a part of it, or a remote file's content; a file that may not be read is a single error row."""
        reason = refusal(path, self.place or "/") if content is None else None
        if reason is None:
            source = path if content is None else content
            yield from decode(source, path, self.layout, self.columns, self.max_line_bytes, piece, few=self.few)
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
