"""Opening a file or its content, decompressed, and reading it in blocks."""

from collections.abc import Iterator

import pyarrow as pa

from sessionlake.errors import SourceError

BOM = b"\xef\xbb\xbf"
# Small reads, so that of a truncated file almost all intact bytes are read.
_READ_BYTES = 256 << 10


def closed_to_us(source: str | bytes, error: OSError) -> SourceError:
    """Make the error of a local path that is missing or not permitted."""
    cause = "it doesn't exist" if isinstance(error, FileNotFoundError) else "permission denied"
    return SourceError(f"can't open {source!r}: {cause}. Check the source's path and its permissions.")


def codec_of(path: str) -> str | None:
    """Return how a file is compressed, by its name's suffix; None if it is not."""
    try:
        return str(pa.Codec.detect(path).name)
    except (ValueError, TypeError):
        return None


def open_stream(source: str | bytes, path: str) -> pa.NativeFile:
    """Open a local path, or the given content of `path`. The file name's ending says the compression.

    Raises SourceError when a local path is missing or not permitted, OSError when it is damaged.
    """
    codec = codec_of(source if isinstance(source, str) else path)
    try:
        plain = pa.OSFile(source) if isinstance(source, str) else pa.BufferReader(source)
    except (FileNotFoundError, PermissionError) as error:
        raise closed_to_us(source, error) from error
    return plain if codec is None else pa.CompressedInputStream(plain, codec)


def read_blocks(stream: pa.NativeFile, size: int, *, begins: bool = True) -> Iterator[bytes]:
    """Read blocks of about `size` bytes, if the stream begins with the file without a byte order mark.

    Bytes read before an OSError are yielded first, then the error is raised.
    """
    first = begins
    failure: OSError | None = None
    while failure is None:
        pieces, length = [], 0
        try:
            while length < size and (piece := stream.read(min(_READ_BYTES, size))):
                pieces.append(piece)
                length += len(piece)
        except OSError as error:
            failure = error
        if not pieces and failure is None:
            return
        block = b"".join(pieces)
        yield block.removeprefix(BOM) if first else block
        first = False
    raise failure
