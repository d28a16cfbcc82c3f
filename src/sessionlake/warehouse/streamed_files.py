"""Rows of a Delta table with the micro-batch that streamed them: its log's files against logged offsets.

A stream numbers the files of each version from 0, in the log's order; those of the version it started from by
modification time and path. An offset (version, index) has all files before that version and, in it, those up to the
index; tests/jobs/backfill/test_backfill_sources.py holds this against a real stream.
"""

import bisect
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sessionlake.errors import SourceError
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.table_files import files_of
from sessionlake.warehouse.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = "batch_id"
_GONE = (
    "FILE_NOT_EXIST",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_VERSION_NOT_FOUND",
)
"""Signs of a query that Spark has ended because files or versions of a table are gone."""
Offsets = Sequence[tuple[int, Mapping[str, Any] | None]]
"""Each batch in order: its id, and the offset that it reached in the table's stream (None: nothing read yet)."""


@dataclass(frozen=True)
class StreamedFile:
    """A data file of a Delta table, by its entry in the log, and the batch that read it."""

    batch_id: int
    action: str
    """The log's `add` action, JSON."""

    @property
    def path(self) -> str:
        """The path, as the log has it."""
        return str(json.loads(self.action)["add"]["path"])

    @property
    def name(self) -> str:
        """File name without its directory; unique, for it holds a UUID."""
        return self.path.rpartition("/")[2]


def are_gone(told: str, path: str | None = None) -> bool:
    """Say, by a query's failure text, whether files or versions of a table are gone; of any table without `path`."""
    return any(sign in told for sign in _GONE) and (path is None or path in unquote(told))


def streamed_files(table: Table, offsets: Offsets, needed: Collection[int]) -> list[StreamedFile]:
    """Return the files that the needed batches streamed from a table.

    Raises SourceError if the table's log no longer reaches back to them.
    """
    known = [(batch, (int(o["reservoirVersion"]), int(o["index"])), o) for batch, o in offsets if o is not None]
    if not known:
        return []
    _, first_end, first = known[0]
    # A first batch that took the whole snapshot left the offset after it only.
    start = first_end[0] if first.get("isStartingVersion") else first_end[0] - 1
    ends = [end for _, end, _ in known]
    versions: set[int] = set()
    for (batch, end, _), before in zip(known, [(start, -1), *ends], strict=False):
        if batch in needed:
            versions.update(range(before[0], end[0] + (end[1] >= 0)))
    files = []
    for version in sorted(versions):
        actions = snapshot_actions(table, version) if version == start else added(table, version)
        for index, action in enumerate(actions):
            # The first batch with an offset not before the file has read it.
            at = bisect.bisect_left(ends, (version, index))
            if at < len(ends) and known[at][0] in needed:
                files.append(StreamedFile(known[at][0], action))
    return files


def read_files(table: Table, files: Sequence[StreamedFile]) -> "DataFrame":
    """Return the rows of the files as the table has them, with a column batch_id.

    Also of files that were compacted away since, while they are still there.
    """
    return with_batches(rows_of_files(table, [file.action for file in files]), files)


def rows_of_files(table: Table, actions: Sequence[str]) -> "DataFrame":
    """Return the rows of files, by their entries in the log, as the table has them."""
    spark, log = table.spark, table.delta_log()
    jvm: Any = spark._jvm
    files = jvm.java.util.ArrayList()
    for action in actions:
        files.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(action))
    chosen = jvm.scala.jdk.javaapi.CollectionConverters.asScala(files).toSeq()
    none = jvm.scala.Option.empty()
    return spark_names.DataFrame(log.createDataFrame(log.update(False, none, none), chosen, False, none), spark)


def with_batches(rows: "DataFrame", files: Sequence[StreamedFile]) -> "DataFrame":
    """Add the batch_id of each row's file; null outside of the given batches."""
    batches = rows.sparkSession.createDataFrame([(f.name, f.batch_id) for f in files], f"_file string, {BATCH} long")
    named = rows.withColumn("_file", F.col("_metadata.file_name"))
    return named.join(F.broadcast(batches), "_file", "left").drop("_file")


def snapshot_actions(table: Table, version: int) -> list[str]:
    """Return the files of a version, in the order in which a stream that starts there reads them."""
    if version < 0:
        return []
    log = table.delta_log()
    rest = [getattr(log, f"getSnapshotAt$default${i}")() for i in (2, 3, 4)]
    try:
        files = list(files_of(table.spark, log.getSnapshotAt(version, *rest)).collectAsList())
    except Exception as error:
        raise _gone(table.uri, version) from error
    return [str(file.json()) for file in sorted(files, key=lambda f: (f.modificationTime(), f.path()))]


def added(table: Table, version: int) -> list[str]:
    """Return the files that a commit adds as data; none if it also removes data: streams skip it.

    Raises SourceError if the commit is no longer in the log.
    """
    text = table.text(version)
    if text is None:
        raise _gone(table.uri, version)
    # Not splitlines(): keys may hold other line separators, as they are.
    lines = text.split("\n")
    if any('"remove"' in line and json.loads(line).get("remove", {}).get("dataChange") for line in lines):
        return []
    return [line for line in lines if '"add"' in line and json.loads(line).get("add", {}).get("dataChange")]


def _gone(path: str, version: int) -> SourceError:
    return SourceError(
        f"source.path: {path!r} no longer has version {version} in its log, so the input of a batch is not known; "
        "use `sessionlake rebuild`, and keep the log longer (delta.logRetentionDuration)"
    )
