"""The yardsticks on Spark: its own session_window over the same files, as a stream in append mode and as a batch."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.cpu import tree_cpu_s
from benchmarks.ours import open_session
from benchmarks.synthetic import GAP, GRACE
from sessionlake.engine.spark import DELTA_EXTENSION
from sessionlake.jars import find_jars

SCHEMA = "key string, ts timestamp, amount long, page string, offset long"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOOK_S = 0.2


def plain_session(case: dict[str, Any]) -> SparkSession:
    """Start Spark as its user does without this project: with Delta, and nothing else but the driver's memory."""
    conf = {
        "spark.jars": ",".join(map(str, find_jars())),
        "spark.driver.memory": case["driver_memory"],
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench-native")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def sessions_of(rows: DataFrame) -> DataFrame:
    """Return count and sum per session."""
    grouped = rows.groupBy("key", F.session_window("ts", GAP).alias("w"))
    sums = grouped.agg(F.count("*").alias("events"), F.sum("amount").alias("total"))
    return sums.select("key", "w.start", "w.end", "events", "total")


def native_stream(case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of each micro-batch with input, appended to Delta; in Spark's defaults where `conf` is null.

    State is in RocksDB with a changelog. There are as many partitions of it as this engine has shards, since Spark's
    default of 200 state stores on two cores would say nothing.
    """
    home = Path(case["home"])
    spark = plain_session(case) if case["conf"] is None else open_session(case)
    spark.conf.set("spark.sql.shuffle.partitions", str(case["shards"]))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", case["files"])
    rows = reader.option("maxFileAge", "1000000d").parquet(case["events"])
    writer = sessions_of(rows.withWatermark("ts", GRACE)).writeStream.format("delta").outputMode("append")
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True)
    running = query.start(str(home / "out"))
    first, last = max(1, case["batches"] // 4), case["batches"]
    cpu_s: dict[int, float] = {}
    while not running.awaitTermination(_LOOK_S):
        progress = running.lastProgress
        done = progress["batchId"] + 1 if progress else 0
        if first <= done <= last:
            cpu_s.setdefault(done, tree_cpu_s())
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in running.recentProgress if p["numInputRows"]]
    seen = sorted(cpu_s)
    a_batch = (cpu_s[seen[-1]] - cpu_s[seen[0]]) / max(1, seen[-1] - seen[0])
    spark.stop()
    return {"seconds": seconds, "cpu_s": round(a_batch, 3)}


def session_window_batch(case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of sessionizing all files at once into Parquet, in Spark's defaults; the first run warms the JVM up."""
    spark = plain_session(case)
    target = str(Path(case["home"], "sessions"))
    seconds, cpu_s = [], []
    for _ in range(case["repeats"]):
        started, cpu_before = time.time(), tree_cpu_s()
        sessions_of(spark.read.parquet(case["events"])).write.mode("overwrite").parquet(target)
        seconds.append(round(time.time() - started, 3))
        cpu_s.append(round(tree_cpu_s() - cpu_before, 3))
    row = spark.read.parquet(target).agg(F.count("*"), F.sum("events"), F.sum("total")).head()
    spark.stop()
    return {"seconds": seconds, "cpu_s": cpu_s[-1], "added_up": list(row or ())}
