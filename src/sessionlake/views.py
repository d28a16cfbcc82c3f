"""The tables as users read them: sessions_live, exact at any moment, and batches up to the last commit."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionlake import live, schemas
from sessionlake.batches import batch_row
from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.schemas import IDENTITY
from sessionlake.warehouse.tables import Tables, spark_schema

FOLD = live.FOLD
ERASURES = "sessionlake.erasures"
"""Delta's txnAppId under which the snapshot counts erasures: a fold that read the changelog before one must read again."""
ARCHIVED_FROM = "sessionlake.archived_from"
"""Delta's txnAppId under which the archive says from which event time on, in microseconds, it is whole; from ever without."""
CHANGE_COUNT = "_changes"
Narrow = Callable[[DataFrame], DataFrame]
"""Leaves out rows, by session_key and session_start alone: all rows of a session or none."""


def read_sessions(spark: SparkSession, config: Config) -> DataFrame:
    """Return all sessions as of the last committed batch: the snapshot and the changelog's tail, merged on read.

    With emit = "final" only sessions that ended before the close time, and so can't change by events any more.
    """
    tables = Tables(spark, config.pipeline.warehouse)
    last = tables.last_commit(schemas.CHANGELOG) if tables.exists(schemas.CHANGELOG) else None
    if not tables.exists(schemas.CHANGELOG):
        raise PipelineStateError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no sessions yet; run `sessionlake run` first"
        )
    sessions = merged_sessions(tables)
    if config.session.emit == "update":
        return sessions
    watermark = None if last is None else last.metadata["state"].get("watermark_us")
    close = F.lit(None) if watermark is None else F.timestamp_micros(F.lit(watermark - config.grace_us - config.gap_us))
    return sessions.where(F.col("session_end") < close)


def merged_sessions(
    tables: Tables,
    *,
    snapshot_version: int | None = None,
    changelog_version: int | None = None,
    narrowed: Narrow = lambda rows: rows,
) -> DataFrame:
    """Return the latest state of every session: the snapshot's row, unless a batch after its fold point has another.

    As of the given versions, or of now: the frame stays at the versions that are newest when it is made. Of a pair of
    versions the snapshot's may be the newer one, but the changelog must not be trimmed beyond the snapshot's fold point.
    `narrowed` leaves out rows of sessions that aren't asked for before they are merged.
    """
    snapshot_version, changelog_version = _versions(tables, snapshot_version, changelog_version)
    fold = fold_point(tables, snapshot_version)
    snapshot = narrowed(tables.read(schemas.SESSIONS, snapshot_version))
    changelog = narrowed(tables.read(schemas.CHANGELOG, changelog_version))
    text = live.live_sql(
        live.SPARK,
        snapshot.columns,
        snapshot="{snapshot}",
        changelog="{changelog}",
        after=-1 if fold is None else fold,
    )
    return tables.spark.sql(text, snapshot=snapshot, changelog=changelog)


def sessions_meeting(
    tables: Tables,
    low_us: int,
    high_us: int | None = None,
    *,
    snapshot_version: int | None = None,
    changelog_version: int | None = None,
) -> DataFrame:
    """Return the sessions, as `merged_sessions` does, that have a time in [low_us, high_us]; None for no end.

    What is merged, by key and start, begins with the earliest start of a version that reaches into the range: the rest
    need not be read, of which the tables' files tell by their bounds.
    """
    snapshot_version, changelog_version = _versions(tables, snapshot_version, changelog_version)
    versions = {"snapshot_version": snapshot_version, "changelog_version": changelog_version}
    low, high = (
        min(max(us, schemas.YEAR_1_US), schemas.YEAR_9999_US)
        for us in (low_us, schemas.YEAR_9999_US if high_us is None else high_us)
    )
    until = F.col("session_start") <= F.timestamp_micros(F.lit(high))
    meeting = until & (F.col("session_end") >= F.timestamp_micros(F.lit(low)))
    first = (
        session_versions(tables, **versions).where(meeting).agg(F.min(F.unix_micros("session_start"))).collect()[0][0]
    )
    since = F.timestamp_micros(F.lit(high if first is None else first))

    def narrowed(rows: DataFrame) -> DataFrame:
        rows = rows.where(until & (F.col("session_start") >= since))
        return rows.where(F.col("session_date") >= utc_date(since)) if "session_date" in rows.columns else rows

    return merged_sessions(tables, **versions, narrowed=narrowed).where(meeting)


def _versions(tables: Tables, snapshot: int | None, changelog: int | None) -> tuple[int, int]:
    # In this order: trim stops at the fold point of a snapshot that is there already, so that no batch can be in neither.
    changelog = tables.latest_version(schemas.CHANGELOG) if changelog is None else changelog
    return (tables.latest_version(schemas.SESSIONS) if snapshot is None else snapshot), changelog


def fold_point(tables: Tables, snapshot_version: int | None = None) -> int | None:
    """Return the batch_id up to which the changelog is in a version of the snapshot; None where nothing was folded.

    It is the txnVersion of the fold's own commit: state of the table, which later commits and log cleanup leave alone.
    """
    reached = tables.app_version(schemas.SESSIONS, FOLD, snapshot_version)
    # An erasure before the first fold records -1.
    return None if reached is None or reached < 0 else reached


def changes(changelog: DataFrame, after: int, until: int | None = None) -> DataFrame:
    """Return the changes of sessions in batches after one, up to and including another; emitted events are none."""
    span = F.col("batch_id") > after
    if until is not None:
        span &= F.col("batch_id") <= until
    return changelog.where(span & (F.col("op") != "emit"))


def latest_changes(changes: DataFrame) -> DataFrame:
    """Return the last change of each session, with its session_date and, as CHANGE_COUNT, how many there were."""
    session = Window.partitionBy(*IDENTITY)
    ranked = changes.withColumn("_rank", F.row_number().over(session.orderBy(F.desc("batch_id"))))
    counted = ranked.withColumn(CHANGE_COUNT, F.count(F.lit(1)).over(session))
    return counted.where("_rank = 1").drop("_rank").withColumn("session_date", utc_date(F.col("session_start")))


def utc_date(time: Column) -> Column:
    """Return a time's date in UTC, whatever the session's time zone; whole days, so that no rounding moves one."""
    us = F.unix_micros(time)
    return F.date_from_unix_date(((us - F.pmod(us, F.lit(live.DAY_US))) / live.DAY_US).cast("int"))


def session_versions(
    tables: Tables, *, snapshot_version: int | None = None, changelog_version: int | None = None
) -> DataFrame:
    """Return what `merged_sessions` merges: the snapshot's rows (op `snapshot`) and the changes after its fold point."""
    snapshot = tables.read(schemas.SESSIONS, snapshot_version)
    fold = fold_point(tables, snapshot_version)
    tail = changes(tables.read(schemas.CHANGELOG, changelog_version), after=-1 if fold is None else fold)
    names = snapshot.columns
    return snapshot.select(*names, F.lit("snapshot").alias("op"), F.col("revision").alias("batch_id")).unionByName(
        tail.withColumn("session_date", utc_date(F.col("session_start"))).select(*names, "op", "batch_id")
    )


def read_batches(tables: Tables) -> DataFrame:
    """Return one row a committed batch: those in the table, and the newer ones from the changelog's commits."""
    # Pinned: what is saved between here and the query would be there twice.
    stored = tables.read(schemas.BATCHES, tables.latest_version(schemas.BATCHES))
    seen = stored.agg(F.max("changelog_version")).head()
    rows = [
        batch_row(c.metadata, c.version)
        for c in tables.commits(schemas.CHANGELOG, -1 if seen is None or seen[0] is None else seen[0])
    ]
    return stored if not rows else stored.unionByName(batches_frame(tables.spark, rows))


def batches_frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Return rows of `batch_row` as the table batches has them."""
    table = pa.Table.from_pylist(rows, schema=schemas.BATCHES_SCHEMA)
    return spark.createDataFrame(table, spark_schema(schemas.BATCHES_SCHEMA))
