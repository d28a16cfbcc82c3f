"""A store's directory: made for its owner only, marked as ours, and removed file by file, so that nothing else goes with it.

A damaged store is removed without asking, since it is a cache. But a user wrote the path `pipeline.store`, so only directories
that are certainly ours may be removed.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sessionlake.config.paths import make_private
from sessionlake.errors import CorruptionError, LayoutError, StoreError, StoreHeldError
from sessionlake.store.disk_space import disk_full, is_full
from sessionlake.store.layout import EARLIER, FORMAT

MARKER = "SESSIONLAKE"
"""The file that marks a directory as our store: JSON of the pipeline's name and the format of the bytes."""
STANDALONE = "SESSIONLAKE-STORE"
"""The file that marks a store of `sessionlake.stores`. It is its user's and no cache, so it is never removed."""
ROCKSDB_FORMAT = 1
"""The format of RocksDB's stores, also of stores older than the marker. It changes with the bytes of their values."""
_NO_STORE = "none"
"""In the place of a format: a store was removed, other files are left, and another store may be made here."""
LOCK = "LOCK"
"""The file that a process has locked while it has the store open."""
CURRENT = "CURRENT"
"""The file that says which runs count."""
IDENTITY = "IDENTITY"
"""A file that is written only if a store is made."""
RUN = re.compile(r"([0-9a-f]{16}-)?\d+\.run")
"""The names of files of keys and values: their writer, a random word, and a number. Format 3 has the number alone."""
_ATTEMPTS = 20
_ROCKSDICT = "rocksdict-config.json"
_FILES = re.compile(
    rf"{MARKER}(\.\d+\.tmp)?|{CURRENT}(\.tmp)?|{IDENTITY}|{LOCK}|{RUN.pattern}"
    # RocksDB's files.
    rf"|{_ROCKSDICT}|LOG(\.old\.\d+)?"
    r"|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.(sst|log|blob|dbtmp)(\.trash)?"
)


def claim(path: Path, of_format: int = FORMAT, earlier: Collection[int] = ()) -> int:
    """Make the directory of a store if it is not there, and mark it; the directory above names the pipeline. Return its format.

    Raises LayoutError if the store's bytes are of another format than this or earlier ones, and StoreError for a directory that is
    neither empty nor a store: it may be anything, and a store that must be restored is removed.
    """
    make_private(path)
    if not (path / MARKER).exists():
        _mark(path, ROCKSDB_FORMAT if _is_unmarked_store(path) else of_format)
    format_ = _format(path)
    if format_ == _NO_STORE:
        _mark(path, of_format)
        return of_format
    if not isinstance(format_, int) or format_ not in (of_format, *earlier):
        raise LayoutError(f"store: {str(path)!r} has format {format_}, not {of_format}; it is removed and restored")
    return format_


def hold(path: Path, of_format: int = FORMAT, earlier: Collection[int] = EARLIER) -> int:
    """Claim a shard's store directory and take its lock; return the open file that has the lock until it is closed.

    A store of an earlier format is marked as one of `of_format`. Raises StoreHeldError if another process has the lock, and the
    errors of `claim`.
    """
    for _ in range(_ATTEMPTS):
        # If another process removes the store meanwhile, it is made again.
        with suppress(FileNotFoundError):
            claim(path, of_format, earlier)
            file = _lock(path)
            try:
                if claim(path, of_format, earlier) != of_format:
                    _mark(path, of_format)
            except BaseException:
                os.close(file)
                raise
            return file
    raise StoreHeldError(f"store: {str(path)!r} is removed again and again by another process; stop that one")


def remove_store(path: Path) -> None:
    """Remove a store, if it exists; files that do not belong to a store stay.

    Raises StoreHeldError if a process has it open, and StoreError if the directory is not a store or if any of
    it can't be removed, because new writes must not mix with the remains of an old store.
    """
    try:
        if not path.exists():
            return
        _is_unmarked_store(path)
        with _locked(path):
            if empty(path):
                (path / MARKER).unlink(missing_ok=True)
            else:
                _mark(path, _NO_STORE)
            # Last, so that whoever waits for the lock finds all of the store or none.
            (path / LOCK).unlink(missing_ok=True)
        try:
            path.rmdir()
        except OSError as error:
            # Foreign files stay. And another process may have begun a store there, or have removed it, too.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
    except OSError as error:
        if not path.exists():  # another process has removed it, too
            return
        raise StoreError(f"store: {str(path)!r} can't be removed ({error}); remove it and start again") from error


def empty(path: Path) -> bool:
    """Remove the files of a store whose lock is held, but for the lock and the marker; say whether there are no others.

    Whenever it is interrupted, the rest is a whole store or an empty one.
    """
    names = _names(path)
    # Readers find by the identity that the store has gone, and without `CURRENT` no run counts.
    for name in (IDENTITY, CURRENT, *sorted(names - {IDENTITY, CURRENT, MARKER, LOCK})):
        if _FILES.fullmatch(name):
            (path / name).unlink(missing_ok=True)
    return all(map(_FILES.fullmatch, names))


@contextmanager
def mark_damage(path: Path) -> Iterator[None]:
    """Convert RocksDB's errors: CorruptionError if the store's bytes are damaged, else StoreError."""
    # A store is removed only for CorruptionError. Too many open files, a full disk or missing rights do not damage its bytes.
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        text = str(error)
        if is_full(text, path):
            raise disk_full(path) from error
        if is_damage(text, path):
            raise CorruptionError(f"store: {str(path)!r} is damaged ({text}); it is removed and restored") from error
        raise (StoreHeldError if is_held(text) else StoreError)(
            f"store: {str(path)!r} can't be used ({text}); mend that, or stop the process that holds it, and start again"
        ) from error


def is_held(text: str) -> bool:
    """Say whether a message of RocksDB's means that the database is open already."""
    return any(f"{LOCK}: {os.strerror(number)}" in text for number in (errno.EAGAIN, errno.ENOLCK))


def is_damage(text: str, path: Path) -> bool:
    """Say whether a message of RocksDB means that bytes or files of the store are damaged."""
    if any(os.strerror(number) in text for number in errno.errorcode if number not in _ERRORS_OF_DAMAGE):
        return False
    missing = os.strerror(errno.ENOENT) in text and f"{path}/" in text
    # An empty file can't be mapped: after a power loss a file may have its name without its bytes.
    empty = "while mmap file for read" in text and os.strerror(errno.EINVAL) in text
    return "Corruption: " in text or missing or empty or "larger than file length" in text


_ERRORS_OF_DAMAGE = (errno.ENOENT, errno.EINVAL)
"""The operating system's messages for missing or truncated files of a store. Its other messages concern the machine."""


def format_in(path: Path) -> object:
    """Return the format of the store in a directory; None if there is none, or its marker can't be read."""
    try:
        return _format(path)
    except (FileNotFoundError, NotADirectoryError):
        return ROCKSDB_FORMAT if (path / _ROCKSDICT).exists() else None


def _mark(path: Path, format_: int | str) -> None:
    """Write the marker, whole or not at all."""
    temporary = path / f"{MARKER}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps({"pipeline": path.parent.name, "format": format_}))
    temporary.replace(path / MARKER)


def _names(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def _format(path: Path) -> object:
    """Return the format that the marker names; None, which is no valid format, if it can't be read."""
    try:
        return json.loads((path / MARKER).read_text())["format"]
    except (ValueError, KeyError, TypeError):
        return None


def _is_unmarked_store(path: Path) -> bool:
    """Say whether a directory is a store without a marker; False if it is empty or has one, StoreError if it is no store."""
    names = {name for name in _names(path) if not name.startswith(f"{MARKER}.") and name != LOCK}
    if STANDALONE in names or (
        names and MARKER not in names and not (_ROCKSDICT in names and names & {CURRENT, IDENTITY})
    ):
        raise StoreError(
            f"pipeline.store: {str(path)!r} holds {min(names)!r} and is no store; move it, or choose another directory for the stores"
        )
    # Another process may have made a store since the marker was looked for.
    return bool(names) and MARKER not in names


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an open database's lock, and RocksDB's own lock."""
    file = _lock(path)
    try:
        with _refusing(path):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


def _lock(path: Path) -> int:
    """Take the lock of a directory; return the open file that has it until it is closed. FileNotFoundError if the directory is gone."""
    while True:
        file = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _refusing(path):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A store's removal removes this file, too. Then the lock is on a file that nobody else will open.
            if _is_at(file, path / LOCK):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Convert the errors of locks to StoreHeldError."""
    try:
        yield
    except OSError as error:
        raise StoreHeldError(
            f"store: {str(path)!r} is open in another process ({error}); stop that one, or wait until it has ended"
        ) from error


def _is_at(file: int, path: Path) -> bool:
    """Say whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
