"""Sessions as users read them: sessions_live, exact at any moment."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows, pinned_versions, row_versions, utc_date


def read_sessions(spark: SparkSession, config: Config) -> DataFrame:
    """Return all sessions as of the last committed batch: the snapshot and the changelog's tail, merged on read.

    With emit = "final" only sessions that ended before the close time, and so can't change by events any more.
    """
    tables = Tables(spark, config.pipeline.warehouse)
    last = find_last_batch(tables) if tables.exists(schemas.CHANGELOG) else None
    if not tables.exists(schemas.CHANGELOG):
        raise NoBatchesError(
            f"pipeline.warehouse: {config.pipeline.warehouse!r} has no sessions yet; run `sessionlake run` first"
        )
    sessions = merged_rows(tables)
    if config.sessions.emit == "update":
        return sessions
    closed = SessionWindows.of(config).closed_us(None if last is None else last.watermark_us)
    return sessions.where(F.col("session_end") < (F.lit(None) if closed is None else F.timestamp_micros(F.lit(closed))))


def sessions_meeting(
    tables: Tables,
    low_us: int,
    high_us: int | None = None,
    *,
    snapshot_version: int | None = None,
    changelog_version: int | None = None,
) -> DataFrame:
    """Return the sessions, as `merged_rows` does, that have a time in [low_us, high_us]; None for no end.

    What is merged, by key and start, begins with the earliest start of a version that reaches into the range: the rest
    need not be read, of which the tables' files tell by their bounds.
    """
    snapshot_version, changelog_version = pinned_versions(tables, snapshot_version, changelog_version)
    low, high = (
        min(max(us, schemas.YEAR_1_US), schemas.YEAR_9999_US)
        for us in (low_us, schemas.YEAR_9999_US if high_us is None else high_us)
    )
    until = F.col("session_start") <= F.timestamp_micros(F.lit(high))
    meeting = until & (F.col("session_end") >= F.timestamp_micros(F.lit(low)))
    first = (
        row_versions(tables, snapshot_version=snapshot_version, changelog_version=changelog_version)
        .where(meeting)
        .agg(F.min(F.unix_micros("session_start")))
        .collect()[0][0]
    )
    since = F.timestamp_micros(F.lit(high if first is None else first))

    def narrowed(rows: DataFrame) -> DataFrame:
        rows = rows.where(until & (F.col("session_start") >= since))
        return rows.where(F.col("session_date") >= utc_date(since)) if "session_date" in rows.columns else rows

    return merged_rows(
        tables, snapshot_version=snapshot_version, changelog_version=changelog_version, narrowed=narrowed
    ).where(meeting)
