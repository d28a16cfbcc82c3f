"""Decode one event file of any format."""

from collections.abc import Iterator

from sessionlake.config.sources import Format
from sessionlake.errors import SourceError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.csv_rows import decode_csv
from sessionlake.sources.decoding.decoded import BLOCK_BYTES, MAX_ROWS, Decoded, unreadable
from sessionlake.sources.decoding.json_lines import decode_json
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES
from sessionlake.sources.decoding.parquet_rows import decode_parquet
from sessionlake.sources.decoding.pieces import WHOLE, Piece

__all__ = ["Decoded", "decode"]
_FEW_BYTES, _FEW_ROWS = 256 << 10, 1000
"""The bytes of a text file, and the rows of a Parquet file, that are decoded at once for a reader of a few rows."""


def decode(
    source: str | bytes,
    path: str,
    format: Format,  # noqa: A002
    columns: EventColumns,
    max_line_bytes: int = MAX_LINE_BYTES,
    piece: Piece = WHOLE,
    *,
    few: bool = False,
) -> Iterator[Decoded]:
    """Decode a local path, or the content of `path`, into typed rows in file order, block by block.

    A bad row is a row with an error, and so is a line of JSON or a record of CSV of more than `max_line_bytes`, which is
    read past; a file that can't be read (on) ends with one error row, its position the path alone. JSON and CSV may be
    compressed, by the suffix of the local path, or of `path` for content. Whatever the bytes are, nothing is raised but
    SourceError, for a local path that is missing or not permitted, for that may pass, and MemoryError.
    Of a local file that `pieces.parts_of` says may be cut, `piece` is the part to decode. With `few` the rows come in small
    parts, for a reader that needs the first ones only.
    """
    block_bytes, most_rows = (_FEW_BYTES, _FEW_ROWS) if few else (BLOCK_BYTES, MAX_ROWS)
    try:
        if format == "parquet":
            yield from decode_parquet(source, path, columns, piece, most_rows)
        elif format == "json":
            yield from decode_json(source, path, columns, block_bytes, max_line_bytes, piece)
        elif format == "csv":
            yield from decode_csv(source, path, columns, block_bytes, max_line_bytes)
        else:
            raise SourceError(f"unknown format {format!r}: write json, csv or parquet")
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 (whatever a file's bytes can make a parser raise)
        yield unreadable(path, columns, error)
