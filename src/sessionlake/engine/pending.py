"""Writes of batches that may or may not be committed, and the removal of stores, as files next to a shard's store.

Pending writes are a stream of Arrow, and its checksum. A job or a reader marks a store with bytes to erase or damaged bytes. The
stream removes marked stores.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64

from sessionlake.config.paths import make_private
from sessionlake.errors import CorruptionError, StoreError
from sessionlake.store.directory import remove_store
from sessionlake.store.disk_space import is_no_space, no_room, require_readable
from sessionlake.store.layout import EARLIER, FORMAT

PENDING = ".pending"
"""Suffix of the directory, next to a store."""
_BASE, _FORMAT, _SHARD, _COMMIT = b"base", b"format", b"shard", b"commit"
_CHECKSUM_BYTES = 8


class Pending:
    """A file for each commit_id, of the shard with which the directory's name begins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, commit_id: str, base: str | None, writes: pa.Table) -> None:
        """Write the file durably: it is whole or absent. `base` is the store's commit that the writes build on.

        DiskFullError or StoreError if it can't be written.
        """
        told = {_BASE: base or "", _FORMAT: str(FORMAT), _SHARD: self._directory.stem, _COMMIT: commit_id}
        with _naming(self._directory):
            self._write(commit_id, writes, writes.schema.with_metadata({k: text.encode() for k, text in told.items()}))

    def _write(self, commit_id: str, writes: pa.Table, schema: pa.Schema) -> None:
        make_private(self._directory)
        temporary = self._directory / f"{commit_id}.{os.getpid()}.tmp"
        with temporary.open("wb", buffering=0) as file:
            summed = _Summed(file)
            with pa.ipc.new_stream(summed, schema) as writer:
                writer.write_table(writes.replace_schema_metadata(schema.metadata))
            summed.end()
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
        told = writes.schema.metadata or {}
        # Earlier releases' files name neither shard nor commit.
        asked = {_SHARD: self._directory.stem.encode(), _COMMIT: commit_id.encode()}
        is_ours = all(told.get(name, value) == value for name, value in asked.items())
        return writes if is_ours and told.get(_BASE) == (base or "").encode() else None

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


@contextmanager
def _naming(directory: Path) -> Iterator[None]:
    """Convert errors of a write: DiskFullError if there is no room, else StoreError."""
    try:
        yield
    except OSError as error:
        if is_no_space(error):
            raise no_room(directory.parent) from error
        raise StoreError(f"store: {str(directory)!r} can't be written ({error}); mend that and start again") from error


class _Summed(io.RawIOBase):
    """A file that is written through a checksum."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._digest, self._file = xxh3_64(), file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self._put(data)
        return len(data)

    def end(self) -> None:
        """Write the checksum of everything written."""
        self._put(self._digest.digest())

    def _put(self, data: Any) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]


def read_pending(path: Path) -> pa.Table:
    """Return the content of a file. If the file is damaged, any error of Arrow may be raised."""
    with pa.memory_map(str(path)) as source:
        content = source.read_buffer()
    require_readable(np.frombuffer(content, np.uint8), path)
    size = max(content.size - _CHECKSUM_BYTES, 0)
    if xxh3_64(content[:size]).digest() != content[size:].to_pybytes():
        raise pa.ArrowInvalid("its checksum is another one")
    writes = pa.ipc.open_stream(content[:size]).read_all()
    format_ = (writes.schema.metadata or {}).get(_FORMAT, b"")
    if format_ not in [str(number).encode() for number in (FORMAT, *EARLIER)]:
        raise pa.ArrowInvalid(f"format {format_.decode(errors='replace')}, not {FORMAT}")
    return writes


FORGET = ".forget"
"""Suffix, next to a store, of a request to remove store and pending writes; its text is the cause."""
FORGOTTEN, CORRUPT = "forgotten", "corrupt"
"""Causes: a job has asked for it, or a reader has met damaged bytes."""


def mark(folder: Path, shard: int, cause: str = FORGOTTEN) -> None:
    """Ask for the removal of a shard's store, which is then restored from the tables: these must be rid of the rows before."""
    marker = folder / f"{shard}{FORGET}"
    if not marker.exists():
        marker.write_text(cause)


def cause_of(path: Path) -> str | None:
    """Return the cause for which a store is marked; None if it is not."""
    marker = path.with_suffix(FORGET)
    if not marker.exists():  # asked first, as it opens no file
        return None
    return CORRUPT if marker.read_bytes() == CORRUPT.encode() else FORGOTTEN  # marks of earlier releases are empty


def marked(folder: Path) -> list[int]:
    """Return the marked shards below a pipeline's store directory, ascending."""
    return sorted(int(path.stem) for path in folder.glob(f"*{FORGET}") if path.stem.isdigit())


def remove_marked(path: Path) -> str | None:
    """Remove a store and its pending writes if it is marked; return the cause, None if it was not. StoreError if a file can't be removed."""
    # The marker goes last, so that an interrupted removal is repeated.
    cause = cause_of(path)
    if cause is not None:
        erase_store(path)
    return cause


def erase_store(path: Path) -> None:
    """Remove a store, its pending writes and its marker, if present."""
    remove_store(path)
    Pending(path.with_suffix(PENDING)).clear()
    path.with_suffix(FORGET).unlink(missing_ok=True)


def remove_all_marked(folder: Path) -> int:
    """Remove the marked stores below a directory while no batch runs; return how many there were."""
    return sum(remove_marked(folder / str(shard)) is not None for shard in marked(folder))
