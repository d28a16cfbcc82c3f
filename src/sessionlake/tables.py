"""The Delta tables of a warehouse: creation, idempotent appends with metadata, and the metadata read back."""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from sessionlake.errors import FencedError, PipelineStateError

_COMMIT_FILE = re.compile(r"(\d{20})\.json")
_KEY = "sessionlake"
_CONCURRENT = "DELTA_CONCURRENT_TRANSACTION"
FENCED = 1 << 62
"""The version of an application that has been kept from appending."""


@dataclass(frozen=True)
class Commit:
    """A commit of a Delta table that carries our metadata."""

    version: int
    metadata: dict[str, Any]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file under a table's folder that no commit names yet."""

    table: str
    path: str
    """Relative to the table's folder."""
    size: int
    stats: str
    """Delta's statistics as JSON: the number of rows, and bounds of the time columns."""


def _added(file: DataFile, now_ms: int) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": file.stats,
    }


def user_metadata(metadata: Mapping[str, Any]) -> str:
    """Return the text that a commit carries as its userMetadata."""
    return json.dumps({_KEY: metadata})


def spark_schema(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as Spark's, comments kept."""
    fields = from_arrow_schema(schema).fields
    comments = [(f.metadata or {}).get(b"comment", b"").decode() for f in schema]
    return StructType(
        [
            StructField(f.name, f.dataType, True, {"comment": c} if c else None)
            for f, c in zip(fields, comments, strict=True)
        ]
    )


class Tables:
    """The tables under one warehouse path (a path or an object-store URI)."""

    def __init__(self, spark: SparkSession, warehouse: str) -> None:
        self.spark, self.warehouse = spark, warehouse.rstrip("/")

    def path(self, name: str) -> str:
        """Return where a table lies."""
        return f"{self.warehouse}/{name}"

    def exists(self, name: str) -> bool:
        """Say whether the table is there."""
        return bool(self._log_files(name))

    def create(
        self, name: str, schema: pa.Schema, comment: str, partitioned_by: tuple[str, ...] = (), **properties: str
    ) -> None:
        """Create a table unless it is there."""
        if self.exists(name):
            return
        builder = (
            DeltaTable.createIfNotExists(self.spark)
            .location(self.path(name))
            .comment(comment)
            .addColumns(spark_schema(schema))
        )
        if partitioned_by:
            builder = builder.partitionedBy(*partitioned_by)
        for key, value in properties.items():
            builder = builder.property(f"delta.{key}", value)
        try:
            builder.execute()
        except Exception:
            # Delta refuses the second of two who create a table at one moment, which is as good.
            if not self.exists(name):
                raise

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """Return a table, pinned to a version where one is given."""
        reader = self.spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.path(name))

    def append(
        self, name: str, rows: DataFrame, app_id: str, app_version: int, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Append rows unless this (app_id, app_version), or a later one, was appended before; then do nothing, silently.

        Raises FencedError where another process does the same at this moment.
        """
        writer = rows.write.format("delta").mode("append").option("txnAppId", app_id).option("txnVersion", app_version)
        if metadata is not None:
            writer = writer.option("userMetadata", user_metadata(metadata))
        try:
            writer.save(self.path(name))
        except Exception as error:
            if _CONCURRENT not in str(error):
                raise
            raise FencedError(
                f"table {self.path(name)!r}: another driver writes batch {app_version} too; "
                "this one stops, keep only one running on this warehouse"
            ) from error

    def commit_files(
        self,
        name: str,
        files: Iterable[DataFile],
        app_id: str,
        app_version: int,
        metadata: Mapping[str, Any],
        *,
        after_version: int,
    ) -> int:
        """Commit Parquet files that lie under an unpartitioned table's folder; return the version this makes.

        Raises FencedError where another process has committed this app_version, or a later one, since `after_version`,
        or does so at this moment. Delta's own writer asks the table's state for the application's last version, a Spark
        job of 0.3 s and more; who is the only writer, and looks at the commits since, need not.
        """
        delta = self._jvm.org.apache.spark.sql.delta
        transaction = self._delta_log(name).startTransaction()
        fenced = FencedError(
            f"table {self.path(name)!r}: another driver committed batch {app_version}; "
            "this one stops, keep only one running on this warehouse"
        )
        if any(
            action["appId"] == app_id and action["version"] >= app_version
            for version in range(after_version + 1, transaction.readVersion() + 1)
            for action in self._actions(name, version, "txn")
        ):
            raise fenced
        table = transaction.metadata()
        if table.partitionColumns().nonEmpty() or table.columnMappingMode().name() != "none":
            raise PipelineStateError(
                f"table {self.path(name)!r}: is partitioned or maps its columns, which the stream can't write; "
                "restore the table as the sessionizer made it"
            )
        transaction.readTxn().addOne(app_id)
        now = time.time_ns() // 1_000_000
        actions = self._jvm.java.util.ArrayList()
        for action in (
            {"txn": {"appId": app_id, "version": app_version, "lastUpdated": now}},
            *({"add": _added(file, now)} for file in files),
        ):
            actions.add(delta.actions.Action.fromJson(json.dumps(action)))
        none = self._jvm.scala.Option.empty()
        written = self._jvm.scala.Option.apply(user_metadata(metadata))
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        operation = getattr(self._jvm, "org.apache.spark.sql.delta.DeltaOperations$Write")(
            append, none, none, written, none, none, none, none, none
        )
        try:
            return int(
                transaction.commit(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)
            )
        except Py4JJavaError as error:
            if _CONCURRENT not in str(error):
                raise
            raise fenced from error

    def app_version(self, name: str, app_id: str, version: int | None = None) -> int | None:
        """Return the latest version that an application has written under its id, as of the table's newest or given version.

        None where it has not. Unlike commits' metadata it is part of the table's state, and so outlives log cleanup.
        """
        return self.app_versions(name, [app_id], version).get(app_id)

    def app_versions(self, name: str, app_ids: Iterable[str], version: int | None = None) -> dict[str, int]:
        """Return `app_version` of each application that has written."""
        transactions = self._snapshot(name, version).transactions()
        found = {app_id: transactions.get(app_id) for app_id in app_ids}
        return {app_id: int(latest.get()) for app_id, latest in found.items() if latest.isDefined()}

    def fence(self, name: str, app_id: str) -> int:
        """Keep an application that has appended nothing from ever doing so; return FENCED, or the version it came to.

        Of a first append and a fence at the same moment one takes effect, never both.
        """
        found = FENCED

        def fenced(version: int) -> int | None:
            nonlocal found
            found = version if version >= 0 else FENCED
            return None if version >= 0 else FENCED

        self.set_app_versions(name, {app_id: fenced})
        return found

    def set_app_versions(self, name: str, change: Mapping[str, Callable[[int], int | None]]) -> None:
        """Record versions of applications, in a commit without rows: each as a function of its latest (-1 for none).

        A function that returns None leaves its application alone. What an application is about to append under its id
        meanwhile fails, or comes first and is seen here.
        """
        none, delta = self._jvm.scala.Option.empty(), self._jvm.org.apache.spark.sql.delta
        log = self._delta_log(name)
        operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        while True:
            log.update(False, none, none)
            transaction = log.startTransaction(none, none)
            actions = self._jvm.java.util.ArrayList()
            for app_id, new in change.items():
                # Asked of the transaction, not of the log: so the commit fails where the application appends meanwhile.
                if (version := new(int(transaction.txnVersion(app_id)))) is not None:
                    actions.add(delta.actions.SetTransaction(app_id, version, none))
            if actions.isEmpty():
                return
            try:
                transaction.commit(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)
            except Py4JJavaError as error:
                if _CONCURRENT not in str(error):
                    raise
                continue
            return

    def _delta_log(self, name: str) -> Any:
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path(name))

    def files(self, name: str, version: int | None = None) -> DataFrame:
        """Return the files of a version: path, partitionValues, size, stats (JSON), deletionVector; as the log has them."""
        return DataFrame(self._snapshot(name, version).allFiles().toDF(), self.spark)

    def vacuum_retention_us(self, name: str) -> int:
        """Return how long a table keeps files that no longer belong to it."""
        retention = self._jvm.org.apache.spark.sql.delta.DeltaLog.tombstoneRetentionMillis
        return int(retention(self._snapshot(name).metadata())) * 1000

    def _snapshot(self, name: str, version: int | None = None) -> Any:
        none = self._jvm.scala.Option.empty()
        log = self._delta_log(name)
        return log.update(False, none, none) if version is None else log.getSnapshotAt(version, none, none, False)

    def append_rows(self, name: str, rows: pa.Table) -> None:
        """Append a few rows that the driver holds."""
        frame = self.spark.createDataFrame(rows, spark_schema(rows.schema))
        frame.coalesce(1).write.format("delta").mode("append").save(self.path(name))

    def last_commit(self, name: str) -> Commit | None:
        """Return the commit of the highest batch, or the newest copy of its metadata.

        A maintenance job copies (with `copied`) what it saw last; a batch committed beside it counts though it is older.
        """
        best: Commit | None = None
        for version in sorted(self._log_files(name), reverse=True):
            commit = self.commit(name, version)
            if commit is None:
                continue
            if best is None or commit.metadata["batch_id"] > best.metadata["batch_id"]:
                best = commit
            if not commit.metadata.get("copied"):
                break
        return best

    def commits(self, name: str, after_version: int = -1) -> Iterator[Commit]:
        """Yield our commits newer than a version, oldest first, copies of their metadata left out."""
        for version in sorted(v for v in self._log_files(name) if v > after_version):
            commit = self.commit(name, version)
            if commit is not None and not commit.metadata.get("copied"):
                yield commit

    def versions(self, name: str) -> list[int]:
        """Return the versions whose commits the log still has one by one, newest first."""
        return sorted(self._log_files(name), reverse=True)

    def latest_version(self, name: str) -> int:
        """Return the newest version; -1 where there is no table."""
        return max(self._log_files(name), default=-1)

    def commit(self, name: str, version: int) -> Commit | None:
        """Return our metadata of one commit; None where the commit does not exist or carries none."""
        written = (self.commit_info(name, version) or {}).get("userMetadata")
        try:
            metadata = json.loads(written)[_KEY] if written else None
        except (ValueError, KeyError, TypeError):
            metadata = None
        return Commit(version, metadata) if metadata else None

    def commit_info(self, name: str, version: int) -> dict[str, Any] | None:
        """Return what Delta wrote of one commit: timestamp (ms), operation, operationMetrics, userMetadata."""
        return next(self._actions(name, version, "commitInfo"), None)

    def _actions(self, name: str, version: int, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the actions of one kind of a commit; none where its file is gone."""
        text = self.read_text(f"{self.path(name)}/_delta_log/{version:020d}.json")
        for line in (text or "").split("\n"):
            if line.startswith(f'{{"{kind}":'):
                yield json.loads(line)[kind]

    def _log_files(self, name: str) -> set[int]:
        names = self.names(f"{self.path(name)}/_delta_log")
        return {int(match[1]) for match in map(_COMMIT_FILE.fullmatch, names) if match}

    def names(self, uri: str) -> list[str]:
        """Return the names in a directory; none where it is not there."""
        fs, path = self._file_system(uri)
        return [status.getPath().getName() for status in fs.listStatus(path)] if fs.exists(path) else []

    def read_text(self, uri: str) -> str | None:
        """Return a small file's text, or None where there is none."""
        fs, path = self._file_system(uri)
        if not fs.exists(path):
            return None
        stream = fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text_once(self, uri: str, text: str) -> None:
        """Write a small file, whole or not at all; one that is there stays."""
        fs, path = self._file_system(uri)
        temporary = path.suffix(f".{uuid.uuid4().hex}.tmp")
        stream = fs.create(temporary)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if fs.exists(path) or not fs.rename(temporary, path):
            fs.delete(temporary, False)

    def _file_system(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self.spark._jsc.hadoopConfiguration()), path

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm
