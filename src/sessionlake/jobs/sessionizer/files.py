"""A file of the source as rows: where it is one that may be read."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from sessionlake.errors import SourceError
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.sources.decoding.decode import Decoded, decode
from sessionlake.sources.decoding.decoded import Nowhere, bad_row
from sessionlake.sources.decoding.pieces import WHOLE, Piece

GONE = "file is gone: it was there when the batch was planned"
LINK = "file is a link out of the source's directory, which is not followed"
NO_FILE = "not a regular file"
_SCHEME = re.compile(r"^file:(//)?")
_GLOB = re.compile(r"[*?\[{]")


def file_rows(spec: SessionizerSpec, path: str, content: bytes | None, piece: Piece = WHOLE) -> Iterator[Decoded]:
    """Decode a local file or a part of it, or the content of a remote one; a file that may not be read is one error row."""
    if spec.format is None:
        raise SourceError("source.format: is missing; write 'json', 'csv' or 'parquet'")
    reason = refusal(path, spec.place or "/") if content is None else None
    if reason is None:
        source = path if content is None else content
        yield from decode(source, path, spec.format, spec.columns, spec.max_line_bytes, piece)
    elif piece.number == 0:
        yield gone_file(spec, path, reason)


def gone_file(spec: SessionizerSpec, path: str, reason: str = GONE) -> Decoded:
    """Return a file that can't be read as one error row."""
    return bad_row(reason, path, spec.columns, Nowhere())


def refusal(path: str, source: str) -> str | None:
    """Say why a local file is not read: who may write to the source must not make the driver read other files; else None."""
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(_root(source)):
        return LINK
    # To open a pipe would wait for a writer.
    return NO_FILE if os.path.exists(real) and not os.path.isfile(real) else None  # noqa: PTH110, PTH113 (a path per file read)


def local_path(uri: str) -> str:
    """Return a local path without its scheme."""
    return _SCHEME.sub("", uri)


def _root(source: str) -> str:
    """Return the real directory of a source path; of a pattern, the directory above the first part that is one."""
    parts = Path(local_path(source)).parts
    plain = next((i for i, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    return os.path.realpath(Path(*parts[:plain]))
