"""Files of versions on this machine: mapped if they lie on its disks, else copied there once."""

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from sessionlake.config.paths import expanded, make_private
from sessionlake.errors import SourceError, first_line
from sessionlake.sources.lookups.dimension import Dimension, mapped
from sessionlake.sources.lookups.names import FILE
from sessionlake.warehouse.arrow_files import file_system, local_path

_TRIES = 20


def local_copy(folder: str, file: str, copies: str) -> str:
    """Return the local path of a version's file; SourceError if it is gone.

    A copy lies in a directory of the stores, which this user alone may read. Copies of the table's other versions are removed.
    """
    uri = f"{folder}/{file}"
    here = local_path(uri)
    if here is not None:
        if not Path(here).is_file():
            raise SourceError(
                f"lookup: the version {uri!r} is gone, and a batch needs it; start the stream again, and it is made again"
            )
        return here
    directory = Path(expanded(copies)) / Path(folder).name
    copy = directory / file
    if not copy.is_file():
        make_private(directory)
        _copied(uri, copy)
        for other in directory.iterdir():
            if other != copy and (other.suffix == FILE or _is_left(other)):
                other.unlink(missing_ok=True)
    return str(copy)


def opened(folder: str, file: str, copies: str) -> Dimension:
    """Return a version; SourceError if its file is gone."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):  # a task that reads another version has removed the copy, as in a backfill
            return mapped(local_copy(folder, file, copies))
    return mapped(local_copy(folder, file, copies))


def _is_left(path: Path) -> bool:
    """Say whether a task that was killed has left a copy that is not whole: nothing is copied for a day."""
    try:
        return path.name.startswith(".") and path.stat().st_mtime < time.time() - 86_400
    except FileNotFoundError:
        return False


def _copied(uri: str, copy: Path) -> None:
    """Copy a file, in one step for all that look for it."""
    temporary = copy.with_name(f".{uuid.uuid4().hex}")
    try:
        system, source = file_system(uri)
        fs.copy_files(source, str(temporary), source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
        os.replace(temporary, copy)  # noqa: PTH105 (over one that another task has copied)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SourceError(f"lookup: {uri!r} can't be copied to {str(copy.parent)!r} ({first_line(error)})") from error
