"""Files of a table put in the place of others, in one commit that fails if somebody else touches them meanwhile.

By way of OptimisticTransaction, which is no public API: docs/decisions/0006 says why, 0012 why not deltalake's.
"""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.delta_log import DeltaLog
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.spark_columns import write_times_plainly
from sessionlake.warehouse.table_files import files_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_APPENDED = "DELTA_CONCURRENT_APPEND"
_REBASES = 20


@dataclass(frozen=True)
class Written:
    """Files under the table's folder that its log does not name yet."""

    adds: list[dict[str, Any]]
    """As the log will name them."""

    @property
    def rows(self) -> int:
        """How many rows they hold."""
        return sum(json.loads(add["stats"])["numRecords"] for add in self.adds)


class Replacement:
    """A transaction under way: it reads the table as of its start, and commits once at the most.

    The commit fails, as a conflict that `Table.retried` knows, if a file that it replaces has changed or gone since,
    or if an application that it asked for has recorded another version. Files that others have added don't make it
    fail, unless an application was asked for.
    """

    def __init__(self, spark: "SparkSession", delta_log: Any, commits: DeltaLog) -> None:
        self._spark, self._log, self._commits = spark, delta_log, commits
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._none = self._jvm.scala.Option.empty()
        delta_log.update(False, self._none, self._none)
        self._transaction = delta_log.startTransaction(self._none, self._none)
        self._known: dict[str, Any] = {}

    @property
    def version(self) -> int:
        """The table's version that is read."""
        return int(self._transaction.readVersion())

    def app_version(self, app_id: str) -> int:
        """Return the latest version that an application has recorded; -1 for none."""
        return int(self._transaction.txnVersion(app_id))

    def named(self, names: Collection[str]) -> dict[str, int]:
        """Return the path, as the log names it, and the size in bytes of each given file that is in the table.

        The files are given by name, without their folders.
        """
        self._look_up(F.element_at(F.split("path", "/"), -1).isin(list(names)))
        return {path: int(file.size()) for path, file in self._known.items() if _name(path) in names}

    def holding(self, condition: "Column") -> dict[str, int | None]:
        """Return the path, as the log names it, of each file for which a condition holds, and its rows: None if the log does not say how many.

        The condition is over the columns of `Transactions.files`. Deleted rows don't count.
        """
        rows = {str(file.path()): file.numLogicalRecords() for file in self._look_up(condition)}
        return {path: int(count.get()) if count.isDefined() else None for path, count in rows.items()}

    def read(self, paths: Collection[str], *, tracked: bool = False) -> "DataFrame":
        """Return the rows of some of the table's files, named as its log names them, without deleted rows.

        With `tracked` they have the columns by which Delta knows a row again, if the table tracks its rows.
        """
        # Delta makes the frame in the active session.
        sessions = self._jvm.org.apache.spark.sql.SparkSession
        before, ours = sessions.getActiveSession(), self._spark._jsparkSession
        sessions.setActiveSession(ours)
        try:
            snapshot = self._transaction.snapshot()
            frame = self._log.createDataFrame(snapshot, self._seq(self._files(paths)), False, self._none)
            if tracked:
                tracking = self._jvm.org.apache.spark.sql.delta.RowTracking
                frame = tracking.preserveRowTrackingColumns(frame, snapshot)
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()
        return spark_names.DataFrame(frame, self._spark)

    def write(self, rows: "DataFrame") -> Written:
        """Write a file for each of the frame's partitions that has rows."""
        write_times_plainly(rows.sparkSession)
        files = self._transaction.writeFiles(rows._jdf, self._none, True, self._seq([]))
        return Written([json.loads(files.apply(n).json())["add"] for n in range(files.size())])

    def commit(
        self,
        written: Written,
        replaced: Collection[str],
        metadata: Mapping[str, Any],
        *,
        app: tuple[str, int] | None = None,
        changes_data: bool,
    ) -> int:
        """Replace the named files of the table by the files that were written; return the new version.

        `app` is an application and the version that it records. Without `changes_data` the rows are promised to be the
        same ones: a stream that reads the table skips the commit.
        """
        delta, now = self._jvm.org.apache.spark.sql.delta, time.time_ns() // 1_000_000
        actions: list[dict[str, Any]] = (
            [{"txn": {"appId": app[0], "version": app[1], "lastUpdated": now}}] if app else []
        )
        if app:
            # Delta watches it then: the commit fails if the application records another version meanwhile.
            self._transaction.readTxn().addOne(app[0])
        actions += [{"add": {**add, "dataChange": changes_data}} for add in written.adds]
        for file in self._files(replaced):
            removed = json.loads(file.removeWithTimestamp(now, changes_data).json())["remove"]
            # Nobody reads these, and they would keep the least and greatest texts of rows that `forget` removes.
            removed.pop("stats", None)
            actions.append({"remove": removed})
        made = [delta.actions.Action.fromJson(json.dumps(action)) for action in actions]
        none, metadata_option = self._none, self._jvm.scala.Option.apply(user_metadata(metadata))
        operation = getattr(self._jvm, "org.apache.spark.sql.delta.DeltaOperations$Write")(
            self._jvm.org.apache.spark.sql.SaveMode.Overwrite, *(none, none, metadata_option, *(none,) * 5)
        )
        return self._committed(self._seq(made), operation, None if app else {_name(path) for path in replaced})

    def _committed(self, found: Any, operation: Any, replaced: set[str] | None) -> int:
        """Commit, on top of others' commits if they left the `replaced` files alone; None leaves all conflicts to Delta."""
        for _ in range(_REBASES):
            try:
                return int(self._transaction.commit(found, operation))
            except spark_names.Py4JJavaError as error:
                if replaced is None or _APPENDED not in str(error) or not self._rebased(replaced):
                    raise
        return int(self._transaction.commit(found, operation))

    def _rebased(self, replaced: set[str]) -> bool:
        """Begin the transaction again at the newest version; say False if a commit since has touched these files or the table's metadata.

        To Delta whatever is appended to a table without partitions is a conflict with a commit that removes files. Here it
        is none, because the files that were written depend on those that they replace alone.
        """
        self._log.update(False, self._none, self._none)
        newer = self._log.startTransaction(self._none, self._none)
        for version in range(self.version + 1, int(newer.readVersion()) + 1):
            touched = self._commits.files_touched(version)
            if touched is None or not replaced.isdisjoint(touched):
                return False
        self._transaction = newer
        return True

    def _files(self, paths: Collection[str]) -> list[Any]:
        """Return files by path, as Delta's own objects of the version that the transaction reads."""
        if unknown := [path for path in paths if path not in self._known]:
            self._look_up(F.col("path").isin(unknown))
        return [self._known[path] for path in paths if path in self._known]

    def _look_up(self, condition: "Column") -> list[Any]:
        rows = list(files_of(self._spark, self._transaction.snapshot()).filter(condition._jc).collect())
        self._known |= {str(file.path()): file for file in rows}
        return rows

    def _seq(self, items: list[Any]) -> Any:
        """Return a list as Scala's."""
        java = self._jvm.java.util.ArrayList()
        for item in items:
            java.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()


def _name(path: str) -> str:
    return path.rpartition("/")[2]
