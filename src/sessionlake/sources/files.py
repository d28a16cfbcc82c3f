"""A directory of files as a source: each file is read once, when it appears."""

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sessionlake.config.layouts import Layout
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, SourceError, first_line
from sessionlake.sources.base import SMALL_BYTES, Offsets, limits_of, same
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import CONTENT, PATH, FileDecoder, base_of, is_local, local_path, refusal
from sessionlake.sources.decoding.json_lines import is_utf8
from sessionlake.sources.decoding.rows import BATCH
from sessionlake.sources.infer import InferredTypes, chosen_types, declared_and_inferred, scanned
from sessionlake.sources.planned_files import PlannedFiles, log_names
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.filesystem import Files, as_name, is_pattern
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FOREVER = "1000000d"
_LOOK_EVERY_S, _LOOKING_SHARE = 60, 0.01
_SHOWN = 5
_HIDDEN = (b".", b"_")
_log = logging.getLogger(__name__)
NEEDED = "a backfill reads the events again, so they must still be there"


class FileSource:
    """See `Source` for the methods."""

    name: ClassVar[str] = "files"
    one_row_a_file: ClassVar[bool] = True

    def __init__(self, spark: "SparkSession", config: Config, number: int = 0) -> None:
        self._spark, self._config, self._path, self._number = spark, config, config.source.path, number
        self._warned: set[str] = set()
        self._next_look = 0.0
        self._planned: PlannedFiles | None = None

    def check(self) -> None:
        """Refuse a missing local directory, as Spark does, and warn of unreadable names."""
        if is_local(self._path) and not Path(local_path(self._path)).exists():
            raise SourceError(
                f"{self._config.source.AT}.path: {self._path!r} is no directory; create it or correct the path"
            )
        self.watch()

    def watch(self) -> None:
        """Warn, once each, of files that Java can't name and so does not list: a minute after the last look at the earliest."""
        began = time.monotonic()
        if not is_local(self._path) or began < self._next_look:
            return
        names = [name for name in names_of_no_utf8(base_of(self._path)) if name not in self._warned]
        if names:
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
            _log.warning(
                "sessionlake: warning: %s.path: %s%s: not read, because a name must be UTF-8; rename it",
                self._config.source.AT,
                shown,
                more,
            )
        self._warned.update(names)
        took = time.monotonic() - began
        self._next_look = began + max(_LOOK_EVERY_S, took / _LOOKING_SHARE)

    def grew(self, told: str) -> bool:
        """Return False: a query does not know its columns."""
        del told
        return False

    def explained(self, told: str) -> None:
        """Return None: a batch's own errors name the file."""
        del told

    def columns(self) -> list[str]:
        """Return the existing files' columns."""
        return list(self._found(frozenset()))

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types that the config declares, or else the existing files' types."""
        source, at = self._config.source, self._config.source.AT

        def find(names: list[str]) -> dict[str, pa.DataType]:
            found = self._found(frozenset(names))
            if not found:
                raise SourceError(
                    f"{at}.path: the {self._layout.format} files in {self._path!r} have no rows to learn the columns from; "
                    f"add one that has, or declare [{at}.types]"
                )
            return chosen_types(found, self._layout.format, names, identity=identity, at=at)

        return declared_and_inferred(source, needed, find)

    def _found(self, needed: frozenset[str]) -> InferredTypes:
        """Return all columns of the present files, with at least the needed columns' types."""
        return scanned(source_files(self._config), self._layout, needed)

    def decoder(self, columns: EventColumns) -> FileDecoder:
        """Return the decoder of the files."""
        return FileDecoder(columns, self._layout, self._path, self._config.source.max_line_bytes)

    def stream(self, columns: EventColumns, *, everything_at_once: bool = False) -> "DataFrame":
        """Return the files' paths, and their content if workers can't open them."""
        del columns
        reader = (
            self._spark.readStream.format("binaryFile")
            .schema("path string, modificationTime timestamp, length long, content binary")
            .options(**limits_of(self._config.source, everything_at_once=everything_at_once))
            # Otherwise Spark silently ignores files a week older than the newest.
            .option("maxFileAge", _FOREVER)
            .option("recursiveFileLookup", "true")
        )
        rows = reader.load(path_for_spark(self._spark, self._config))
        if is_local(self._path):
            return rows.select(_without_scheme("path").alias(PATH))
        return rows.select(F.col("path").alias(PATH), F.col("content").alias(CONTENT))

    def planned(self, tables: Tables, column: Callable[[str], str] = same) -> PlannedFiles:
        """Return the files that batches are planned to read."""
        self._planned = PlannedFiles(tables, self._config, self._number, column)
        return self._planned

    def is_small(self, before: str, planned: str) -> bool:
        """Say whether the planned files have few bytes together. An object store is not asked for sizes, so no file there is small."""
        del before, planned
        return self._planned is not None and self._planned.size is not None and self._planned.size <= SMALL_BYTES

    def versioned(self) -> None:
        """Return None: Spark's positions say all."""
        return

    def ranked(self, tables: Tables) -> PlannedFiles:
        """Return the files' order by the plan."""
        return PlannedFiles(tables, self._config, self._number)

    def replay(
        self, tables: Tables, columns: EventColumns, offsets: Offsets, needed: Collection[int]
    ) -> "DataFrame | None":
        """Return the needed batches' files, spread over tasks, with their content if workers can't open them."""
        del columns
        files = self._logged(tables, offsets, needed)
        return None if files is None else self._with_content(files)

    def _with_content(self, files: "DataFrame") -> "DataFrame":
        if is_local(self._path):
            return files.repartition(max(1, min(files.count(), 4 * self._spark.sparkContext.defaultParallelism)))
        paths = [row[0] for row in files.select(PATH).toLocalIterator()]
        try:
            content = self._spark.read.format("binaryFile").load([as_name(path) for path in paths])
        except spark_names.AnalysisException as error:
            raise SourceError(f"{self._config.source.AT}.path: {first_line(error)}; {NEEDED}") from error
        return content.select(F.col("path").alias(PATH), CONTENT).join(F.broadcast(files), PATH)

    @property
    def _layout(self) -> Layout:
        layout = self._config.source.layout
        if layout is None:
            raise ConfigError(f"{self._config.source.AT}.format: is missing; write 'json', 'csv' or 'parquet'")
        return layout

    def _logged(self, tables: Tables, offsets: Offsets, needed: Collection[int]) -> "DataFrame | None":
        """Return (path, batch_id) of the files in the file source's log, read by the needed batches."""
        pairs: list[tuple[int, int]] = []
        reached = -1
        for batch_id, position in offsets:
            offset = reached if position is None else int(position["logOffset"])
            if batch_id in needed:
                pairs += [(log, batch_id) for log in range(reached + 1, offset + 1)]
            reached = max(reached, offset)
        if not pairs:
            return None
        directory = f"{self._config.checkpoint}/sources/{self._number}"
        lines = self._spark.read.text([as_name(f"{directory}/{n}") for n in log_names(tables, directory, reached)])
        entry = F.from_json("value", "path string, batchId long")
        # Paths in the log are URL-encoded, except that + stands for itself.
        path = F.url_decode(F.replace("e.path", F.lit("+"), F.lit("%2B")))
        logged = lines.where("value like '{%'").select(entry.alias("e")).select(path.alias(PATH), F.col("e.batchId"))
        batches = self._spark.createDataFrame(pairs, f"batchId long, {BATCH} long")
        with_batches = logged.distinct().join(F.broadcast(batches), "batchId").select(PATH, BATCH)
        return with_batches.withColumn(PATH, _without_scheme(PATH)) if is_local(self._path) else with_batches


def path_for_spark(spark: "SparkSession", config: Config) -> str:
    """Return the path of a source of files as Spark's readers of files take it.

    It is the name of a directory. A path in an object store that has no such name may be a pattern.
    """
    path = config.source.path
    if is_local(path) or not is_pattern(path):
        return as_name(path)
    system, found = Files.of(spark, config).file_system(path)
    return as_name(path) if system.exists(found) else path


def source_files(config: Config) -> list[str]:
    """Return the source directory's present files, without hidden files; SourceError if there are none."""
    path, format_, at = config.source.path, config.source.format, config.source.AT
    root = Path(path.removeprefix("file:"))
    if "://" in path:
        raise SourceError(f"{at}.path: columns of {path!r} can't be inferred from here; declare each in [{at}.types]")
    if not root.is_dir():
        raise SourceError(f"{at}.path: {path!r} is no directory; create it or correct the path")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourceError(f"{at}.path: {path!r} can't be read; give this user the right to")
    files = sorted(
        str(f)
        for f in root.rglob("*")
        if f.is_file()
        and refusal(str(f), path) is None
        and not any(p.startswith((".", "_")) for p in f.relative_to(root).parts)
    )
    if not files:
        raise SourceError(
            f"{at}.path: {path!r} holds no {format_} files to learn the columns from; add one or declare [{at}.types]"
        )
    return files


def names_of_no_utf8(root: Path) -> list[str]:
    """Return the files and directories below a directory whose own name is no UTF-8, escaped.

    Entries inside of such a directory are left out. So are hidden files, which Spark does not read.
    """
    names = []
    for folder, folders, files in os.walk(os.fsencode(root)):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        bad = [name for name in (*folders, *files) if not is_utf8(name) and not name.startswith(_HIDDEN)]
        folders[:] = [name for name in folders if name not in bad]
        names += [os.path.join(folder, name) for name in bad]  # noqa: PTH118 (bytes)
    return sorted(map(_printable, names))


def _printable(path: bytes) -> str:
    text = path.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _without_scheme(column: str) -> "Column":
    return F.regexp_replace(column, "^file:(//)?", "")
