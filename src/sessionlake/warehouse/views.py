"""A pipeline's result tables as Spark reads them: the latest version of every row, the changes, the batches."""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sessionlake.warehouse import schemas, spark_names
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.changelog import FOLD, HIDDEN_WRITTEN, Changelog
from sessionlake.warehouse.dialects import DAY_US, SPARK
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ERASURES = "sessionlake.erasures"
"""Delta's txnAppId under which the snapshot counts erasures: a fold that read the changelog before one must read again."""
ARCHIVED_FROM = "sessionlake.archived_from"
"""Delta's txnAppId under which the archive says from which event time on, in microseconds, it is whole; from ever without."""
CHANGE_COUNT = "_changes"
Narrow = Callable[["DataFrame"], "DataFrame"]
"""Leaves out rows, by key and start alone: all versions of a row or none."""


def merged_rows(
    tables: Tables,
    *,
    snapshot_version: int | None = None,
    changelog_version: int | None = None,
    narrowed: Narrow = lambda rows: rows,
    of: Changelog | None = None,
    until: int | None = None,
    deleted: bool = False,
) -> "DataFrame":
    """Return the latest state of every row: the snapshot's, unless a batch after its fold point has another.

    `of` is the changelog, by default the pipeline's own one. `until` is the last batch, inclusive. With `deleted` a keyed
    table's tombstones are among the rows.

    Without versions the frame stays at the versions that are newest now. The snapshot's version may be newer than the
    changelog's, but the changelog must not be trimmed beyond the snapshot's fold point. `narrowed` filters rows before they
    are merged.
    """
    of = of or tables.changelog
    snapshot_version, changelog_version = pinned_versions(tables, snapshot_version, changelog_version, of)
    fold = fold_point(tables, snapshot_version, of)
    snapshot = narrowed(tables[of.snapshot].read(snapshot_version))
    changes_ = narrowed(_like_snapshot(tables[of.changes].read(changelog_version), snapshot, of))
    text = of.live_sql(
        SPARK,
        snapshot.columns,
        snapshot="{snapshot}",
        changelog="{changelog}",
        after=-1 if fold is None else fold,
        deleted=deleted,
        hidden_us=hidden_us(tables, changelog_version) if of.keeps_deletions else None,
    )
    kept = changes_ if until is None else changes_.where(F.col("batch_id") <= until)
    return tables.spark.sql(text, snapshot=snapshot, changelog=kept)


def grown(rows: "DataFrame", schema: "StructType", *, but: Collection[str]) -> "DataFrame":
    """Return rows with the columns of a newer version, but for some, that the version which they were read of lacks: they are null."""
    lacking = [field for field in schema if field.name not in (*rows.columns, *but)]
    return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})


def _like_snapshot(changes: "DataFrame", snapshot: "DataFrame", of: Changelog) -> "DataFrame":
    """Return changes with the columns of a newer snapshot, except for columns computed from the others."""
    return grown(changes, snapshot.schema, but=of.stored_sql(SPARK))


def pinned_versions(
    tables: Tables, snapshot: int | None, changelog: int | None, of: Changelog | None = None
) -> tuple[int, int]:
    """Return matching versions of snapshot and changelog: the given ones, or the newest."""
    of = of or tables.changelog
    # In this order: a trim stops at the fold point of the existing snapshot, so every batch is in one of the two.
    changelog = tables[of.changes].latest_version() if changelog is None else changelog
    return (tables[of.snapshot].latest_version() if snapshot is None else snapshot), changelog


def hidden_us(tables: Tables, version: int | None = None) -> int | None:
    """Return the time at or before which a keyed table's state hides rows, as of a version of its changelog."""
    last = tables[tables.changelog.changes].last_commit(version)
    return None if last is None else last.metadata["state"].get(HIDDEN_WRITTEN)


def fold_point(tables: Tables, snapshot_version: int | None = None, of: Changelog | None = None) -> int | None:
    """Return the batch_id up to which the changelog is in a version of the snapshot; None if nothing was folded.

    It is the txnVersion of the fold's own commit: state of the table, which later commits and log cleanup leave alone.
    """
    reached = tables[(of or tables.changelog).snapshot].app_version(FOLD, snapshot_version)
    # An erasure before the first fold records -1.
    return None if reached is None or reached < 0 else reached


def changes(changelog: "DataFrame", after: int, until: int | None = None) -> "DataFrame":
    """Return the changes of rows in batches after a batch, up to and including another, without emitted events."""
    span = F.col("batch_id") > after
    if until is not None:
        span &= F.col("batch_id") <= until
    return changelog.where(span & (F.col("op") != "emit"))


def latest_changes(changes: "DataFrame", of: Changelog) -> "DataFrame":
    """Return the last change of each row in the snapshot's columns, with `op` and the number of changes as CHANGE_COUNT."""
    session = spark_names.Window.partitionBy(*of.identity)
    ranked = changes.withColumn("_rank", F.row_number().over(session.orderBy(F.desc("batch_id"))))
    counted = ranked.withColumn(CHANGE_COUNT, F.count(F.lit(1)).over(session))
    return as_stored(counted.where("_rank = 1").drop("_rank"), of)


def as_stored(changes: "DataFrame", of: Changelog) -> "DataFrame":
    """Return changes with the columns that only the snapshot has."""
    stored = {name: F.expr(text) for name, text in of.stored_sql(SPARK).items()}
    return changes.withColumns(stored | {of.date: date_of(of)})


def date_of(of: Changelog) -> "Column":
    """Return the part of a change: the date of a start, or the part of a number or key."""
    part = F.expr(of.part_sql(SPARK))
    return part.cast("bigint") if of.numbered_parts else part


def whole(of: Changelog, column: str) -> "Column":
    """Return a row's start or end as a whole number: microseconds, or the number that it is."""
    return F.unix_micros(column) if of.has_times else F.col(column)


def utc_date(time: "Column") -> "Column":
    """Return a time's date in UTC, whatever the session's time zone; whole days, so that no rounding moves it."""
    us = F.unix_micros(time)
    return F.date_from_unix_date(((us - F.pmod(us, F.lit(DAY_US))) / DAY_US).cast("int"))


def row_versions(
    tables: Tables,
    *,
    snapshot_version: int | None = None,
    changelog_version: int | None = None,
    of: Changelog | None = None,
) -> "DataFrame":
    """Return the rows that `merged_rows` merges: the snapshot's (op `snapshot`) and the changes after its fold point."""
    of = of or tables.changelog
    snapshot = tables[of.snapshot].read(snapshot_version)
    fold = fold_point(tables, snapshot_version, of)
    read = _like_snapshot(tables[of.changes].read(changelog_version), snapshot, of)
    tail = changes(read, after=-1 if fold is None else fold)
    names = snapshot.columns
    return snapshot.select(
        *columns(names), F.lit("snapshot").alias("op"), F.col("revision").alias("batch_id")
    ).unionByName(as_stored(tail, of).select(*columns(names), "op", "batch_id"))


def rows_meeting(
    tables: Tables,
    low_us: int,
    high_us: int | None = None,
    *,
    snapshot_version: int | None = None,
    changelog_version: int | None = None,
    of: Changelog | None = None,
    until: int | None = None,
) -> "DataFrame":
    """Return the rows, as `merged_rows` does, that have a time in [low_us, high_us]; None for no end."""
    of = of or tables.changelog
    snapshot_version, changelog_version = pinned_versions(tables, snapshot_version, changelog_version, of)
    rows = partial(row_versions, snapshot_version=snapshot_version, changelog_version=changelog_version, of=of)
    latest = partial(
        merged_rows, snapshot_version=snapshot_version, changelog_version=changelog_version, of=of, until=until
    )
    meeting = meets(of, low_us, high_us)
    first = first_start(rows(tables).where(meeting), of)
    return latest(tables, narrowed=partial(starting, of, first, high_us)).where(meeting)


def meets(of: Changelog, low_us: int, high_us: int | None = None) -> "Column":
    """Return the condition of rows that have a time in [low_us, high_us]; None for no end."""
    return (F.col(of.start) <= _time(high_us)) & (F.col(of.end) >= _time(low_us))


def first_start(rows: "DataFrame", of: Changelog) -> int | None:
    """Return the earliest start of some versions of rows, in microseconds; None if there are none."""
    first: int | None = rows.agg(F.min(F.unix_micros(of.start))).collect()[0][0]
    return first


def starting(of: Changelog, first_us: int | None, high_us: int | None, rows: "DataFrame") -> "DataFrame":
    """Return the rows that start in [first_us, high_us]; None for none, and for no end.

    If no version of a row that starts before `first_us` reaches into a range, these need not be read to find the rows that do. The
    bounds in the tables' files let a reader skip them.
    """
    since = _time(high_us if first_us is None else first_us)
    rows = rows.where((F.col(of.start) >= since) & (F.col(of.start) <= _time(high_us)))
    return rows.where(F.col(of.date) >= utc_date(since)) if of.date in rows.columns else rows


def _time(us: int | None) -> "Column":
    """Return the time, at most what a column can have; None for the last one."""
    last = schemas.YEAR_9999_US
    return F.timestamp_micros(F.lit(last if us is None else min(max(us, schemas.YEAR_1_US), last)))


def bound_us(end: str, column: str) -> "Column":
    """Return, for a file's statistics, the least (`min`) or greatest (`max`) time of a column, in microseconds; null if they lack it."""
    time = F.unix_micros(F.try_to_timestamp(F.get_json_object("stats", f"$.{end}Values.{column}")))
    # Statistics cut times to milliseconds.
    return time + 999 if end == "max" else time


def read_batches(tables: Tables) -> "DataFrame":
    """Return a row for each committed batch: the table's rows, and newer ones from the changelog's commits."""
    # Pinned: rows saved between this line and the query would appear twice.
    stored = tables[schemas.BATCHES].read(tables[schemas.BATCHES].latest_version())
    for name in sorted(schemas.ADDED_COUNTS - {*stored.columns}):
        stored = stored.withColumn(name, F.lit(0).cast("bigint"))
    for name in sorted(schemas.ADDED_COUNTS & {*stored.columns}):
        stored = stored.withColumn(name, F.coalesce(name, F.lit(0)))
    seen = stored.agg(F.max("changelog_version")).head()
    more = tables.changelog.counts
    rows = [batch.row(more) for batch in batches_after(tables, -1 if seen is None or seen[0] is None else seen[0])]
    return stored if not rows else stored.unionByName(batches_frame(tables.spark, rows, schemas.batches(more)))


def batches_frame(spark: "SparkSession", rows: list[dict[str, Any]], schema: pa.Schema) -> "DataFrame":
    """Return rows of `BatchCommit.row` as the table batches has them."""
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema), spark_schema(schema))
