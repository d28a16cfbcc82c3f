"""Decode one event file of any format."""

from collections.abc import Iterator

from sessionlake.errors import SourceError
from sessionlake.source_config import Format
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.csv_rows import decode_csv
from sessionlake.sources.decoded import Decoded
from sessionlake.sources.json_lines import decode_json
from sessionlake.sources.parquet_rows import decode_parquet

__all__ = ["Decoded", "decode"]

_DECODERS = {"json": decode_json, "csv": decode_csv, "parquet": decode_parquet}


def decode(source: str | bytes, path: str, format: Format, columns: EventColumns) -> Iterator[Decoded]:  # noqa: A002
    """Decode a local path, or the content of `path`, into typed rows in file order, block by block.

    A bad row is a row with an error; a file that can't be read (on) ends with one error row, its position
    the path alone. JSON and CSV may be compressed, by the suffix of the local path, or of `path` for
    content. Raises SourceError for a local path that is missing or not permitted, for that may pass.
    """
    try:
        decoder = _DECODERS[format]
    except KeyError:
        raise SourceError(f"unknown format {format!r}: write json, csv or parquet") from None
    yield from decoder(source, path, columns)
