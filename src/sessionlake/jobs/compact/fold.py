"""Fold: the changes since the last fold become rows of the snapshot, in one commit that says how far it reaches."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from sessionlake import schemas
from sessionlake.engine import failpoints
from sessionlake.errors import FencedError
from sessionlake.jobs.compact.layout import partitions
from sessionlake.jobs.compact.upkeep import ATTEMPTS, Upkeep
from sessionlake.schemas import IDENTITY
from sessionlake.tables import USER_METADATA, user_metadata
from sessionlake.views import CHANGE_COUNT, ERASURES, FOLD, changes, fold_point, latest_changes

STEP = "fold"
AUTO, MERGE, REWRITE, NOTHING = "auto", "merge", "rewrite", "nothing"
REWRITE_FROM = 0.1
"""Share of the touched dates' sessions from which their rewrite is cheaper than a MERGE, measured: docs/decisions/0007."""
_DELETION_VECTORS = "delta.enableDeletionVectors"


@dataclass(frozen=True)
class Tail:
    """The changes to fold: of batches after the snapshot's fold point, up to the run's last batch."""

    changes: DataFrame
    """The last change of each session, kept by Spark until released."""
    until: int
    changelog_version: int
    rows: int
    upserts: int
    deletes: int
    dates: list[str]
    stored: int
    """Sessions that the snapshot has on these dates."""
    stored_bytes: int

    @property
    def changed(self) -> int:
        """Sessions that the fold changes."""
        return self.upserts + self.deletes

    def method(self, asked: str) -> str:
        """Return the method asked for or, of `auto`, the cheaper one."""
        if not self.changed:
            return NOTHING
        if asked != AUTO:
            return asked
        return REWRITE if self.changed >= REWRITE_FROM * self.stored else MERGE

    def details(self, method: str) -> dict[str, Any]:
        """Return what the commit says of the fold."""
        return {
            "batch_id": self.until,
            "changelog_version": self.changelog_version,
            "method": method,
            "folded": self.rows,
            "upserts": self.upserts,
            "deletes": self.deletes,
        }

    def release(self) -> None:
        """Let go of the kept changes."""
        self.changes.unpersist()


def read_tail(upkeep: Upkeep, until: int) -> Tail:
    """Return what is to be folded now.

    It is read at the changelog's newest version: a batch's rows never change, unless a key was erased, which a pinned
    version would bring back.
    """
    tables = upkeep.tables
    after = fold_point(tables)
    version = tables.latest_version(schemas.CHANGELOG)
    batches = changes(tables.read(schemas.CHANGELOG, version), -1 if after is None else after, until)
    latest = latest_changes(batches).persist(StorageLevel.MEMORY_AND_DISK)
    kinds = [F.count_if(F.col("op") == op).alias(op) for op in ("upsert", "delete")]
    by_date = latest.groupBy("session_date").agg(F.sum(CHANGE_COUNT).alias("rows"), *kinds).collect()
    dates = sorted(str(row.session_date) for row in by_date)
    stored = [row for row in partitions(tables).collect() if row.session_date in set(dates)] if dates else []
    return Tail(
        changes=latest,
        until=until,
        changelog_version=version,
        rows=sum(row.rows for row in by_date),
        upserts=sum(row.upsert for row in by_date),
        deletes=sum(row.delete for row in by_date),
        dates=dates,
        stored=sum(row.rows - row.deleted for row in stored),
        stored_bytes=sum(row.bytes for row in stored),
    )


def fold(upkeep: Upkeep, until: int, asked: str, file_bytes: int) -> None:
    """Fold the batches up to and including one; nothing where that is done, by whomever.

    Of two folds at once Delta refuses the second, which then starts from the fold point of the first.
    """

    def once() -> None:
        reached = fold_point(upkeep.tables)
        if reached is not None and reached >= until:
            return
        erasures = upkeep.tables.app_version(schemas.SESSIONS, ERASURES)
        tail = read_tail(upkeep, until)
        failpoints.hit("compact_tail_read")
        try:
            method = tail.method(asked)
            # One from here on, before the transaction below, sets the fold point too, by which Delta refuses the fold.
            if upkeep.tables.app_version(schemas.SESSIONS, ERASURES) != erasures:
                raise FencedError("a key was erased while the changelog was read; it is read again")
            if method == MERGE:
                _merge(upkeep, tail)
            elif method == REWRITE:
                _rewrite(upkeep, tail, file_bytes)
            # Without changes, or with none that Delta wrote, the fold point still moves, so that trim can follow.
            nothing = upkeep.spark.createDataFrame([], upkeep.tables.read(schemas.SESSIONS).schema)
            upkeep.tables.append(schemas.SESSIONS, nothing, FOLD, until, _metadata(upkeep, tail, method))
        finally:
            tail.release()

    upkeep.tables.retried(schemas.SESSIONS, ATTEMPTS, once)


def _metadata(upkeep: Upkeep, tail: Tail, method: str) -> dict[str, Any]:
    return upkeep.metadata(schemas.SESSIONS, STEP, **tail.details(method))


def _merge(upkeep: Upkeep, tail: Tail) -> None:
    """Mark changed rows in deletion vectors and write the new ones: files keep their other rows unread and unwritten."""
    name = upkeep.tables.sql_name(schemas.SESSIONS)
    properties = {row.key: row.value for row in upkeep.spark.sql(f"show tblproperties {name}").collect()}
    if properties.get(_DELETION_VECTORS) != "true":
        upkeep.execute(
            schemas.SESSIONS, "properties", f"alter table {name} set tblproperties ('{_DELETION_VECTORS}' = 'true')"
        )
    tail.changes.createOrReplaceTempView("tail")
    # MERGE has no writer options: its transaction and metadata are settings of the session.
    transaction = {f"spark.databricks.delta.write.{key}": value for key, value in _transaction(tail).items()}
    metadata = user_metadata(_metadata(upkeep, tail, MERGE))
    with upkeep.tables.settings({**transaction, USER_METADATA: metadata}):
        upkeep.spark.sql(
            f"""
            merge into {name} t using tail s
            on t.session_date in ({_dates(tail)}) and t.session_date = s.session_date
                and t.session_key = s.session_key and t.session_start = s.session_start
            when matched and s.op = 'delete' then delete
            when matched then update set *
            when not matched and s.op = 'upsert' then insert *
            """
        ).collect()


def _rewrite(upkeep: Upkeep, tail: Tail, file_bytes: int) -> None:
    """Replace the touched dates as a whole, in order of key.

    By replaceWhere: a dynamic partition overwrite would leave a date alone that has no sessions left.
    """
    # Not pinned to a version: so Delta reads it within the transaction, and refuses the commit if it changed meanwhile.
    stored = upkeep.tables.read(schemas.SESSIONS)
    names, where = stored.columns, f"session_date in ({_dates(tail)})"
    kept = stored.where(where).join(tail.changes.select(*IDENTITY), IDENTITY, "left_anti").select(*names)
    rows = kept.unionAll(tail.changes.where("op = 'upsert'").select(*names))
    order = ["session_date", *IDENTITY]
    files = max(upkeep.spark.sparkContext.defaultParallelism, 1 + tail.stored_bytes // file_bytes)
    writer = rows.repartitionByRange(files, *order).sortWithinPartitions(*order).write.format("delta")
    for key, value in _transaction(tail).items():
        writer = writer.option(key, value)
    writer = writer.option("userMetadata", user_metadata(_metadata(upkeep, tail, REWRITE)))
    writer.mode("overwrite").option("replaceWhere", where).save(upkeep.tables.path(schemas.SESSIONS))


def _transaction(tail: Tail) -> dict[str, str]:
    return {"txnAppId": FOLD, "txnVersion": str(tail.until)}


def _dates(tail: Tail) -> str:
    return ", ".join(f"date'{date}'" for date in tail.dates)
