"""The driver's part of lookups: newer versions of tables, the making of their files, and the files for a batch."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionlake.columnar.column_types import type_name
from sessionlake.errors import SourceError, first_line
from sessionlake.sources.lookups.lookup import (
    AGAIN,
    FILE,
    MARK,
    REFUSED,
    UNFINISHED,
    Lookup,
    made_us,
    marked,
    settings_of,
    version_of,
)
from sessionlake.sources.lookups.making import Making
from sessionlake.sources.lookups.readers import ChangedError, reader_of
from sessionlake.sources.lookups.source import WithLookups
from sessionlake.sources.lookups.tables import TableToLookUp
from sessionlake.warehouse.arrow_files import file_system, local_path
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.tables import Tables

KEPT = 10
"""The number of a table's newest files that stay: a repeated batch, and a backfill, find the files read before."""
_ERASE_EVERY_S = 5
_TRIES = 3
_DAY_US = 86_400_000_000
"""How long files stay that a killed task has left, or that were made again for an earlier batch."""
_log = logging.getLogger("sessionlake")


class Versions:
    """A lookup table's versions, a file each: `<when it was made>-<version>-<hashes of the settings>.arrow`."""

    def __init__(self, spark: SparkSession, table: TableToLookUp, lookup: Lookup) -> None:
        self._table, self._lookup, self._reader = table, lookup, reader_of(spark, table)
        self._files = Tables.of(spark, table.config)
        self._folder = lookup.folder
        self._file: str | None = None
        self._used: set[str] = set()
        self._looked = 0.0
        self._told: str | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Tell nothing from now on: Spark may end while a version is made."""
        self._closed = True

    def newest(self) -> str:
        """Return the newest usable version's file; SourceError if there is none."""
        if self._file not in self.erase_marked():
            self._file = None
            self._look()
        if self._file is None:
            raise SourceError(f"{self._told}; mend the table, because no earlier version of it can be used")
        self._used = {self._file}
        return self._file

    def refresh(self) -> None:
        """Begin to look for a newer version if it is time to; batches go on meanwhile."""
        if self._file is None or time.monotonic() - self._looked < self._table.section.refresh_us / 1e6:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look_again, name="sessionlake-lookup", daemon=True)
            self._thread.start()

    def erase_marked(self) -> list[str]:
        """Remove the files with an erased key, and return the remaining names; called if no batch runs."""
        names = self._files.names(self._folder)
        erased = marked(names)
        for name in erased:
            self._files.delete(f"{self._folder}/{name}")
            self._files.delete(f"{self._folder}/{name}{MARK}")
        return [name for name in names if name not in erased]

    def again(self, file: str) -> None:
        """Make a file anew that a batch has read, if it is gone or lacks columns; SourceError if it is gone, and its version can't be read any more."""
        self._used = {file}
        is_there = file in self._files.names(self._folder)
        if is_there and not self._lacks(file):
            return
        version, place = (
            version_of(file),
            f"{self._table.place_at}: version {version_of(file)} of {self._table.place!r}",
        )
        if not settings_of(file).startswith(self._origin):
            if is_there:  # events find nothing in the columns that it lacks
                return
            raise SourceError(
                f"{place} is not the one that a batch has read, because path, format or types were others then; restore them"
            )
        try:
            bad = self._made(version, file)
        except SourceError:
            if is_there:
                return
            raise
        if bad is not None and not is_there:
            raise SourceError(f"{place} {bad}; a batch has read it before")
        # Else a stream, for which it is an old one, would remove it from a backfill.
        self._files.delete(f"{self._folder}/{file}{AGAIN}")
        self._files.write_text_once(f"{self._folder}/{file}{AGAIN}", str(time.time_ns() // 1000))

    def _lacks(self, file: str) -> bool:
        """Say whether a file lacks columns, which the config did not have when it was made."""
        uri = f"{self._folder}/{file}"
        system, path = file_system(local_path(uri) or uri)
        with system.open_input_file(path) as source:
            names = pa.ipc.open_file(source).schema.names
        return not {*self._lookup.of_table.values()} <= {*names}

    def _look_again(self) -> None:
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 (of whatever kind: batches go on with the version that there is)
            self._tell(first_line(error))

    def _look(self) -> None:
        """Find the newest version, and have its file made unless it is there; again if files change meanwhile."""
        self._looked = time.monotonic()
        for _ in range(_TRIES - 1):
            with suppress(ChangedError):
                return self._look_once()
        return self._look_once()

    def _look_once(self) -> None:
        version = self._reader.newest()
        every = sorted(self._files.names(self._folder))
        names = [name for name in every if name.endswith((FILE, REFUSED))]
        ends = {kind: f"-{version}-{self._settings}{kind}" for kind in (FILE, REFUSED)}
        there = next((name for name in reversed(names) if name.endswith(tuple(ends.values()))), None)
        if there is not None and there.endswith(FILE) and self._lacks(there):  # made again for a batch of before
            there = None
        bad = None
        if there is None:
            there = f"{time.time_ns() // 1000:016d}{ends[FILE]}"
            bad = self._made(version, there)
            if bad is not None:
                there = f"{there.removesuffix(FILE)}{REFUSED}"
                self._files.write_text_once(f"{self._folder}/{there}", bad)
        elif there.endswith(REFUSED):
            bad = self._files.read_text(f"{self._folder}/{there}")
        if bad is None:
            self._file, self._told = there, None
        else:
            self._tell(f"{self._table.place_at}: version {version} of {self._table.place!r} {bad}")
            own = [name for name in names if name.endswith(f"-{self._settings}{FILE}")]
            self._file = self._file or next(reversed(own), None)
        self._clean([*names, there], every)

    def _made(self, version: str, file: str) -> str | None:
        """Make the file of a version; return why it must not be used, None if it may."""
        known, wanted, making = self._table.types(), self._table.wanted, self._making
        if (missing := next((name for name in wanted if name not in known), None)) is not None:
            return f"has no column {missing!r}"
        for name, column in self._lookup.of_table.items():
            found, pinned = known[column], self._lookup.columns[name]
            if found != pinned:
                return f"has column {column!r} as {type_name(found)}, and it was {type_name(pinned)}"
        types = {self._table.called(name): known[name] for name in wanted}
        uri, rows = f"{self._folder}/{file}", self._reader.rows(version, types)
        schema = pa.schema(list(types.items()))

        def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from making.make(batches, schema, uri)

        try:
            result = map_in_arrow(rows.repartition(1), make, "bad string").collect()
        except (PySparkException, Py4JJavaError) as error:
            raise SourceError(
                f"{self._table.place_at}: version {version} of {self._table.place!r} can't be read; see Spark's log, and if its files were removed or its "
                "columns changed, it can't be made again"
            ) from error
        if not result:  # Spark may run no task for a table without rows
            making.write(schema.empty_table(), uri)
        try:
            self._reader.check(version)
        except SourceError:
            self._files.delete(uri)
            raise
        return result[0].bad if result else None

    def _clean(self, names: list[str], every: list[str]) -> None:
        """Remove all files but the newest and batches' own, and leftovers of killed tasks."""
        again = {name.removesuffix(AGAIN): name for name in every if name.endswith(AGAIN)}
        old = [name for name in names[:-KEPT] if name not in (*self._used, self._file)]
        old = [name for name in old if name not in again or self._is_old(self._read(again[name]))]
        left = [name for name in every if name.endswith(UNFINISHED) and self._is_old(made_us(name))]
        for name in (*old, *left, *(again[name] for name in old if name in again)):
            self._files.delete(f"{self._folder}/{name}")

    def _read(self, mark: str) -> int:
        return int(self._files.read_text(f"{self._folder}/{mark}") or 0)

    def _is_old(self, at_us: int) -> bool:
        return at_us < time.time_ns() // 1000 - _DAY_US

    def _tell(self, told: str) -> None:
        """Warn once of an unusable version, and of an unusable table."""
        if told != self._told:
            self._told = told
            if self._file is not None and not self._closed:
                _log.warning("sessionlake: warning: %s; batches go on with an earlier version", told)

    @cached_property
    def _making(self) -> Making:
        return Making.of(self._table.section, self._table.called)

    @cached_property
    def _settings(self) -> str:
        """Hashes of everything behind a file besides the table's version."""
        types = self._table.types()
        return self._origin + _hash(
            self._making.settings([types[name] for name in self._table.section.of_table if name in types])
        )

    @cached_property
    def _origin(self) -> str:
        """A hash of everything that identifies the versioned table."""
        source = self._table.config.source
        return _hash([source.path, source.format, dict(source.types)])


def _hash(settings: list[Any]) -> str:
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]


class Pins:
    """Versions of all lookups for a pipeline's batches."""

    def __init__(
        self, spark: SparkSession, sources: Mapping[str, object], lookups: Mapping[str, Iterable[Lookup]]
    ) -> None:
        """`sources` and `lookups` are each event input's."""
        self._versions = {
            lookup.name: Versions(spark, table, lookup)
            for name, source in sources.items()
            if isinstance(source, WithLookups)
            for lookup in lookups[name]
            if isinstance(table := source.tables[lookup.name], TableToLookUp)
        }
        self._erased = 0.0

    def of_batch(self, before: Mapping[str, str] | None) -> dict[str, str]:
        """Return a batch's files, by lookup: an interrupted attempt's files, else the newest."""
        if before is None:
            return {name: versions.newest() for name, versions in self._versions.items()}
        for name, file in before.items():
            if name in self._versions:
                self._versions[name].again(file)
        return dict(before)

    def erase_marked(self) -> None:
        """Remove the files with an erased key, unless this was done a moment ago; called if no batch runs."""
        if time.monotonic() - self._erased >= _ERASE_EVERY_S:
            self._erased = time.monotonic()
            for versions in self._versions.values():
                versions.erase_marked()

    def close(self) -> None:
        """Tell nothing from now on."""
        for versions in self._versions.values():
            versions.close()

    def refresh(self) -> None:
        """Look for newer versions if it is time to."""
        for versions in self._versions.values():
            versions.refresh()
