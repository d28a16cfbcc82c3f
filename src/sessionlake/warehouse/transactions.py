"""Delta's transactions, for steps that its writers lack: files committed by name, versions of applications, fences.

By way of OptimisticTransaction, which is no public API: docs/decisions/0006 says why, 0012 why not deltalake's.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.data_file import DataFile
from sessionlake.warehouse.delta_log import FENCED, TERM, DeltaLog
from sessionlake.warehouse.filesystem import Files, write_bytes
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.table_files import files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONCURRENT = "DELTA_CONCURRENT_TRANSACTION"
CONFLICT = re.compile(r"DELTA_CONCURRENT_|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED")
"""Delta's errors for a commit that came after another."""


def _added(file: DataFile, now_ms: int) -> dict[str, Any]:
    """Return a file as the log names it (the action `add` of Delta's protocol)."""
    return {
        "path": file.path,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": file.stats,
    }


class Transactions(DeltaLog):
    """The transactions of a table, read and written through Hadoop.

    An *application* is Delta's word for a writer with its own id (txnAppId) and versions that only grow (txnVersion).
    Delta keeps each application's last version in the table's state. For the stream the id is its checkpoint's and the
    version is the batch. For a job they are its run and its step. So each append happens once, and two writers with the
    same id are detected.
    """

    _files: Files

    def __init__(self, files: Files, uri: str) -> None:
        super().__init__(files, uri)
        self.spark = files.spark

    def has(self, version: int) -> bool:
        """Say whether the log has a version's commit, without reading it."""
        fs, path = self._files.file_system(self._file(version))
        return bool(fs.exists(path))

    def commit_files(
        self,
        files: Iterable[DataFile],
        app_id: str,
        app_version: int,
        metadata: Mapping[str, Any] | None,
        *,
        after_version: int,
        guarded: bool = False,
        term: int | None = None,
    ) -> int:
        """Commit Parquet files that lie under an unpartitioned table's folder; return the version up to which the log is known.

        Pass the result as the next call's `after_version`. It is the version of this commit, unless others came in between.
        Raises FencedError if another process has committed this app_version or a later one since `after_version`, or
        does so at this moment; with the driver's `term`, also if another driver has begun its own since or does so. With
        `guarded`, raises PipelineStateError if another writer has changed rows since then.

        Delta's own writer reads the application's last version from the table's state, with a Spark job of 0.3 s or more.
        A sole writer that reads the commits since its last one does not need that job.
        """
        transaction = self._begun(app_id, app_version, after_version=after_version, guarded=guarded, term=term)
        now = time.time_ns() // 1_000_000
        txn = {"txn": {"appId": app_id, "version": app_version, "lastUpdated": now}}
        actions = [txn, *({"add": _added(file, now)} for file in files)]
        try:
            return self._commit(transaction, actions, metadata)
        except spark_names.Py4JJavaError as error:
            if CONCURRENT not in str(error):
                raise
            # The commit that came in between is in the log by now, and is refused in its own words.
            self._begun(app_id, app_version, after_version=after_version, guarded=guarded, term=term)
            raise self._committed(app_version) from error

    def begin_term(
        self,
        term: int,
        app_id: str,
        app_version: int,
        driver: str,
        *,
        after_version: int,
        guarded: bool,
        still_ours: Callable[[], None] = lambda: None,
    ) -> int:
        """Commit a driver's term, after which Delta refuses the commits of all drivers before it; return the version up to which the log is known.

        `app_version` is the next one that the driver is to commit. `driver` says who it is. `still_ours` is called after the
        transaction has begun, and raises an error if another driver has begun its term meanwhile. Other errors as
        in `commit_files`.

        The commit copies the metadata of the last batch: none can have come in between.
        """
        while True:
            transaction = self._begun(app_id, app_version, after_version=after_version, guarded=guarded, term=None)
            still_ours()
            mark = self.newest_mark(int(transaction.readVersion()))
            before = {} if mark is None else {k: v for k, v in mark.metadata.items() if k != "maintenance"}
            at = -1 if mark is None else mark.version
            if mark is not None and self.term_in(mark.version) is not None:
                at = mark.metadata["term"]["mark"]
            about = {"driver": driver, "mark": at, "began_us": time.time_ns() // 1000}
            metadata = {**before, "copied": True, "follows": after_version, "term": about}
            actions = [{"txn": {"appId": TERM, "version": term}}]
            # A driver of a release without terms looks for its own application alone. Not on a table without a batch: if the
            # user goes back to such a release, it looks at all of the log there, and would never write the table again.
            if "batch_id" in before:
                actions.append({"txn": {"appId": app_id, "version": FENCED}})
            try:
                return self._commit(transaction, actions, metadata)
            except spark_names.Py4JJavaError as error:
                if not CONFLICT.search(str(error)):
                    raise

    def refuse_other_term(self, term: int, after_version: int) -> None:
        """Raise FencedError if a driver other than the one of `term` has begun its own term after a version."""
        if any(self.term_in(version) not in (None, term) for version in self._since(after_version)):
            raise self._superseded()

    def _begun(self, app_id: str, app_version: int, *, after_version: int, guarded: bool, term: int | None) -> Any:
        """Return a transaction of the stream's, of which Delta refuses the commit if another driver commits meanwhile.

        Errors as in `commit_files`, for commits before it began.
        """
        transaction = self.delta_log().startTransaction()
        until = int(transaction.readVersion())
        found = self._written(transaction, range(after_version + 1, until + 1), app_id, term)
        if term is not None and TERM in found:
            raise self._superseded()
        if found.get(app_id, -1) >= app_version:
            raise self._committed(found[app_id])
        if guarded:
            self.refuse_foreign_change(after_version, until)
        self._require_plain(transaction.metadata())
        # The transaction counts as a reader of the applications' versions, so Delta reports a conflict if another driver commits them.
        for read in (app_id, TERM):
            transaction.readTxn().addOne(read)
        return transaction

    def _written(self, transaction: Any, versions: range, app_id: str, term: int | None) -> dict[str, int]:
        """Return the last versions of the application and of TERM that others than the driver of a term have committed."""
        last_versions: dict[str, int] = {}
        if versions and not self.has(versions[0]):
            # Delta has removed these commits one by one. The state of the table, which costs a Spark job, says what they came to.
            last_versions = {read: int(transaction.txnVersion(read)) for read in (app_id, TERM)}
            if last_versions[app_id] == FENCED and last_versions[TERM] != term:  # it hides the last batch
                raise self._superseded()
        for version in versions:
            txns = {action["appId"]: int(action["version"]) for action in self._actions(version, "txn")}
            # A term is no batch, and does not hide one that was committed before it.
            last_versions |= {read: number for read, number in txns.items() if number != FENCED}
        # Of an application that has written nothing the state says -1.
        passed = ((TERM, -1), (TERM, term), (app_id, FENCED))
        return {name: number for name, number in last_versions.items() if (name, number) not in passed}

    def _committed(self, batch_id: int) -> FencedError:
        return FencedError(
            f"table {self.uri!r}: another driver committed batch {batch_id}; "
            "this one stops, keep only one running on this warehouse"
        )

    def _superseded(self) -> FencedError:
        return FencedError(
            f"table {self.uri!r}: another driver has begun to write since this one did; "
            "this one stops, keep only one running on this warehouse"
        )

    def _commit(
        self, transaction: Any, actions: Iterable[Mapping[str, Any]], metadata: Mapping[str, Any] | None
    ) -> int:
        """Commit actions; return the version up to which the log is known to whoever has looked at it before the transaction."""
        delta, none = self._jvm.org.apache.spark.sql.delta, self._jvm.scala.Option.empty()
        made = self._jvm.java.util.ArrayList()
        for action in actions:
            made.add(delta.actions.Action.fromJson(json.dumps(action)))
        written = none if metadata is None else self._jvm.scala.Option.apply(user_metadata(metadata))
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        operation = getattr(self._jvm, "org.apache.spark.sql.delta.DeltaOperations$Write")(
            append, none, none, written, none, none, none, none, none
        )
        read = int(transaction.readVersion())
        scala = self._jvm.scala.jdk.javaapi.CollectionConverters
        version = int(transaction.commit(scala.asScala(made).toSeq(), operation))
        # If others came in between, their commits have not been looked at: the next call must.
        return version if version == read + 1 else read

    def _require_plain(self, table: Any) -> None:
        """Refuse a table whose files are not simply its rows."""
        if table.partitionColumns().nonEmpty() or table.columnMappingMode().name() != "none":
            raise PipelineStateError(
                f"table {self.uri!r}: is partitioned or maps its columns, which the stream can't write; "
                "restore the table as the stream made it"
            )

    def append_file(self, rows: pa.Table, app_id: str, app_version: int, *, after_version: int) -> int:
        """Append a few rows that the driver holds, and commit them, as `commit_files` does: without a Spark job."""
        files: list[DataFile] = []
        if rows.num_rows:
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, compression="snappy", store_schema=False)
            content = sink.getvalue().to_pybytes()
            path = f"part-00000-{uuid.uuid4()}.snappy.parquet"
            fs, target = self._files.file_system(f"{self.uri}/{path}")
            write_bytes(fs, target, content)
            files.append(DataFile(self.name, path, len(content), json.dumps({"numRecords": rows.num_rows})))
        return self.commit_files(files, app_id, app_version, None, after_version=after_version)

    def app_version(self, app_id: str, version: int | None = None) -> int | None:
        """Return an application's latest version, as of the table's newest or given version.

        None if it has not. Unlike commits' metadata it is part of the table's state, and so outlives log cleanup.
        """
        return self.app_versions([app_id], version).get(app_id)

    def app_versions(self, app_ids: Iterable[str], version: int | None = None) -> dict[str, int]:
        """Return `app_version` of each application that has written."""
        transactions = self._snapshot(version).transactions()
        by_app = {app_id: transactions.get(app_id) for app_id in app_ids}
        return {app_id: int(latest.get()) for app_id, latest in by_app.items() if latest.isDefined()}

    def fence(self, app_id: str) -> int:
        """Keep an application that has appended nothing from ever doing so; return FENCED, or the version it came to.

        Of a simultaneous first append and fence a single one takes effect, never both.
        """
        found = FENCED

        def fenced(version: int) -> int | None:
            nonlocal found
            found = version if version >= 0 else FENCED
            return None if version >= 0 else FENCED

        self.set_app_versions({app_id: fenced})
        return found

    def set_app_versions(self, change: Mapping[str, Callable[[int], int | None]]) -> None:
        """Record versions of applications, in a commit without rows: each a function of its latest (-1 for none).

        A function that returns None leaves its application alone. What an application is about to append under its id
        meanwhile fails, or comes first and is seen here.
        """
        none, delta = self._jvm.scala.Option.empty(), self._jvm.org.apache.spark.sql.delta
        log = self.delta_log()
        # The operation is only the name that the table's history shows.
        operation = getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        while True:
            log.update(False, none, none)
            transaction = log.startTransaction(none, none)
            actions = self._jvm.java.util.ArrayList()
            for app_id, new in change.items():
                # Asked of the transaction, not of the log: so the commit fails if the application appends meanwhile.
                if (version := new(int(transaction.txnVersion(app_id)))) is not None:
                    actions.add(delta.actions.SetTransaction(app_id, version, none))
            if actions.isEmpty():
                return
            try:
                transaction.commit(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)
            except spark_names.Py4JJavaError as error:
                if CONCURRENT not in str(error):
                    raise
                continue
            return

    def checkpoint(self) -> None:
        """Write a checkpoint of the table as it is now."""
        none = self._jvm.scala.Option.empty()
        log = self.delta_log()
        log.checkpoint(log.update(False, none, none), none)

    def files(self, version: int | None = None) -> "DataFrame":
        """Return the files of a version: path, partitionValues, size, stats (JSON), deletionVector; as the log has them."""
        return spark_names.DataFrame(files_of(self.spark, self._snapshot(version)).toDF(), self.spark)

    def id(self) -> str:
        """Return the id that the table got when it was made."""
        return str(self._snapshot().metadata().id())

    def created_us(self) -> int | None:
        """Return the time at which the table was made, in microseconds; None if its log does not say it."""
        created = self._snapshot().metadata().createdTime()
        return int(created.get()) * 1000 if created.isDefined() else None

    def partitioned_by(self) -> list[str]:
        """Return the columns that the table is partitioned by."""
        columns = self._snapshot().metadata().partitionColumns()
        return [str(columns.apply(n)) for n in range(columns.size())]

    def physical_names(self) -> dict[str, str]:
        """Return how the data files call the table's columns; with Delta's column mapping they have names of their own."""
        fields = json.loads(self._snapshot().metadata().schemaString())["fields"]
        return {f["name"]: f["metadata"].get("delta.columnMapping.physicalName", f["name"]) for f in fields}

    def rows(self, version: int | None = None) -> int:
        """Return the row count of a version's files, as its log says; rows in deletion vectors count too."""
        rows = F.get_json_object("stats", "$.numRecords").cast("bigint")
        found = self.files(version).agg(F.coalesce(F.sum(rows), F.lit(0))).head()
        return 0 if found is None else int(found[0])

    def vacuum_retention_us(self) -> int:
        """Return how long the table keeps files that no longer belong to it."""
        retention = self._jvm.org.apache.spark.sql.delta.DeltaLog.tombstoneRetentionMillis
        return int(retention(self._snapshot().metadata())) * 1000

    def delta_log(self) -> Any:
        """Return Delta's own object of the table's log."""
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.uri)

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    def _snapshot(self, version: int | None = None) -> Any:
        none = self._jvm.scala.Option.empty()
        log = self.delta_log()
        return log.update(False, none, none) if version is None else log.getSnapshotAt(version, none, none, False)
