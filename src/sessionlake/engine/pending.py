"""Writes of batches that may or may not be committed, as files next to a shard's store."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from xxhash import xxh3_64

from sessionlake.config.paths import make_private
from sessionlake.errors import CorruptionError, StoreError
from sessionlake.store.layout import FORMAT

PENDING = ".pending"
"""Suffix of the directory, next to a store."""
_BASE, _CHECKSUM, _FORMAT = b"base", b"xxh3", b"format"
_OLDER_CHECKSUM = b"crc32"
"""That of files which a release before this one has left."""


class Pending:
    """One file a commit_id, of one shard."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, commit_id: str, base: str | None, writes: pa.Table) -> None:
        """Write the file durably: it is whole or absent. `base` is the store's commit that the writes build on."""
        marks = {_BASE: (base or "").encode(), _FORMAT: str(FORMAT).encode()}
        schema = writes.schema.with_metadata({**marks, _CHECKSUM: _checksum(writes, marks)})
        make_private(self._directory)
        temporary = self._directory / f"{commit_id}.{os.getpid()}.tmp"
        with temporary.open("wb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                writer.write_table(writes.replace_schema_metadata(schema.metadata))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path(commit_id))

    def read(self, commit_id: str, base: str | None) -> pa.Table | None:
        """Return the writes of a commit for a store at `base`; None if there are none.

        Raises CorruptionError if they are not as they were written, or of another format.
        """
        path = self._path(commit_id)
        try:
            writes = read_pending(path)
        except FileNotFoundError:
            return None
        except Exception as error:
            if getattr(error, "errno", None):
                raise StoreError(f"store: {str(path)!r} can't be read ({error}); mend that and start again") from error
            raise CorruptionError(f"store: {str(path)!r} is damaged ({error}); its store is restored") from error
        return writes if (writes.schema.metadata or {}).get(_BASE) == (base or "").encode() else None

    def clear(self) -> None:
        """Remove all files; StoreError if one stays."""
        try:
            if self._directory.exists():
                for file in self._directory.iterdir():
                    if file.suffix in (".arrow", ".tmp"):
                        file.unlink()
                self._directory.rmdir()
        except OSError as error:
            raise StoreError(
                f"store: {str(self._directory)!r} can't be removed ({error}); remove it and start again"
            ) from error

    def _path(self, commit_id: str) -> Path:
        return self._directory / f"{commit_id}.arrow"


def read_pending(path: Path) -> pa.Table:
    """Return the content of a pending file. If the file is damaged, any error of Arrow may be raised."""
    with pa.memory_map(str(path)) as source:
        writes = pa.ipc.open_file(source).read_all()
    writes.validate(full=True)
    marks = dict(writes.schema.metadata or {})
    checksum, older = marks.pop(_CHECKSUM, None), marks.pop(_OLDER_CHECKSUM, None)
    # Releases that wrote none had this format.
    format_ = marks.get(_FORMAT, b"1")
    if format_ != str(FORMAT).encode():
        raise pa.ArrowInvalid(f"format {format_.decode(errors='replace')}, not {FORMAT}")
    is_as_written = checksum is None or checksum == _checksum(writes, marks)
    if not is_as_written or (older is not None and older != _older_checksum(writes, marks)):
        raise pa.ArrowInvalid("its checksum is another one")
    return writes


def _checksum(writes: pa.Table, marks: dict[bytes, bytes]) -> bytes:
    digest = xxh3_64()
    for part in _parts(writes, marks):
        digest.update(part)
    return digest.hexdigest().encode()


def _older_checksum(writes: pa.Table, marks: dict[bytes, bytes]) -> bytes:
    crc = 0
    for part in _parts(writes, marks):
        crc = zlib.crc32(part, crc)
    return b"%08x" % crc


def _parts(writes: pa.Table, marks: dict[bytes, bytes]) -> Iterator[bytes | pa.Buffer]:
    """Yield all that a checksum is of."""
    yield repr(sorted(marks.items())).encode()
    for batch in writes.to_batches():
        yield batch.serialize()
