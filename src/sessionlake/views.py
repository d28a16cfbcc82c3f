"""The tables as users read them: sessions_live, exact at any moment, and batches up to the last commit."""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.config import Config
from sessionlake.errors import PipelineStateError
from sessionlake.tables import Tables, spark_schema


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
    live = merged_sessions(tables)
    if config.session.emit == "update":
        return live
    watermark = None if last is None else last.metadata["state"].get("watermark_us")
    close = F.lit(None) if watermark is None else F.timestamp_micros(F.lit(watermark - config.grace_us - config.gap_us))
    return live.where(F.col("session_end") < close)


def merged_sessions(
    tables: Tables, *, snapshot_version: int | None = None, changelog_version: int | None = None
) -> DataFrame:
    """Return the latest state of every session: of its snapshot row and its changes, the highest batch_id wins."""
    snapshot = tables.read(schemas.SESSIONS, snapshot_version)
    changelog = tables.read(schemas.CHANGELOG, changelog_version)
    changes = changelog.where("op != 'emit'").withColumn("session_date", F.to_date("session_start"))
    names = snapshot.columns
    everything = snapshot.select(*names, F.lit("upsert").alias("op"), F.col("revision").alias("batch_id")).unionByName(
        changes.select(*names, "op", "batch_id")
    )
    # At one batch_id snapshot row and change are the same, so that either may win.
    latest = Window.partitionBy("session_key", "session_start").orderBy(F.desc("batch_id"))
    return (
        everything.withColumn("_rank", F.row_number().over(latest)).where("_rank = 1 and op != 'delete'").select(*names)
    )


def read_batches(tables: Tables) -> DataFrame:
    """Return one row a committed batch: those in the table, and the newer ones from the changelog's commits."""
    stored = tables.read(schemas.BATCHES)
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


def batch_row(metadata: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a batch's row of the table batches from its commit."""
    return {
        "batch_id": metadata["batch_id"],
        "commit_id": metadata["commit_id"],
        "started_at": metadata["started_us"],
        "committed_at": metadata["committed_us"],
        "watermark": metadata["state"].get("watermark_us"),
        **{name: metadata["counts"].get(name, 0) for name in schemas.COUNTS},
        "changelog_version": version,
    }
