"""The yardstick: Spark's own session_window in append mode over the same files."""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "key string, ts timestamp, amount long, page string, offset long"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run_native(
    spark: SparkSession, events: Path, work: Path, files_per_batch: int, gap: str, delay: str
) -> list[float]:
    """Return the seconds of each micro-batch with input: count and sum per session, appended to Delta."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    rows = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", files_per_batch)
        .option("maxFileAge", "1000000d")
        .parquet(str(events))
    )
    sessions = (
        rows.withWatermark("ts", delay)
        .groupBy("key", F.session_window("ts", gap).alias("w"))
        .agg(F.count("*").alias("events"), F.sum("amount").alias("total"))
        .select("key", "w.start", "w.end", "events", "total")
    )
    writer = (
        sessions.writeStream.format("delta").outputMode("append").option("checkpointLocation", str(work / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start(str(work / "out"))
    query.awaitTermination()
    return [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
