"""A warehouse's tables without Spark: their logs, and their rows as streams of Arrow batches.

deltalake takes some characters of a path for others: only `opened` gives it paths.
"""

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sessionlake.config.config import Config
from sessionlake.config.paths import is_remote, normal_path
from sessionlake.errors import LakeError
from sessionlake.warehouse.changelog import Changelog, changelog_of
from sessionlake.warehouse.delta_log import DeltaLog, Logs

_LOG = "_delta_log"
_MISTAKEN = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""deltalake decodes a path once more than it was encoded, and takes a backslash for a slash."""


_IMPATIENT = {"connect_timeout": "3s", "timeout": "5s", "max_retries": "1"}
"""Options under which a store that does not answer is given up after ten seconds. By default deltalake tries for minutes."""


def opened(uri: str, *, impatient: bool = False) -> DeltaTable:
    """Return the table at a local path or an object-store URI, at its newest version.

    Raises what deltalake raises, for example TableNotFoundError. With `impatient` an object store has ten seconds to answer.
    """
    if is_remote(uri):
        return DeltaTable(uri, storage_options={**storage_options(), **(_IMPATIENT if impatient else {})})
    path = os.path.realpath(normal_path(uri))
    if _MISTAKEN.search(path):
        return _through_links(Path(path))
    return DeltaTable(Path(path).as_uri())


def storage_options() -> dict[str, str]:
    """Return the options that deltalake does not read from the environment by itself."""
    # deltalake refuses an endpoint without TLS unless an option allows it. A user who names such an endpoint allows it.
    return {"allow_http": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else {}


def _through_links(path: Path) -> DeltaTable:
    """Return the table opened in a folder of links to its files, which lasts as long as the table."""
    folder = Path(tempfile.mkdtemp(prefix="sessionlake-"))
    try:
        (folder / _LOG).symlink_to(path / _LOG)
        table = DeltaTable(folder)
        # Only now: all files of the version that was opened are there.
        for entry in os.scandir(path):
            if entry.name != _LOG:
                (folder / entry.name).symlink_to(entry.path)
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(table, shutil.rmtree, folder, ignore_errors=True)
    return table


_LOCAL = "file:"
# Colours, and the arrows by which deltalake's messages go from effect to cause.
_TOO_MANY_FILES = "Too many open files"
"""The system's words for errno 24, also in errors of libraries that keep no number."""
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|\u21b3")


class LakeTable(DeltaLog):
    """A table whose rows and log end at the version at which it was opened."""

    _files: "Lake"
    _opened: DeltaTable | None = None

    def open(self) -> DeltaTable:
        """Return the table, opened at its newest version the first time, and staying there."""
        if self._opened is None:
            self._opened = self._files.delta_table(self.uri)
        return self._opened

    def latest_version(self) -> int:
        """Return the version at which the table was opened; the newest if it has not been yet, -1 if there is none."""
        return super().latest_version() if self._opened is None else self._opened.version()

    def app_version(self, app_id: str) -> int | None:
        """Return the last version that an application has written to the table; None if it has not."""
        return self.open().transaction_version(app_id) if self.exists() else None

    def size(self) -> tuple[int, int]:
        """Return files and bytes of the table's version."""
        sizes = self.open().get_add_actions().column("size_bytes").to_pylist()
        return len(sizes), sum(sizes)


class Lake(Logs):
    """The tables of a warehouse path or object-store URI, by name.

    For an object store deltalake finds credentials and region in the environment (AWS_..., AZURE_..., GOOGLE_...).
    Raises LakeError, which suggests Spark instead, if deltalake can't read a table.
    """

    def __init__(self, warehouse: str, changelog: Changelog) -> None:
        self.warehouse, self.changelog = warehouse.rstrip("/"), changelog
        self._tables: dict[str, LakeTable] = {}
        self._file_systems: dict[str, Any] = {}

    @classmethod
    def of(cls, config: Config) -> "Lake":
        """Return a pipeline's."""
        return cls(config.pipeline.warehouse, changelog_of(config))

    def __getitem__(self, name: str) -> LakeTable:
        """Return a table, whether it is there or not."""
        if name not in self._tables:
            self._tables[name] = LakeTable(self, f"{self.warehouse}/{name}")
        return self._tables[name]

    def delta_table(self, uri: str) -> DeltaTable:
        """Return a table at its newest version."""
        with self._readable():
            return opened(uri)

    def names(self, uri: str) -> list[str]:
        """Return the names in a table's log; none if it is not there."""
        if self._directory is not None:
            try:
                return [entry.name for entry in os.scandir(self._local(uri))]
            except (FileNotFoundError, NotADirectoryError):
                return []
        from pyarrow.fs import FileSelector

        with self._readable():
            files = self._remote(uri)
            return [] if files is None else [info.base_name for info in files.get_file_info(FileSelector(_LOG))]

    def read_text(self, uri: str) -> str | None:
        """Return the text of a file of a table's log, or None if there is none."""
        try:
            if self._directory is not None:
                return Path(self._local(uri)).read_text(encoding="utf-8")
            with self._readable():
                files = self._remote(uri)
                name = f"{_LOG}/{uri.rpartition('/')[2]}"
                return None if files is None else str(files.open_input_file(name).read().decode())
        except (FileNotFoundError, NotADirectoryError):
            return None

    @cached_property
    def _directory(self) -> str | None:
        """The warehouse as a local directory; None if it lies in an object store."""
        if self.warehouse.startswith(_LOCAL):
            return "/" + self.warehouse.removeprefix(_LOCAL).lstrip("/")
        return None if "://" in self.warehouse else self.warehouse

    def _local(self, uri: str) -> str:
        return f"{self._directory}{uri.removeprefix(self.warehouse)}"

    def _remote(self, uri: str) -> Any:
        """Return the file system of the table that a file of a log belongs to; None if there is no table."""
        table = uri.partition(f"/{_LOG}")[0]
        if table not in self._file_systems:
            from deltalake.fs import DeltaStorageHandler
            from pyarrow.fs import PyFileSystem

            if not DeltaTable.is_deltatable(table, storage_options()):
                return None
            self._file_systems[table] = PyFileSystem(DeltaStorageHandler(table, storage_options()))
        return self._file_systems[table]

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (DeltaError, OSError, ValueError) as error:
            if _TOO_MANY_FILES in str(error):
                raise LakeError(
                    f"pipeline.warehouse: {self.warehouse!r} can't be read: this process may open too few files; raise its limit (ulimit -n)"
                ) from error
            raise LakeError(
                f"pipeline.warehouse: {self.warehouse!r} can't be read without Spark ({_cause(error)}); put its credentials "
                "and region into the environment (AWS_..., AZURE_..., GOOGLE_...), or use `sessionlake sql --engine spark --allow-files`"
            ) from error


def _cause(error: Exception) -> str:
    """Return the first and the last line of a message, whose lines go from effect to cause."""
    lines = [line.strip() for line in _DECORATION.sub("", str(error)).splitlines() if line.strip()]
    return ": ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else type(error).__name__
