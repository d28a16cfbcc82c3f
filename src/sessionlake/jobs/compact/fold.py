"""Fold: the changes since the last fold become rows of the snapshot, in one commit that says how far it reaches."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from sessionlake.engine import failpoints
from sessionlake.errors import FencedError
from sessionlake.jobs.compact.layout_texts import as_sql, text_of
from sessionlake.jobs.compact.ordered import in_order, row_bytes, rows_by_date, snapshot_files
from sessionlake.jobs.compact.plan import MB, File, touched
from sessionlake.jobs.compact.upkeep import ATTEMPTS, Upkeep
from sessionlake.warehouse.changelog import FOLD, Changelog
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.spark_columns import columns, unnamable
from sessionlake.warehouse.views import CHANGE_COUNT, ERASURES, changes, fold_point, latest_changes

STEP = "fold"
AUTO, MERGE, REWRITE, NOTHING = "auto", "merge", "rewrite", "nothing"
REWRITE_FROM = 0.1
"""Share of the touched files' rows from which their rewrite is cheaper than a MERGE, measured: docs/decisions/0007."""
REWRITE_BELOW = 32 * MB
"""Bytes of touched files up to which their rewrite takes no longer than a MERGE starts up."""
_DELETION_VECTORS = "delta.enableDeletionVectors"
_ERASED = "a key was erased while the changelog was read; it is read again"


@dataclass(frozen=True)
class Tail:
    """The changes to fold: of batches after the snapshot's fold point, up to the run's last batch."""

    of: Changelog
    changes: DataFrame
    """The last change of each row, kept by Spark until released."""
    until: int
    changelog_version: int
    rows: int
    upserts: int
    deletes: int
    by_date: dict[str, int]
    """How many rows the fold puts there, by date; in order, dates of deletes only with 0."""
    files: list[File]
    """The snapshot's files that may hold a changed row."""

    @property
    def dates(self) -> list[str]:
        """Dates on which rows change, in order."""
        return list(self.by_date)

    @property
    def stored(self) -> int:
        """Rows that these files hold."""
        return sum(file.rows - file.deleted for file in self.files)

    @property
    def changed(self) -> int:
        """Rows that the fold changes."""
        return self.upserts + self.deletes

    def method(self, asked: str) -> str:
        """Return the requested method; for `auto` the cheaper method."""
        if not self.changed:
            return NOTHING
        if asked != AUTO:
            return asked
        small = sum(file.bytes for file in self.files) <= REWRITE_BELOW
        return REWRITE if small or self.changed >= REWRITE_FROM * self.stored else MERGE

    def details(self, method: str) -> dict[str, Any]:
        """Return the fold's details for the metadata of its commit."""
        return {
            "batch_id": self.until,
            "changelog_version": self.changelog_version,
            "method": method,
            "folded": self.rows,
            "upserts": self.upserts,
            "deletes": self.deletes,
        }

    @property
    def put(self) -> str:
        """Which of the changes the snapshot is to have as rows, as SQL: of a keyed table deletions, too."""
        return self.of.stored_changes_sql

    def release(self) -> None:
        """Let go of the kept changes."""
        self.changes.unpersist()


def read_tail(upkeep: Upkeep, until: int) -> Tail:
    """Return the changes that are to be folded now.

    It reads the newest version of the changelog. The rows of a batch change only if a key is erased, and a pinned
    version would bring that key back.
    """
    tables, of = upkeep.tables, upkeep.tables.changelog
    after = fold_point(tables)
    version = tables[of.changes].latest_version()
    batches = changes(tables[of.changes].read(version), -1 if after is None else after, until)
    # Not in memory: a hundred million of them left too little of a heap of 4 GB (docs/decisions/0007-compaction.md).
    latest = latest_changes(batches, of).persist(StorageLevel.DISK_ONLY)
    kinds = [F.count_if(F.col("op") == op).alias(op) for op in ("upsert", "delete")]
    by_date = latest.groupBy(of.date).agg(F.sum(CHANGE_COUNT).alias("rows"), *kinds).collect()
    put = {text_of(row[of.date]): row.upsert + (row.delete if of.keeps_deletions else 0) for row in sorted(by_date)}
    return Tail(
        of=of,
        changes=latest,
        until=until,
        changelog_version=version,
        rows=sum(row.rows for row in by_date),
        upserts=sum(row.upsert for row in by_date),
        deletes=sum(row.delete for row in by_date),
        by_date=put,
        files=touched(snapshot_files(tables), list(put)) if put else [],
    )


def fold(upkeep: Upkeep, until: int, asked: str, file_bytes: int) -> None:
    """Fold the batches up to and including `until`; do nothing if this run or another has folded them.

    If two folds run at once, Delta refuses the second, which then starts from the fold point of the first.
    """
    tables, of = upkeep.tables, upkeep.tables.changelog

    def once() -> None:
        reached = fold_point(tables)
        if reached is not None and reached >= until:
            return
        erasures = tables[of.snapshot].app_version(ERASURES)
        tail = read_tail(upkeep, until)
        failpoints.hit("compact_tail_read")
        try:
            method = tail.method(asked)
            if method == REWRITE:
                _rewrite(upkeep, tail, file_bytes, erasures)
                return
            # One from here on, before the transaction below, sets the fold point too, by which Delta refuses the fold.
            if tables[of.snapshot].app_version(ERASURES) != erasures:
                raise FencedError(_ERASED)
            if method == MERGE:
                _merge(upkeep, tail)
            # The fold point moves even if there are no changes, or Delta wrote none: trim needs it to follow.
            nothing = upkeep.spark.createDataFrame([], tables[of.snapshot].read().schema)
            tables[of.snapshot].append(nothing, FOLD, until, _metadata(upkeep, tail, method))
        finally:
            tail.release()

    tables[of.snapshot].retried(ATTEMPTS, once)


def _metadata(upkeep: Upkeep, tail: Tail, method: str, **details: int) -> dict[str, Any]:
    return upkeep.metadata(tail.of.snapshot, STEP, **tail.details(method), **details)


def _merge(upkeep: Upkeep, tail: Tail) -> None:
    """Mark changed rows in deletion vectors and write the new rows: the files' other rows stay unread and unwritten."""
    of = tail.of
    same = " and ".join(f"t.{column} = s.{column}" for column in of.identity)
    name = upkeep.tables[of.snapshot].sql_name()
    properties = {row.key: row.value for row in upkeep.spark.sql(f"show tblproperties {name}").collect()}
    # Without deletion vectors, whose property a table with such a column can't get, MERGE writes the files anew.
    if properties.get(_DELETION_VECTORS) != "true" and not unnamable(tail.changes.columns):
        upkeep.execute(
            of.snapshot, "properties", f"alter table {name} set tblproperties ('{_DELETION_VECTORS}' = 'true')"
        )
    tail.changes.createOrReplaceTempView("tail")
    # MERGE has no writer options: its transaction and metadata are settings of the session.
    transaction = {f"spark.databricks.delta.write.{key}": value for key, value in _transaction(tail).items()}
    metadata = user_metadata(_metadata(upkeep, tail, MERGE))
    # Named each: Delta takes a backquote in the names behind a star for a mark of SQL.
    names = [SPARK.named(name) for name in upkeep.tables[of.snapshot].read().columns]
    gone = "" if of.keeps_deletions else "when matched and s.op = 'delete' then delete"
    with upkeep.tables.settings({**transaction, USER_METADATA: metadata}):
        upkeep.spark.sql(
            f"""
            merge into {name} t using tail s
            on t.{of.date} in ({_dates(tail)}) and t.{of.date} = s.{of.date}
                and {same}
            {gone}
            when matched then update set {", ".join(f"t.{name} = s.{name}" for name in names)}
            when not matched and {tail.put.replace("op", "s.op")}
                then insert ({", ".join(names)}) values ({", ".join(f"s.{name}" for name in names)})
            """  # noqa: S608 (a path and names)
        ).collect()


def _rewrite(upkeep: Upkeep, tail: Tail, file_bytes: int, erasures: int | None) -> None:
    """Replace the files that may hold a changed session by files in order of date and key."""
    of = tail.of
    change = upkeep.tables[of.snapshot].replacement()
    # Read from the transaction and not from the table: an erasure that this code does not know of then refuses the
    # commit.
    if change.app_version(ERASURES) != (-1 if erasures is None else erasures):
        raise FencedError(_ERASED)
    if change.app_version(FOLD) >= tail.until:
        return
    every = snapshot_files(upkeep.tables, change.version)
    files = touched(every, tail.dates)
    put = tail.changes.where(tail.put)
    rows = sample = put
    stored = change.read([file.path for file in files]) if files else None
    names = columns(upkeep.tables[of.snapshot].read().columns)
    if stored is not None:
        kept = stored.join(tail.changes.select(*of.identity), list(of.identity), "left_anti")
        rows = kept.select(*names).unionAll(put.select(*names))
        places = [of.date, of.key]
        sample = stored.select(*places).unionAll(put.select(*places))
    counts = rows_by_date(of, files, stored)
    for day, more in tail.by_date.items():
        counts[day] = counts.get(day, 0) + more
    written = change.write(
        in_order(of, rows.select(*names), sample, counts, row_bytes(upkeep.tables, files or every), file_bytes)
    )
    failpoints.hit("compact_files_written")
    metadata = _metadata(upkeep, tail, REWRITE, rows_written=written.rows)
    change.commit(written, [f.path for f in files], metadata, app=(FOLD, tail.until), changes_data=True)


def _transaction(tail: Tail) -> dict[str, str]:
    return {"txnAppId": FOLD, "txnVersion": str(tail.until)}


def _dates(tail: Tail) -> str:
    return ", ".join(as_sql(date) for date in tail.dates)
